"""Judging: every retrieved chunk graded for its question, by one judge or a panel."""

from typing import Any

import polars as pl
from dagster import AssetExecutionContext, Output

from kbeval_pipeline.assets.judge_work import judge_pairs
from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.assets.stage import table_asset
from kbeval_pipeline.evaluation.judging import judged_pairs
from kbeval_pipeline.evaluation.panels import counted, with_panel
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.tables import RELEVANCE_JUDGMENTS


@table_asset(RELEVANCE_JUDGMENTS, "judging")
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
    by_judge: list[pl.DataFrame] = []
    spent: dict[str, Any] = {}
    judges = project.judges(evaluation)
    for number, settings in enumerate(judges, start=1):
        rows, usage = judge_pairs(context, project, warehouse, evaluation, settings, pairs, "judging")
        by_judge.append(rows)
        prefix = f"judge {number}/" if len(judges) > 1 else ""
        spent.update({f"{prefix}{name}": value for name, value in usage.items()})
    judgments = with_panel(pl.concat(by_judge))
    counting = counted(judgments)
    failed = counting.filter(pl.col("status") == "failed")
    scores = counting["score"].drop_nulls().to_numpy()
    return Output(
        judgments,
        metadata={
            "judge": counting["judge"][0] if counting.height else "",
            "method": counting["method"][0] if counting.height else "",
            "prompt_version": counting["prompt_version"][0] if counting.height else "",
            "failed": failed.height,
            "score_mean": float(scores.mean()) if len(scores) else 0.0,
            "failures": markdown_table(failed.select("question_id", "rank", "error")),
            "sample": markdown_table(counting.select("question_id", "rank", "doc_id", "score", "reason")),
            **spent,
        },
    )
