"""The result row: what `EVALUATE KNOWLEDGE_BASE` documents, built from the stored row."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from kbeval_pipeline.tables import EVALUATION_RESULTS

DOCUMENTED_COLUMNS: dict[str, tuple[str, ...]] = {
    "doc_id": (
        "total",
        "total_found",
        "retrieved_in_top_10",
        "cumulative_recall",
        "avg_query_time",
        "name",
        "created_at",
        "id",
    ),
    "llm_relevancy": (
        "avg_relevancy",
        "avg_relevance_score_by_k",
        "avg_first_relevant_position",
        "mean_mrr",
        "hit_at_k",
        "bin_precision_at_k",
        "avg_entropy",
        "avg_ndcg",
        "avg_query_time",
        "name",
        "created_at",
        "id",
    ),
}

_JSON_COLUMNS = {
    "cumulative_recall",
    "avg_relevance_score_by_k",
    "hit_at_k",
    "bin_precision_at_k",
}


def documented_row(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a stored result to exactly the documented columns.

    Args:
        stored: one row of the table `evaluation_results`, with its run stamp.

    Returns:
        The documented columns of its version; JSON columns as objects, `created_at` as a UTC
        timestamp, `id` the id of the run.
    """
    values = {**stored, "id": stored["run_id"]}
    return {
        name: json.loads(values[name]) if name in _JSON_COLUMNS else values[name]
        for name in DOCUMENTED_COLUMNS[stored["version"]]
    }


def saved_frame(stored: Mapping[str, Any]) -> pl.DataFrame:
    """Bring a stored result to the form in which `save_to` receives it.

    Args:
        stored: one row of the table `evaluation_results`, with its run stamp.

    Returns:
        One row with the documented columns; lists and objects as JSON text, `created_at` in UTC
        without a zone.
    """
    values = {**stored, "id": stored["run_id"], "created_at": stored["created_at"].replace(tzinfo=None)}
    empty = empty_saved_frame(stored["version"])
    return pl.DataFrame([{name: values[name] for name in empty.columns}], schema=empty.schema)


def empty_saved_frame(version: str) -> pl.DataFrame:
    """The columns and types that `save_to` will receive, without rows, to check the table beforehand.

    Args:
        version: `doc_id` or `llm_relevancy`.
    """
    types = {**EVALUATION_RESULTS.schema, "id": pl.String(), "created_at": pl.Datetime("us")}
    return pl.DataFrame(schema={name: types[name] for name in DOCUMENTED_COLUMNS[version]})
