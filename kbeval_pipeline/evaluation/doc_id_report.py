"""The `doc_id` result of one run, from its test set, searches and chunks."""

import json
from typing import Any

import polars as pl

from kbeval_pipeline.evaluation.doc_id_metrics import doc_id_metrics, first_positions
from kbeval_pipeline.evaluation.test_sets import expected_documents


def doc_id_report(
    test_set: pl.DataFrame, searches: pl.DataFrame, chunks: pl.DataFrame, *, name: str, top_k: int
) -> dict[str, Any]:
    """Compute the row of the table `doc_id_metrics`.

    Rows whose search failed are counted apart: they are neither found nor missed.

    Args:
        test_set: rows of the table `test_set`.
        searches: rows of the table `question_searches`.
        chunks: rows of the table `retrieved_chunks`.
        name: name of the knowledge base.
        top_k: chunks retrieved for a question.

    Returns:
        The row as a mapping.

    Raises:
        UserError: when no row could be measured.
    """
    expected = expected_documents(test_set)
    searched = searches.filter(pl.col("status") == "searched").select("question_id", "query_seconds")
    measured = expected.join(searched.select("question_id"), on="question_id", how="semi")
    asked = searched.join(expected.select("question_id"), on="question_id", how="semi")
    seconds = asked["query_seconds"]
    metrics = doc_id_metrics(first_positions(measured, chunks, top_k), seconds, top_k)
    return {
        "name": name,
        "top_k": top_k,
        "total": metrics.total,
        "total_found": metrics.total_found,
        "retrieved_in_top_10": metrics.retrieved_in_top_10,
        "cumulative_recall": json.dumps(metrics.cumulative_recall),
        "avg_query_time": metrics.avg_query_time,
        "query_time_p50": seconds.quantile(0.5, "linear"),
        "query_time_p95": seconds.quantile(0.95, "linear"),
        "query_time_max": seconds.max(),
        "n_questions": expected.height,
        "n_measured": measured.height,
        "n_failed": expected.height - measured.height,
    }
