"""Generating test data without a model: the draw, the questions, the account of what was left out."""

import asyncio
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.extractive_writer import ExtractiveWriter
from kbeval_pipeline.evaluation.generation import (
    GeneratedTestSet,
    draw_order,
    generate_test_set,
    source_documents,
)
from kbeval_pipeline.evaluation.question_filters import QuestionFilters
from kbeval_pipeline.evaluation.question_writers import QuestionWriter, SkippedRow, WrittenQuestion

CORPUS = pl.DataFrame(
    {
        "doc_id": [f"d{number}" for number in range(30)],
        "content": [
            f"Document {number} begins like all the others do. "
            f"The rare marker zanzibar{number} stands beside quokka{number} in exactly this sentence."
            for number in range(30)
        ],
    }
)


Write = Callable[[str, str], WrittenQuestion | SkippedRow]


class Scripted:
    """A writer whose outcome is a function of the document; keeps what it was asked."""

    name = "scripted"

    def __init__(self, write: Write) -> None:
        self._write = write
        self.batches: list[list[str]] = []

    async def write(
        self, _corpus: pl.DataFrame, drawn: pl.DataFrame, /
    ) -> list[WrittenQuestion | SkippedRow]:
        self.batches.append(drawn["doc_id"].to_list())
        return [self._write(*row) for row in drawn.iter_rows()]


def generate(
    documents: pl.DataFrame,
    count: int,
    seed: int = 0,
    writer: QuestionWriter | None = None,
    filters: QuestionFilters | None = None,
    max_failure_rate: float = 0.2,
) -> GeneratedTestSet:
    return asyncio.run(
        generate_test_set(
            documents,
            writer or ExtractiveWriter(),
            count=count,
            seed=seed,
            filters=filters or QuestionFilters(),
            max_failure_rate=max_failure_rate,
        )
    )


def numbered(number: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "doc_id": [f"n{at}" for at in range(number)],
            "content": [f"The text of number {at} is about the matter {at}." for at in range(number)],
        }
    )


def asks_about(doc_id: str, _: str) -> WrittenQuestion:
    return WrittenQuestion(doc_id, f"What is {doc_id}?", "a")


def test_questions_single_out_their_document() -> None:
    made = generate(CORPUS, 10)
    assert made.rows.columns == ["text", "question", "answer", "doc_id"]
    assert made.rows.height == 10
    for row in made.rows.iter_rows(named=True):
        number = row["doc_id"].removeprefix("d")
        assert f"zanzibar{number}" in row["question"]
        assert row["answer"] in row["text"]
        assert row["question"].endswith("?")
    assert made.counts.shortfall == 0


def test_the_same_seed_gives_the_same_draw_and_another_seed_another() -> None:
    shuffled = CORPUS.sample(fraction=1.0, shuffle=True, seed=3)
    first = generate(CORPUS, 10).rows
    assert first.equals(generate(shuffled, 10).rows)
    other = generate(CORPUS, 10, seed=1).rows
    assert set(first["doc_id"]) != set(other["doc_id"])


@given(st.integers(0, 29), st.integers(0, 5))
def test_a_removed_document_does_not_disturb_the_draw_of_the_others(removed: int, seed: int) -> None:
    without = CORPUS.filter(pl.col("doc_id") != f"d{removed}")
    whole = draw_order(CORPUS, seed).filter(pl.col("doc_id") != f"d{removed}")
    assert draw_order(without, seed)["doc_id"].to_list() == whole["doc_id"].to_list()


def test_more_than_the_source_holds_is_reported() -> None:
    made = generate(CORPUS, 40)
    assert made.rows.height == 30
    assert made.counts.shortfall == 10


def test_blank_duplicate_and_unusable_rows_are_counted_and_replaced() -> None:
    odd = pl.DataFrame(
        {
            "doc_id": ["blank", "null", "copy", "short", None],
            "content": ["  ", None, CORPUS["content"][0], "Too short.", "No id but words enough to be used."],
        }
    )
    made = generate(pl.concat([CORPUS, odd]), 31)
    assert made.counts.source_rows == 35
    assert made.counts.blank == 3
    assert made.counts.duplicates == 1
    assert made.counts.unusable == 1
    assert made.skipped.rows() == [("short", "no sentence of 5 to 60 words")]
    assert made.rows.height == 30


def odd_questions(doc_id: str, content: str) -> WrittenQuestion:
    odd = {"d4": content, "d5": "Welches Tier steht neben der Markierung und warum?"}
    same = dict.fromkeys(("d1", "d2", "d3"), "Same  question")
    return WrittenQuestion(doc_id, {**odd, **same}.get(doc_id, f"What is {doc_id}?"), "a")


