"""Judging: every retrieved chunk graded for its question."""

from typing import Any

import polars as pl
from dagster import AssetExecutionContext, Output, asset

from kbeval_pipeline.assets.metadata import markdown_table, table_metadata
from kbeval_pipeline.assets.stage import readable_failures
from kbeval_pipeline.evaluation.judging import judge_chunks, judged_pairs
from kbeval_pipeline.evaluation.offline_judge import judge_offline
from kbeval_pipeline.progress import track
from kbeval_pipeline.resources.judges import open_judge
from kbeval_pipeline.resources.llm_usage import record_usage
from kbeval_pipeline.resources.llms import run
from kbeval_pipeline.resources.offline_vectors import OfflineVectors
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.tables import RELEVANCE_JUDGMENTS


@asset(
    group_name="judging",
    kinds={"polars", "duckdb"},
    description=RELEVANCE_JUDGMENTS.description,
    metadata=table_metadata(RELEVANCE_JUDGMENTS),
)
@readable_failures
def relevance_judgments(
    context: AssetExecutionContext,
    project: ProjectResource,
    warehouse: Warehouse,
    question_searches: pl.DataFrame,
    retrieved_chunks: pl.DataFrame,
) -> Output[pl.DataFrame]:
    """Judge the retrieved chunks; no row where the evaluation lacks version `llm_relevancy`."""
    evaluation = project.evaluation(context.partition_key)
    if "llm_relevancy" not in evaluation.version:
        note = {"note": "the evaluation has no version llm_relevancy"}
        return Output(RELEVANCE_JUDGMENTS.frame(), metadata=note)
    pairs = judged_pairs(question_searches, retrieved_chunks, evaluation.judging_depth)
    spent: dict[str, Any] = {}
    if project.llm(evaluation).provider == "offline":
        vectors = OfflineVectors(project.project.data_dir / "indexes" / "vectors")
        rows = judge_offline(pairs, vectors.questions, vectors.passages)
    else:
        client = project.llm_client(evaluation)
        distinct = pairs.select("question", "content_hash").n_unique()
        try:
            judge = run(open_judge(client, pairs))
            with track("judging", distinct, context.log) as advance:
                rows = run(judge_chunks(judge, pairs, advance))
        finally:
            spent = record_usage(
                warehouse,
                client.usage,
                stage="judging",
                model=f"{client.settings.provider}/{client.settings.model_name}",
                evaluation=context.partition_key,
                run_id=context.run.run_id,
            )
    failed = rows.filter(pl.col("status") == "failed")
    scores = rows["score"].drop_nulls().to_numpy()
    return Output(
        rows,
        metadata={
            "judge": rows["judge"][0] if rows.height else "",
            "method": rows["method"][0] if rows.height else "",
            "prompt_version": rows["prompt_version"][0] if rows.height else "",
            "failed": failed.height,
            "score_mean": float(scores.mean()) if len(scores) else 0.0,
            "failures": markdown_table(failed.select("question_id", "rank", "error")),
            "sample": markdown_table(rows.select("question_id", "rank", "doc_id", "score", "reason")),
            **spent,
        },
    )
