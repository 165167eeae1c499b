"""Generating test data without a model: the draw, the questions, the account of what was left out."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.extractive_writer import write_questions
from kbeval_pipeline.evaluation.generation import draw_order, generate_test_set, source_documents

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


def test_questions_single_out_their_document() -> None:
    made = generate_test_set(CORPUS, write_questions, count=10, seed=0)
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
    first = generate_test_set(CORPUS, write_questions, count=10, seed=0).rows
    assert first.equals(generate_test_set(shuffled, write_questions, count=10, seed=0).rows)
    other = generate_test_set(CORPUS, write_questions, count=10, seed=1).rows
    assert set(first["doc_id"]) != set(other["doc_id"])


@given(st.integers(0, 29), st.integers(0, 5))
def test_a_removed_document_does_not_disturb_the_draw_of_the_others(removed: int, seed: int) -> None:
    without = CORPUS.filter(pl.col("doc_id") != f"d{removed}")
    whole = draw_order(CORPUS, seed).filter(pl.col("doc_id") != f"d{removed}")
    assert draw_order(without, seed)["doc_id"].to_list() == whole["doc_id"].to_list()


def test_more_than_the_source_holds_is_reported() -> None:
    made = generate_test_set(CORPUS, write_questions, count=40, seed=0)
    assert made.rows.height == 30
    assert made.counts.shortfall == 10


def test_blank_duplicate_and_unusable_rows_are_counted_and_replaced() -> None:
    odd = pl.DataFrame(
        {
            "doc_id": ["blank", "null", "copy", "short", None],
            "content": ["  ", None, CORPUS["content"][0], "Too short.", "No id but words enough to be used."],
        }
    )
    made = generate_test_set(pl.concat([CORPUS, odd]), write_questions, count=31, seed=0)
    assert made.counts.source_rows == 35
    assert made.counts.blank == 3
    assert made.counts.duplicates == 1
    assert made.counts.unusable == 1
    assert made.rows.height == 30


def test_repeated_and_quoting_questions_are_dropped_and_replaced() -> None:
    def writer(_: pl.DataFrame, drawn: pl.DataFrame) -> pl.DataFrame:
        same = pl.when(pl.col("doc_id").is_in(["d1", "d2", "d3"])).then(pl.lit("Same  question"))
        quoting = pl.when(pl.col("doc_id") == "d4").then(pl.col("content"))
        return drawn.select(
            "doc_id",
            question=pl.coalesce(same, quoting, pl.format("What is {}?", "doc_id")),
            answer=pl.lit("a"),
        )

    made = generate_test_set(CORPUS, writer, count=30, seed=0)
    assert made.counts.repeated == 2
    assert made.counts.quoting == 1
    assert made.rows.height == 27


def test_nothing_usable_is_an_error() -> None:
    with pytest.raises(UserError, match="no question could be generated"):
        generate_test_set(CORPUS.with_columns(content=pl.lit("")), write_questions, count=1, seed=0)


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
    made = generate_test_set(corpus, write_questions, count=2, seed=0)
    assert made.rows.height == 2


def test_source_columns() -> None:
    found = source_documents(pl.DataFrame({"ID": [2.0], "Content": ["text"]}), source="the query")
    assert found.row(0) == ("2", "text")
    with pytest.raises(UserError, match='the query returns no column "content", .*known: body, id'):
        source_documents(pl.DataFrame({"id": [1], "body": ["x"]}), source="the query")