def test_filtered_questions_are_counted_and_replaced() -> None:
    corpus = CORPUS.with_columns(content=pl.col("content") + " It is the one that was made for this.")
    made = generate(corpus, 30, writer=Scripted(odd_questions))
    assert made.counts.repeated == 2
    assert made.counts.quoting == 1
    assert made.counts.other_language == 1
    assert made.rows.height == 26
    assert made.skipped.is_empty()
    assert made.skipped.schema == {"doc_id": pl.String, "cause": pl.String}
    first_of_same = next(doc for doc in draw_order(corpus, 0)["doc_id"] if doc in {"d1", "d2", "d3"})
    assert made.rows.filter(question="Same  question")["doc_id"].to_list() == [first_of_same]


@pytest.mark.parametrize("off", ["near_duplicates", "quoting", "language"])
def test_each_filter_can_be_switched_off(off: str) -> None:
    corpus = CORPUS.with_columns(content=pl.col("content") + " It is the one that was made for this.")
    counts = generate(
        corpus, 30, writer=Scripted(odd_questions), filters=QuestionFilters(**{off: False})
    ).counts
    found = {"near_duplicates": counts.repeated, "quoting": counts.quoting, "language": counts.other_language}
    expected = {"near_duplicates": 2, "quoting": 1, "language": 1, off: 0}
    assert found == expected


def test_no_more_documents_are_asked_than_needed_and_batches_grow() -> None:
    writer = Scripted(
        lambda doc, text: WrittenQuestion(doc, "Same?", "a") if doc.endswith("7") else asks_about(doc, text)
    )
    made = generate(numbered(500), 300, writer=writer)
    assert made.rows.height == 300
    assert [len(batch) for batch in writer.batches[:3]] == [32, 64, 192]
    asked = [doc for batch in writer.batches for doc in batch]
    assert asked == draw_order(numbered(500), 0)["doc_id"].to_list()[: len(asked)]
    assert made.counts.asked == len(asked) == 300 + made.counts.repeated
    assert made.rows["doc_id"][-1] == asked[-1]


def test_too_many_failures_end_the_generation_with_counts_and_causes() -> None:
    writer = Scripted(lambda doc, _: SkippedRow(doc, "no reply" if int(doc[1:]) % 3 else "timed out"))
    with pytest.raises(
        UserError, match=r"10 of the first 10 documents failed.*max_failure_rate 0.2.*no reply \("
    ):
        generate(numbered(500), 300, writer=writer)
    assert [len(batch) for batch in writer.batches] == [32]


@pytest.mark.parametrize(("failing", "fails"), [(2, False), (3, True)])
def test_the_failure_rate_counts_from_ten_documents_on(failing: int, fails: bool) -> None:
    bad = draw_order(numbered(40), 0)["doc_id"].to_list()[:failing]
    writer = Scripted(lambda doc, text: SkippedRow(doc, "bad") if doc in bad else asks_about(doc, text))
    if fails:
        with pytest.raises(UserError, match="3 of the first 10"):
            generate(numbered(40), 20, writer=writer)
    else:
        made = generate(numbered(40), 20, writer=writer)
        assert (made.rows.height, made.counts.unusable, made.counts.asked) == (20, 2, 22)
        assert made.skipped.rows() == [(doc, "bad") for doc in bad]


def test_few_failures_and_unfit_or_filtered_documents_do_not_count() -> None:
    few = Scripted(lambda doc, text: asks_about(doc, text) if doc == "n0" else SkippedRow(doc, "bad"))
    assert generate(numbered(9), 9, writer=few).counts.unusable == 8
    unfit = Scripted(
        lambda doc, text: asks_about(doc, text) if doc == "n0" else SkippedRow(doc, "unfit", failed=False)
    )
    assert generate(numbered(50), 50, writer=unfit, max_failure_rate=0).rows.height == 1
    same = Scripted(lambda doc, _: WrittenQuestion(doc, "Same?", "a"))
    assert generate(numbered(50), 50, writer=same, max_failure_rate=0).counts.repeated == 49


def test_the_message_of_nothing_usable_names_the_causes() -> None:
    with pytest.raises(
        UserError, match=r"no question could be generated.*most frequent causes: bad \(3 times\)"
    ):
        generate(numbered(3), 3, writer=Scripted(lambda doc, _: SkippedRow(doc, "bad")))


def test_nothing_usable_is_an_error() -> None:
    with pytest.raises(UserError, match="no question could be generated"):
        generate(CORPUS.with_columns(content=pl.lit("")), 1)


def test_chinese_text_gives_questions() -> None:
    corpus = pl.DataFrame(
        {
            "doc_id": ["1", "2"],
            "content": [
                "黑豹队的防守只丢了三百零八分。他们在联赛中排名第六位。",
                "冰川是由压实的雪形成的缓慢移动的冰体。它们覆盖了很多山脉。",
            ],
        }
    )
    made = generate(corpus, 2)
    assert made.rows.height == 2


def test_source_columns() -> None:
    found = source_documents(pl.DataFrame({"ID": [2.0], "Content": ["text"]}), source="the query")
    assert found.row(0) == ("2", "text")
    with pytest.raises(UserError, match='the query returns no column "content", .*known: body, id'):
        source_documents(pl.DataFrame({"id": [1], "body": ["x"]}), source="the query")
