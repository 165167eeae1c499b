"""Scores of LangChain's stores: only those of which higher is better are used."""

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

from langchain_core.documents import Document as Chunk
from langchain_core.vectorstores import VectorStore

_SCORE_KEYS = ("score", "relevance_score")
_SCORED_METHODS = (
    "_select_relevance_score_fn",
    "_similarity_search_with_relevance_scores",
    "similarity_search_with_relevance_scores",
)


def gives_scores(store: VectorStore) -> bool:
    """Tell whether a vector store gives relevance scores, of which higher is better.

    Args:
        store: the store.

    Returns:
        False where it gives distances alone, or none for the distance that it is set to.
    """
    if all(getattr(type(store), name) is getattr(VectorStore, name) for name in _SCORED_METHODS):
        return False
    try:
        store._select_relevance_score_fn()
    except (NotImplementedError, ValueError):
        # A distance that it knows no score for; `NotImplementedError` where it computes scores otherwise.
        if type(store)._select_relevance_score_fn is not VectorStore._select_relevance_score_fn:
            return False
    # It warns of scores outside 0..1, for every question, with the texts of all chunks.
    warnings.filterwarnings("ignore", message="Relevance scores must be between 0 and 1")
    return True


def stored_score(chunk: Chunk) -> float | None:
    """Take the score that a retriever left in a chunk's metadata.

    Args:
        chunk: a chunk.

    Returns:
        The number, None where there is none.
    """
    for key in _SCORE_KEYS:
        value = chunk.metadata.get(key)
        if not isinstance(value, bool | str | None):
            try:
                return float(value)
            except (TypeError, ValueError):
                continue
    return None


def scores_fall(scores: Sequence[float | None]) -> bool:
    """Tell whether scores are numbers, best first; others are distances or mean something else.

    Args:
        scores: in the order of ranks.

    Returns:
        True where none is missing and none is above the one before.
    """
    known = [score for score in scores if score is not None and math.isfinite(score)]
    return len(known) == len(scores) and all(a >= b for a, b in pairwise(known))
