"""The resource that hands the project's evaluations, knowledge bases and data sources to assets."""

from pathlib import Path

from dagster import ConfigurableResource
from pydantic import Field, PrivateAttr

from kbeval_pipeline.errors import UserError
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
from kbeval_pipeline.settings import nearest
from kbeval_pipeline.statements import saved_evaluations


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
        evaluations = {**saved_evaluations(self.project), **self.project.evaluations}
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
