"""The documented metrics of version `doc_id`: where the expected document stands among the chunks."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import with_canonical_ids


@dataclass(frozen=True)
class DocIdMetrics:
    """The result row of version `doc_id`.

    Attributes:
        total: rows of the test table whose search succeeded.
        total_found: rows whose document is among the chunks.
        retrieved_in_top_10: rows whose document is among the first 10 chunks.
        cumulative_recall: position, from "0", to the share of rows found at or above it.
        avg_query_time: mean duration of one search, seconds.
    """

    total: int
    total_found: int
    retrieved_in_top_10: int
    cumulative_recall: dict[str, float]
    avg_query_time: float


def first_positions(expected: pl.DataFrame, chunks: pl.DataFrame, top_k: int) -> pl.DataFrame:
    """Position of the expected document of every test row among the chunks of its question.

    Args:
        expected: `row_number`, `question_id`, `doc_id`: one row for each row of the test table.
        chunks: `question_id`, `rank` (from 1), `doc_id`: the retrieved chunks, in any order.
        top_k: number of chunks that count.

    Returns:
        `row_number, question_id, doc_id` in the order of `expected`, ids as canonical text, and `position`:
        rank of the document's first chunk, from 0; null where none is among the `top_k`.

    Raises:
        UserError: `top_k` is below 1.
    """
    _check_top_k(top_k)
    pair = ["question_id", "doc_id"]
    rows = with_canonical_ids(expected, *pair).select("row_number", "question_id", "doc_id").lazy()
    found = (
        with_canonical_ids(chunks, *pair)
        .lazy()
        .filter(pl.col("rank") <= top_k)
        .join(rows, on=pair, how="semi")
        .group_by(pair)
        .agg(position=pl.col("rank").min().cast(pl.Int64) - 1)
    )
    return rows.join(found, on=pair, how="left", maintain_order="left").collect()


def doc_id_metrics(positions: pl.Series | pl.DataFrame, query_seconds: pl.Series, top_k: int) -> DocIdMetrics:
    """Aggregate positions to the documented metrics.

    The formulas are MindsDB's, with its order of rounding: the shares of rows found at each position are
    rounded first and then added up, so that ten tenths give 0.9999999999999999 as they do there.

    Args:
        positions: position from 0 of every test row, null where not found; or a frame with that column,
            as `first_positions` returns it.
        query_seconds: duration of each search in seconds; nulls (searches without one) are left out.
        top_k: number of positions of `cumulative_recall`.

    Returns:
        The metrics over all rows given.

    Raises:
        UserError: there is no row, or `top_k` is below 1.
        ValueError: a position is negative, or no duration is given or one is not finite.
    """
    _check_top_k(top_k)
    column = positions["position"] if isinstance(positions, pl.DataFrame) else positions
    total = len(column)
    if total == 0:
        raise UserError("the test table has no rows")
    found = column.drop_nulls().cast(pl.Int64).to_numpy()
    seconds = query_seconds.drop_nulls().cast(pl.Float64).to_numpy()
    if (found < 0).any():
        raise ValueError("a position is negative")
    if len(seconds) == 0 or not np.isfinite(seconds).all():
        raise ValueError("query_seconds must hold at least one duration, all of them finite")
    shares = np.bincount(found[found < top_k], minlength=top_k) / total
    return DocIdMetrics(
        total=total,
        total_found=len(found),
        retrieved_in_top_10=int((found < 10).sum()),
        cumulative_recall={str(k): share for k, share in enumerate(np.cumsum(shares).tolist())},
        # cumsum adds one by one, as the reference does; a sum may add pairwise.
        avg_query_time=float(np.cumsum(seconds)[-1]) / len(seconds),
    )


def _check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise UserError(f"top_k must be at least 1, not {top_k}")
