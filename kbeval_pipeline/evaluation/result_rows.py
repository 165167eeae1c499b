"""The result row: what `EVALUATE KNOWLEDGE_BASE` documents, built from the stored row."""

import json
from collections.abc import Mapping, Sequence
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


def saved_frame(stored: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Bring the results of a run to the form in which `save_to` receives them.

    Args:
        stored: rows of the table `evaluation_results`, with their run stamp, one for each version.

    Returns:
        One row for each version with its documented columns, null in those of the other version; lists and
        objects as JSON text, `created_at` in UTC without a zone.
    """
    empty = empty_saved_frame([row["version"] for row in stored])
    rows = []
    for row in stored:
        values = {**row, "id": row["run_id"], "created_at": row["created_at"].replace(tzinfo=None)}
        rows.append({name: values[name] for name in DOCUMENTED_COLUMNS[row["version"]]})
    return pl.DataFrame(rows, schema=empty.schema)


def empty_saved_frame(versions: Sequence[str]) -> pl.DataFrame:
    """The columns and types that `save_to` will receive, without rows, to check the table beforehand.

    Args:
        versions: `doc_id`, `llm_relevancy` or both.
    """
    types = {**EVALUATION_RESULTS.schema, "id": pl.String(), "created_at": pl.Datetime("us")}
    names = dict.fromkeys(name for version in versions for name in DOCUMENTED_COLUMNS[version])
    return pl.DataFrame(schema={name: types[name] for name in names})
