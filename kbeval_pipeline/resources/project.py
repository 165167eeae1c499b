"""The resource that hands the project's evaluations, knowledge bases and data sources to assets."""

from pathlib import Path

import polars as pl
from dagster import ConfigurableResource
from pydantic import Field, PrivateAttr

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.generation import source_documents
from kbeval_pipeline.evaluation.test_sets import read_test_table
from kbeval_pipeline.partitions import all_evaluations
from kbeval_pipeline.project import Evaluation, LLMSettings, Project
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.resources.data_sources import DataSources
from kbeval_pipeline.resources.knowledge_bases import (
    AsyncKnowledgeBase,
    KnowledgeBase,
    build_knowledge_base,
)
from kbeval_pipeline.resources.knowledge_bases.langchain_loading import load_path, make_object
from kbeval_pipeline.resources.llms import Budget, CacheStore, LLMClient, ReplyStore, Store
from kbeval_pipeline.settings import TableName, nearest


class ProjectResource(ConfigurableResource["ProjectResource"]):
    """The project file, read anew by each run.

    Only the file's path is configuration, so that Dagster never sees or shows a secret.
    """

    project_file: str = Field(description="Path of the project file.")

    _project: Project | None = PrivateAttr(default=None)
    _reply_store: Store | None = PrivateAttr(default=None)
    _knowledge_bases: dict[str, KnowledgeBase | AsyncKnowledgeBase] = PrivateAttr(default_factory=dict)

    @property
    def project(self) -> Project:
        """The checked project."""
        if self._project is None:
            self._project = read_project(Path(self.project_file))
        return self._project

    def evaluation(self, name: str) -> Evaluation:
        """Find an evaluation of the project file or of an earlier statement.

        Args:
            name: name of the evaluation, the partition key.

        Raises:
            UserError: when there is none of that name.
        """
        evaluations = all_evaluations(self.project)
        if name not in evaluations:
            raise UserError(f'unknown evaluation "{name}", {nearest(name, evaluations)}')
        return evaluations[name]

    def llm(self, evaluation: Evaluation) -> LLMSettings:
        """Find the LLM of an evaluation: its own, its knowledge base's, else the project's default.

        Args:
            evaluation: the evaluation.

        Raises:
            UserError: when none is named.
        """
        base = self.project.knowledge_bases[evaluation.knowledge_base]
        chosen = evaluation.llm or base.reranking_model or self.project.default_llm
        if chosen is None:
            raise UserError(
                "an LLM is needed: set `llm` in the evaluation, `reranking_model` in the knowledge base or "
                "`default_llm` in the project file; `llm: {provider: offline}` needs no model"
            )
        return self.project.llms[chosen] if isinstance(chosen, str) else chosen

    def judges(self, evaluation: Evaluation) -> list[LLMSettings]:
        """List who judges: the evaluation's panel, else its LLM.

        Args:
            evaluation: the evaluation.
        """
        return [self.project.llms[name] for name in evaluation.panel] or [self.llm(evaluation)]

    def llm_client(self, settings: LLMSettings, evaluation: Evaluation) -> LLMClient:
        """Make the client of an LLM, on the project's reply store.

        Args:
            settings: the LLM, which is not `offline`.
            evaluation: whose limits hold.
        """
        if self._reply_store is None:
            self._reply_store = self._open_reply_store()
        return LLMClient(
            settings,
            self._reply_store,
            cache=evaluation.cache,
            budget=Budget(evaluation.max_cost) if evaluation.max_cost else None,
        )

    def _open_reply_store(self) -> Store:
        cache = self.project.reply_cache
        if cache is None:
            return ReplyStore(self.project.data_dir / "replies.sqlite")
        where = "reply_cache"
        return CacheStore(make_object(load_path(cache.class_path, where), dict(cache.arguments), where))

    def data_sources(self) -> DataSources:
        """Open the named data sources."""
        return DataSources(self.project.data_sources)

    def test_table(self, evaluation: Evaluation) -> pl.DataFrame:
        """Read and check the test table of an evaluation.

        Args:
            evaluation: the evaluation.

        Returns:
            Rows of the table `test_set`.
        """
        table = TableName.parse(evaluation.test_table)
        rows = self.data_sources().read_table(table)
        return read_test_table(rows, table=str(table), versions=evaluation.version)

    def generation_source(self, evaluation: Evaluation) -> pl.DataFrame:
        """Read the documents from which the test set of an evaluation is generated.

        Args:
            evaluation: an evaluation with `generate_data`.

        Returns:
            `doc_id, content`, as they come.
        """
        how = evaluation.generate_data
        if how is not None and how.from_sql:
            found = self.data_sources().query(how.from_sql)
            id_required = "doc_id" in evaluation.version
            return source_documents(found, source="generate_data.from_sql", id_required=id_required)
        base = self.knowledge_base(evaluation.knowledge_base)
        listed = [(document.id, document.content) for document in base.documents()]
        return pl.DataFrame(listed, schema={"doc_id": pl.String, "content": pl.String}, orient="row")

    def knowledge_base(self, name: str) -> KnowledgeBase | AsyncKnowledgeBase:
        """Open a knowledge base; one object serves the whole run.

        Args:
            name: name of the knowledge base.
        """
        if name not in self._knowledge_bases:
            self._knowledge_bases[name] = build_knowledge_base(
                name,
                self.project.knowledge_bases[name],
                self.data_sources(),
                self.project.data_dir / "indexes",
            )
        return self._knowledge_bases[name]
