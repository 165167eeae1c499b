"""Several judges on the same chunks: the median counts, their disagreement is told."""

import polars as pl

from kbeval_pipeline.evaluation.agreement import panel
from kbeval_pipeline.tables import RELEVANCE_JUDGMENTS

METHOD = "panel"
_CHUNK = ["question_id", "rank", "chunk_id", "doc_id", "content_hash"]


def with_panel(judgments: pl.DataFrame) -> pl.DataFrame:
    """Add the verdict of the panel where there is more than one judge.

    Args:
        judgments: rows of the table `relevance_judgments`, of one or several judges.

    Returns:
        The rows; of several judges followed by one row for each chunk with method `panel`, the median of
        the scores there are, and the largest less the smallest of them.
    """
    names = judgments["judge"].unique().sort().to_list()
    if len(names) < 2:
        return judgments
    verdicts = panel(judgments.select(*_CHUNK, "judge", "score"))
    rows = verdicts.select(
        *_CHUNK,
        "score",
        "disagreement",
        status=pl.when(pl.col("score").is_null()).then(pl.lit("failed")).otherwise(pl.lit("judged")),
        error=pl.when(pl.col("score").is_null()).then(pl.lit("the judgments of all judges failed")),
        judge=pl.lit(" + ".join(names)),
        method=pl.lit(METHOD),
        prompt_version=pl.lit(" + ".join(judgments["prompt_version"].unique().sort())),
        stored=pl.lit(True),
    )
    return pl.concat([judgments, RELEVANCE_JUDGMENTS.conform(rows)])


def counted(judgments: pl.DataFrame) -> pl.DataFrame:
    """Keep the judgments that count: the panel's where one judged, else all.

    Args:
        judgments: rows of the table `relevance_judgments`.
    """
    verdicts = judgments.filter(pl.col("method") == METHOD)
    return judgments if verdicts.is_empty() else verdicts
