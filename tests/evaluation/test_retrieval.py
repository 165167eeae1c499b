"""Searching a test set: order, faults, concurrency and unusable answers."""

import asyncio
import threading
import time
from collections.abc import Iterator

import polars as pl
import pytest

from kbeval_pipeline.evaluation.retrieval import retrieve
from kbeval_pipeline.evaluation.test_sets import read_test_table
from kbeval_pipeline.resources.knowledge_bases import Document, Hit, SkippedDocument
from kbeval_pipeline.tables import QUESTION_SEARCHES, RETRIEVED_CHUNKS


class Base:
    """A knowledge base whose answers are given by a function."""

    name = "fake"
    max_concurrency = 4

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.in_flight = self.peak = 0
        self._lock = threading.Lock()

    def search(self, question: str, k: int) -> list[Hit]:
        with self._lock:
            self.calls.append(question)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            time.sleep(0.002 * (len(question) % 3))
            return self.answer(question, k)
        finally:
            with self._lock:
                self.in_flight -= 1

    def answer(self, question: str, k: int) -> list[Hit]:
        if question == "none":
            return []
        if question == "down":
            raise ConnectionError("the store is down")
        return [Hit(r, f"{question}#{r}", f"d{r}", f"text {question} {r}", 1 / r) for r in range(1, k + 1)]

    def documents(self) -> Iterator[Document]:
        yield from ()

    def fingerprint(self) -> str:
        return "f1"

    def prepare(self) -> str:
        return self.fingerprint()

    def skipped_documents(self) -> list[SkippedDocument]:
        return []


class AsyncBase(Base):
    """The same, as a coroutine."""

    async def search(self, question: str, k: int) -> list[Hit]:  # type: ignore[override]
        self.calls.append(question)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(0.002 * (len(question) % 3))
            return self.answer(question, k)
        finally:
            self.in_flight -= 1


def test_set_of(*questions: str) -> pl.DataFrame:
    frame = pl.DataFrame({"question": questions, "doc_id": ["d1"] * len(questions)})
    return read_test_table(frame, table="t.t", versions=["doc_id"])


test_set_of.__test__ = False  # type: ignore[attr-defined]

MIXED = ("one", "down", "none", "three", "one", "fourteen", "a", "bb")


@pytest.mark.parametrize("kind", [Base, AsyncBase])
def test_order_faults_and_repeats(kind: type[Base]) -> None:
    base = kind()
    done = []
    found = retrieve(base, test_set_of(*MIXED), top_k=3, on_done=lambda: done.append(1))
    assert found.searches.schema == QUESTION_SEARCHES.schema
    assert found.chunks.schema == RETRIEVED_CHUNKS.schema
    assert found.searches["question"].to_list() == list(dict.fromkeys(MIXED))
    assert sorted(base.calls) == sorted(set(MIXED))
    assert len(done) == len(set(MIXED))
    by_question = {row["question"]: row for row in found.searches.iter_rows(named=True)}
    assert by_question["down"]["status"] == "failed"
    assert by_question["down"]["error"] == "ConnectionError: the store is down"
    assert by_question["down"]["query_seconds"] is None
    assert by_question["none"]["status"] == "searched"
    assert by_question["none"]["n_hits"] == 0
    assert by_question["one"]["n_hits"] == 3
    assert found.chunks["rank"].to_list() == [1, 2, 3] * 5
    assert set(found.searches["kb_fingerprint"]) == {"f1"}


def test_sync_and_async_give_the_same_rows() -> None:
    questions = test_set_of(*MIXED)
    first, second = (retrieve(kind(), questions, top_k=5) for kind in (Base, AsyncBase))
    assert first.chunks.equals(second.chunks)
    assert first.searches.drop("query_seconds").equals(second.searches.drop("query_seconds"))


@pytest.mark.parametrize("kind", [Base, AsyncBase])
def test_concurrency_stays_under_the_limit(kind: type[Base]) -> None:
    base = kind()
    retrieve(base, test_set_of(*(f"question {'x' * n}" for n in range(40))), top_k=1)
    assert 2 <= base.peak <= 4


@pytest.mark.parametrize(
    ("hits", "cause"),
    [
        ([Hit(1, "c", "d", "t", float("nan"))], 'chunk "c" has the score nan'),
        ([Hit(1, "c", "d", "t", float("inf"))], 'chunk "c" has the score inf'),
        ([Hit(2, "c", "d", "t", 1.0)], "ranks are not 1..1"),
        ([Hit(1, "c", "d", "t", 1.0), Hit(1, "e", "d", "t", 1.0)], "ranks are not 1..2"),
        ([Hit(1, "c", None, "t", 1.0)], 'chunk "c" has no document id'),  # type: ignore[arg-type]
    ],
)
def test_unusable_answers_fail_only_their_question(hits: list[Hit], cause: str) -> None:
    class Odd(Base):
        def answer(self, question: str, k: int) -> list[Hit]:
            return hits if question == "odd" else super().answer(question, k)

    found = retrieve(Odd(), test_set_of("odd", "one"), top_k=2)
    assert found.searches["status"].to_list() == ["failed", "searched"]
    assert cause in found.searches["error"][0]


def test_more_than_top_k_is_cut_and_ids_are_canonical() -> None:
    class Numbers(Base):
        def answer(self, question: str, k: int) -> list[Hit]:
            return [Hit(r, "c", 2.0, "same text", 1.0) for r in range(1, 9)]  # type: ignore[arg-type]

    found = retrieve(Numbers(), test_set_of("q"), top_k=3)
    assert found.chunks["doc_id"].to_list() == ["2"] * 3
    assert found.chunks["content_hash"].n_unique() == 1
