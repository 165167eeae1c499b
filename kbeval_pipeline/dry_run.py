"""What an evaluation would ask of models, and what that would cost, before anything is spent."""

from dataclasses import dataclass

import polars as pl

from kbeval_pipeline.evaluation.generation import draw_order, source_documents
from kbeval_pipeline.evaluation.judge_prompts import judge_request
from kbeval_pipeline.evaluation.judging import judged_pairs
from kbeval_pipeline.evaluation.question_prompts import question_request
from kbeval_pipeline.evaluation.retrieval import retrieve
from kbeval_pipeline.evaluation.test_sets import read_test_table
from kbeval_pipeline.project import Evaluation, LLMSettings
from kbeval_pipeline.resources.llms import Estimate
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.settings import TableName


@dataclass(frozen=True)
class PlannedStage:
    """The calls of one stage with one model.

    Attributes:
        stage: `generation` or `judging`.
        model: provider and model.
        estimate: calls that the reply store cannot answer, their tokens, and the cost, None if unknown.
        note: what the estimate leaves open.
    """

    stage: str
    model: str
    estimate: Estimate
    note: str = ""


def plan(project: ProjectResource, name: str) -> list[PlannedStage]:
    """Estimate the calls of an evaluation. Questions are searched, no model is asked, nothing is written.

    Args:
        project: the project.
        name: name of the evaluation.

    Returns:
        The stages that ask a model; none where only `offline` is used.

    Raises:
        UserError: as the evaluation itself would.
    """
    evaluation = project.evaluation(name)
    stages = []
    if evaluation.generate_data and project.llm(evaluation).provider != "offline":
        stages.append(_generation(project, evaluation))
    if "llm_relevancy" not in evaluation.version or not evaluation.evaluate:
        return stages
    judges = [settings for settings in project.judges(evaluation) if settings.provider != "offline"]
    if judges and evaluation.generate_data:
        most = evaluation.generate_data.count * evaluation.judging_depth
        note = "at most: the questions are not written yet"
        stages += [PlannedStage("judging", _label(j), Estimate(most, 0, None), note) for j in judges]
    elif judges:
        pairs = _pairs(project, evaluation)
        stages += [_judging(project, evaluation, settings, pairs) for settings in judges]
    return stages


def _generation(project: ProjectResource, evaluation: Evaluation) -> PlannedStage:
    how = evaluation.generate_data
    if how is None:
        raise ValueError("the evaluation generates nothing")
    if how.from_sql:
        found = project.data_sources().query(how.from_sql)
        documents = source_documents(found, source="generate_data.from_sql", id_required=False)
    else:
        listed = [(d.id, d.content) for d in project.knowledge_base(evaluation.knowledge_base).documents()]
        documents = pl.DataFrame(listed, schema={"doc_id": pl.String, "content": pl.String}, orient="row")
    filled = documents.filter(pl.col("content").str.strip_chars().fill_null("") != "")
    drawn = draw_order(filled.unique("content", maintain_order=True), how.seed).head(how.count)
    settings = project.llm(evaluation)
    client = project.llm_client(settings, evaluation)
    estimate = client.estimate(question_request(content) for content in drawn["content"])
    return PlannedStage("generation", _label(settings), estimate, "without re-asks and replacements")


def _pairs(project: ProjectResource, evaluation: Evaluation) -> pl.DataFrame:
    table = TableName.parse(evaluation.test_table)
    test_set = read_test_table(
        project.data_sources().read_table(table), table=str(table), versions=evaluation.version
    )
    found = retrieve(
        project.knowledge_base(evaluation.knowledge_base), test_set, top_k=evaluation.retrieval_depth
    )
    return judged_pairs(found.searches, found.chunks, evaluation.judging_depth)


def _judging(
    project: ProjectResource, evaluation: Evaluation, settings: LLMSettings, pairs: pl.DataFrame
) -> PlannedStage:
    client = project.llm_client(settings, evaluation)
    supported = client.supports_logprobs()
    method = settings.method or ("no-logprobs" if supported is False else "multi-class")
    logprobs = supported is not False
    requests = (
        judge_request(method, question, passage, logprobs=logprobs)
        for question, passage in pairs.select("question", "content").iter_rows()
    )
    return PlannedStage("judging", _label(settings), client.estimate(requests), "without re-asks")


def _label(settings: LLMSettings) -> str:
    return f"{settings.provider}/{settings.model_name or settings.class_path}"
