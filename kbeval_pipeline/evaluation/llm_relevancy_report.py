"""The `llm_relevancy` result of one run, from its searches and judgments."""

import json
from typing import Any

import polars as pl

from kbeval_pipeline.evaluation.relevancy_metrics import question_relevancy_metrics, relevancy_report


def llm_relevancy_questions(
    searches: pl.DataFrame, judgments: pl.DataFrame, *, top_k: int, relevance_threshold: float
) -> pl.DataFrame:
    """Compute the relevancy metrics of each question that was searched.

    Args:
        searches: rows of the table `question_searches`.
        judgments: rows of the table `relevance_judgments`.
        top_k: chunks judged for a question.
        relevance_threshold: score from which a chunk is relevant.

    Returns:
        `question_id, metric, k, value`.
    """
    searched = searches.filter(pl.col("status") == "searched")["question_id"]
    return question_relevancy_metrics(
        judgments.select("question_id", "rank", "score"),
        searched,
        top_k=top_k,
        relevance_threshold=relevance_threshold,
    )


def llm_relevancy_report(
    per_question: pl.DataFrame, searches: pl.DataFrame, judgments: pl.DataFrame
) -> dict[str, Any]:
    """Compute the metrics of the row of the table `llm_relevancy_metrics`.

    Args:
        per_question: what `llm_relevancy_questions` returned.
        searches: rows of the table `question_searches`.
        judgments: rows of the table `relevance_judgments`.

    Returns:
        The row as a mapping, without name, top_k and threshold.

    Raises:
        UserError: when there is no question at all.
    """
    failed = searches.filter(pl.col("status") == "failed").height
    metrics = relevancy_report(per_question, searches["query_seconds"], failed_searches=failed)
    judged_by = judgments.row(0, named=True) if judgments.height else {}
    return {
        "judge": judged_by.get("judge", ""),
        "method": judged_by.get("method", ""),
        "prompt_version": judged_by.get("prompt_version", ""),
        "avg_relevancy": metrics.avg_relevancy,
        "avg_relevance_score_by_k": json.dumps(metrics.avg_relevance_score_by_k),
        "avg_first_relevant_position": metrics.avg_first_relevant_position,
        "mean_mrr": metrics.mean_mrr,
        "hit_at_k": json.dumps(metrics.hit_at_k),
        "bin_precision_at_k": json.dumps(metrics.bin_precision_at_k),
        "avg_entropy": metrics.avg_entropy,
        "avg_ndcg": metrics.avg_ndcg,
        "judged_at_k": json.dumps(metrics.judged_at_k),
        "n_judgments": metrics.n_judgments,
        "n_failed_judgments": metrics.n_failed_judgments,
        "avg_query_time": metrics.avg_query_time,
        "n_questions": metrics.n_questions,
        "n_measured": metrics.n_measured,
        "n_failed": metrics.n_failed,
    }
