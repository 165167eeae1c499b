"""Exact search over vectors."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from kbeval_pipeline.resources.knowledge_bases.embeddings import Vectors

# Equal vectors may differ in the last bits of their products, by where they stand in the matrix.
_SCORE_DECIMALS = 6


class VectorIndex:
    """Vectors of all chunks, mapped from a file; safe to use from several threads.

    Args:
        path: a `.npy` file, one row of length 1 for each chunk.
    """

    def __init__(self, path: Path) -> None:
        self._vectors: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)

    def search(self, question: Vectors, k: int) -> list[tuple[int, float]]:
        """Rank chunks by cosine.

        Args:
            question: a vector of length 1.
            k: the most chunks to return.

        Returns:
            Rows and cosines, best first, equal ones in the order of rows.
        """
        scores = np.asarray(self._vectors @ question, dtype=np.float64).round(_SCORE_DECIMALS)
        return top(scores, k)


def top(scores: npt.NDArray[np.float64], k: int) -> list[tuple[int, float]]:
    """Take the `k` highest scores; equal ones in the order of rows, at the cut as well.

    Args:
        scores: one for each row.
        k: how many.

    Returns:
        Rows and scores, best first.
    """
    rows = np.arange(len(scores))
    if k < len(scores):
        lowest = -np.partition(-scores, k - 1)[k - 1]
        above = np.flatnonzero(scores > lowest)
        rows = np.concatenate([above, np.flatnonzero(scores == lowest)[: k - len(above)]])
    ordered = rows[np.lexsort((rows, -scores[rows]))]
    return [(int(row), float(scores[row])) for row in ordered]
