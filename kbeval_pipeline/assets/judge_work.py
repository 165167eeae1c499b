"""One judge at work on pairs of question and text, with its usage recorded; shared by two assets."""

from typing import Any

import polars as pl
from dagster import AssetExecutionContext

from kbeval_pipeline.evaluation.judging import judge_chunks
from kbeval_pipeline.evaluation.offline_judge import judge_offline
from kbeval_pipeline.progress import track
from kbeval_pipeline.project import Evaluation, LLMSettings
from kbeval_pipeline.resources.judges import open_judge
from kbeval_pipeline.resources.llm_usage import record_usage
from kbeval_pipeline.resources.llms import run
from kbeval_pipeline.resources.offline_vectors import OfflineVectors
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse


def judge_pairs(
    context: AssetExecutionContext,
    project: ProjectResource,
    warehouse: Warehouse,
    evaluation: Evaluation,
    settings: LLMSettings,
    pairs: pl.DataFrame,
    stage: str,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Judge pairs with one judge.

    Args:
        context: the asset's.
        project: the project.
        warehouse: where the usage is recorded.
        evaluation: whose limits hold.
        settings: the judge.
        pairs: what `judging.judged_pairs` returns.
        stage: `judging` or `calibration`.

    Returns:
        Rows of the table `relevance_judgments`, and the usage as metadata.
    """
    if settings.provider == "offline":
        vectors = OfflineVectors(project.project.data_dir / "indexes" / "vectors")
        return judge_offline(pairs, vectors.questions, vectors.passages), {}
    client = project.llm_client(settings, evaluation)
    spent: dict[str, Any] = {}
    try:
        judge = run(open_judge(client, pairs))
        distinct = pairs.select("question", "content_hash").n_unique()
        with track(stage, distinct, context.log) as advance:
            rows = run(judge_chunks(judge, pairs, advance))
    finally:
        spent = record_usage(
            warehouse,
            client.usage,
            stage=stage,
            model=settings.label,
            evaluation=context.partition_key,
            run_id=context.run.run_id,
        )
    return rows, spent
