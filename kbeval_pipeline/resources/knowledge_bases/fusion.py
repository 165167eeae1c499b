"""Weighted reciprocal-rank fusion."""

from collections.abc import Iterable, Sequence

_RANK_CONSTANT = 60


def fuse(rankings: Iterable[tuple[float, Sequence[int]]]) -> list[tuple[int, float]]:
    """Merge rankings: a row scores the sum of weight / (60 + rank) over the rankings that hold it.

    Args:
        rankings: weight and rows, best first.

    Returns:
        Rows and scores, best first, equal scores in the order of rows.
    """
    scores: dict[int, float] = {}
    for weight, rows in rankings:
        for rank, row in enumerate(rows, start=1):
            scores[row] = scores.get(row, 0.0) + weight / (_RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
