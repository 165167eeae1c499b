"""What an evaluation would ask of models, and what that would cost, before anything is spent."""

from dataclasses import dataclass

import polars as pl

from kbeval_pipeline.evaluation.generation import distinct_documents, draw_order, filled_documents
from kbeval_pipeline.evaluation.judging import judged_pairs
from kbeval_pipeline.evaluation.question_prompts import question_request
from kbeval_pipeline.evaluation.retrieval import retrieve
from kbeval_pipeline.project import Evaluation, GenerateData, LLMSettings
from kbeval_pipeline.resources.judges import judge_requests, likely_method
from kbeval_pipeline.resources.llms import Estimate
from kbeval_pipeline.resources.project import ProjectResource


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
        stages.append(_generation(project, evaluation, evaluation.generate_data))
    if "llm_relevancy" not in evaluation.version or not evaluation.evaluate:
        return stages
    judges = [settings for settings in project.judges(evaluation) if settings.provider != "offline"]
    if judges and evaluation.generate_data:
        most = evaluation.generate_data.count * evaluation.judging_depth
        note = "at most: the questions are not written yet"
        stages += [PlannedStage("judging", j.label, Estimate(most, 0, None), note) for j in judges]
    elif judges:
        pairs = _pairs(project, evaluation)
        stages += [_judging(project, evaluation, settings, pairs) for settings in judges]
    return stages


def _generation(project: ProjectResource, evaluation: Evaluation, how: GenerateData) -> PlannedStage:
    documents = distinct_documents(filled_documents(project.generation_source(evaluation)))
    drawn = draw_order(documents, how.seed).head(how.count)
    settings = project.llm(evaluation)
    client = project.llm_client(settings, evaluation)
    estimate = client.estimate(question_request(content) for content in drawn["content"])
    return PlannedStage("generation", settings.label, estimate, "without re-asks and replacements")


def _pairs(project: ProjectResource, evaluation: Evaluation) -> pl.DataFrame:
    base = project.knowledge_base(evaluation.knowledge_base)
    found = retrieve(base, project.test_table(evaluation), top_k=evaluation.retrieval_depth)
    return judged_pairs(found.searches, found.chunks, evaluation.judging_depth)


def _judging(
    project: ProjectResource, evaluation: Evaluation, settings: LLMSettings, pairs: pl.DataFrame
) -> PlannedStage:
    client = project.llm_client(settings, evaluation)
    method, logprobs = likely_method(client)
    estimate = client.estimate(judge_requests(method, pairs, logprobs=logprobs))
    return PlannedStage("judging", settings.label, estimate, "without re-asks")
