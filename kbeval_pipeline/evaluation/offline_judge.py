"""The offline judge: the cosine of question and passage, no language model."""

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval_pipeline.evaluation.judging import Judgment, judgment_rows

NAME = "offline"
METHOD = "cosine"
VERSION = "offline-cosine-1"

Vectors = NDArray[np.float32]


def judge_offline(
    pairs: pl.DataFrame,
    embed_questions: Callable[[list[str]], Vectors],
    embed_passages: Callable[[list[str], list[str]], Vectors],
) -> pl.DataFrame:
    """Judge each chunk by the cosine of its text and the question, cut at 0.

    Circular where the knowledge base ranks by the same vectors.

    Args:
        pairs: what `judged_pairs` returned.
        embed_questions: unit vectors of texts.
        embed_passages: unit vectors of texts, given their hashes and texts.

    Returns:
        Rows of the table `relevance_judgments`.
    """
    distinct = pairs.select("question", "content_hash", "content").unique(
        ["question", "content_hash"], maintain_order=True
    )
    questions = distinct["question"].unique(maintain_order=True)
    passages = distinct.unique("content_hash", maintain_order=True)
    if distinct.is_empty():
        scores: list[float] = []
    else:
        question_vectors = embed_questions(questions.to_list())
        passage_vectors = embed_passages(passages["content_hash"].to_list(), passages["content"].to_list())
        rows = distinct.join(
            questions.to_frame().with_row_index("q"), on="question", maintain_order="left"
        ).join(passages.select("content_hash").with_row_index("p"), on="content_hash", maintain_order="left")
        left = question_vectors[rows["q"].to_numpy()].astype(np.float64)
        right = passage_vectors[rows["p"].to_numpy()].astype(np.float64)
        scores = np.clip(np.round((left * right).sum(axis=1), 6), 0.0, 1.0).tolist()
    return judgment_rows(
        pairs,
        distinct.select("question", "content_hash"),
        [Judgment(score, stored=True) for score in scores],
        judge_name=NAME,
        method=METHOD,
        prompt_version=VERSION,
    )
