"""Searching every question of a test set against a knowledge base, concurrently."""

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import polars as pl

from kbeval_pipeline.evaluation.hashing import content_hashes
from kbeval_pipeline.evaluation.ids import canonical_id
from kbeval_pipeline.resources.knowledge_bases.protocol import AsyncKnowledgeBase, Hit, KnowledgeBase
from kbeval_pipeline.tables import QUESTION_SEARCHES, RETRIEVED_CHUNKS

_LONGEST_CAUSE = 500


@dataclass(frozen=True)
class Retrieval:
    """What the searches returned.

    Attributes:
        searches: rows of the table `question_searches`, one for each distinct question.
        chunks: rows of the table `retrieved_chunks`.
    """

    searches: pl.DataFrame
    chunks: pl.DataFrame


@dataclass(frozen=True)
class _Outcome:
    question_id: str
    question: str
    seconds: float | None
    hits: list[Hit]
    error: str | None


def retrieve(
    knowledge_base: KnowledgeBase | AsyncKnowledgeBase,
    test_set: pl.DataFrame,
    *,
    top_k: int,
    on_done: Callable[[], None] = lambda: None,
) -> Retrieval:
    """Search each distinct question once.

    A question whose search raises, or answers with an unusable score or id, is recorded as failed
    with its cause; the others go on. The order of the result is the order of the test set, whatever
    the order of completion.

    Args:
        knowledge_base: what is searched; at most its `max_concurrency` searches run at once.
        test_set: rows of the table `test_set`.
        top_k: chunks to keep for a question.
        on_done: called after each search.

    Returns:
        The searches and their chunks.

    Raises:
        Exception: what the knowledge base raises where it cannot even tell its fingerprint.
    """
    fingerprint = knowledge_base.prepare()
    distinct = test_set.select("question_id", "question").unique("question_id", maintain_order=True)
    outcomes = asyncio.run(_search_all(knowledge_base, distinct.rows(), top_k, on_done))
    searches = QUESTION_SEARCHES.frame(
        [
            {
                "question_id": outcome.question_id,
                "question": outcome.question,
                "status": "failed" if outcome.error else "searched",
                "n_hits": len(outcome.hits),
                "query_seconds": outcome.seconds,
                "error": outcome.error,
                "kb_fingerprint": fingerprint,
            }
            for outcome in outcomes
        ]
    )
    return Retrieval(searches, _chunks(outcomes))


async def _search_all(
    knowledge_base: KnowledgeBase | AsyncKnowledgeBase,
    questions: list[tuple[str, str]],
    top_k: int,
    on_done: Callable[[], None],
) -> list[_Outcome]:
    outcomes: list[_Outcome | None] = [None] * len(questions)
    waiting: Iterator[tuple[int, tuple[str, str]]] = enumerate(questions)
    limit = min(knowledge_base.max_concurrency, len(questions)) or 1
    with ThreadPoolExecutor(limit, thread_name_prefix="search") as pool:

        async def worker() -> None:
            loop = asyncio.get_running_loop()
            for index, (question_id, question) in waiting:
                outcome: _Outcome
                if inspect.iscoroutinefunction(knowledge_base.search):
                    is_async = cast(AsyncKnowledgeBase, knowledge_base)
                    outcome = await _search_async(is_async, question_id, question, top_k)
                else:
                    is_sync = cast(KnowledgeBase, knowledge_base)
                    outcome = await loop.run_in_executor(
                        pool, _search_sync, is_sync, question_id, question, top_k
                    )
                outcomes[index] = outcome
                on_done()

        await asyncio.gather(*(worker() for _ in range(limit)))
    return [outcome for outcome in outcomes if outcome is not None]


def _search_sync(knowledge_base: KnowledgeBase, question_id: str, question: str, top_k: int) -> _Outcome:
    started = time.perf_counter()
    try:
        hits = knowledge_base.search(question, top_k)
        seconds = time.perf_counter() - started
        return _Outcome(question_id, question, seconds, _usable(hits, top_k), None)
    except Exception as error:
        return _failed(question_id, question, error)


async def _search_async(
    knowledge_base: AsyncKnowledgeBase, question_id: str, question: str, top_k: int
) -> _Outcome:
    started = time.perf_counter()
    try:
        hits = await knowledge_base.search(question, top_k)
        seconds = time.perf_counter() - started
        return _Outcome(question_id, question, seconds, _usable(hits, top_k), None)
    except Exception as error:
        return _failed(question_id, question, error)


def _failed(question_id: str, question: str, error: Exception) -> _Outcome:
    cause = f"{type(error).__name__}: {error}"
    return _Outcome(question_id, question, None, [], cause[:_LONGEST_CAUSE])


def _usable(hits: list[Hit], top_k: int) -> list[Hit]:
    kept = sorted(hits, key=lambda hit: hit.rank)[:top_k]
    if [hit.rank for hit in kept] != list(range(1, len(kept) + 1)):
        raise ValueError(f"ranks are not 1..{len(kept)}: {[hit.rank for hit in kept]}")
    for hit in kept:
        if not math.isfinite(hit.score):
            raise ValueError(f'chunk "{hit.chunk_id}" has the score {hit.score}')
        if canonical_id(hit.doc_id) is None:
            raise ValueError(f'chunk "{hit.chunk_id}" has no document id')
    return kept


def _chunks(outcomes: list[_Outcome]) -> pl.DataFrame:
    found = [(outcome.question_id, hit) for outcome in outcomes for hit in outcome.hits]
    frame = pl.DataFrame(
        {
            "question_id": [question_id for question_id, _ in found],
            "rank": [hit.rank for _, hit in found],
            "chunk_id": [hit.chunk_id for _, hit in found],
            "doc_id": [canonical_id(hit.doc_id) for _, hit in found],
            "content": [hit.content for _, hit in found],
            "score": [hit.score for _, hit in found],
        },
        schema={name: dtype for name, dtype in RETRIEVED_CHUNKS.schema.items() if name != "content_hash"},
    )
    distinct = frame.select("content").unique()
    hashed = distinct.with_columns(content_hashes(distinct["content"]).alias("content_hash"))
    return RETRIEVED_CHUNKS.conform(frame.join(hashed, on="content", how="left", maintain_order="left"))
