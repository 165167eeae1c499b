"""User test tables: what is read, what is refused and how."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.test_sets import (
    expected_documents,
    qrels_of,
    read_test_table,
    test_set_version,
)
from kbeval_pipeline.tables import TEST_SET

version_of = test_set_version
version_of.__test__ = False  # type: ignore[attr-defined]


def read(frame: pl.DataFrame, *versions: str) -> pl.DataFrame:
    return read_test_table(frame, table="demo.questions", versions=versions or ("doc_id",))


def test_a_plain_table() -> None:
    rows = read(
        pl.DataFrame({"Question": ["a?", "b?", "a?"], "DOC_ID": [2, 7, 9], "topic": ["x", "y", None]})
    )
    assert rows.schema == TEST_SET.schema
    assert rows["row_number"].to_list() == [1, 2, 3]
    assert rows["doc_id"].to_list() == ["2", "7", "9"]
    assert rows["question_id"][0] == rows["question_id"][2] != rows["question_id"][1]
    assert rows["further_columns"].to_list() == ['{"topic":"x"}', '{"topic":"y"}', '{"topic":null}']
    assert set(rows["origin"]) == {"own"}


def test_text_ids_stay_text() -> None:
    assert read(pl.DataFrame({"question": ["a", "b"], "doc_id": ["007", "2.0"]}))["doc_id"].to_list() == [
        "007",
        "2.0",
    ]
    assert read(pl.DataFrame({"question": ["a"], "doc_id": [2.0]}))["doc_id"].to_list() == ["2"]


def test_grades_make_qrels_and_irrelevant_rows_are_not_expected() -> None:
    rows = read(pl.DataFrame({"question": ["a", "a", "b"], "doc_id": ["x", "y", "z"], "grade": [2, 0, 1]}))
    assert qrels_of(rows)["grade"].to_list() == [2.0, 0.0, 1.0]
    assert expected_documents(rows)["doc_id"].to_list() == ["x", "z"]
    ungraded = read(pl.DataFrame({"question": ["a"], "doc_id": ["x"]}))
    assert qrels_of(ungraded)["grade"].to_list() == [1.0]


def test_own_question_ids_are_kept() -> None:
    rows = read(pl.DataFrame({"question_id": [1, 2, 2], "question": ["a", "b", "b"], "doc_id": [1, 2, 3]}))
    assert rows["question_id"].to_list() == ["1", "2", "2"]


def test_llm_relevancy_needs_only_questions() -> None:
    rows = read(pl.DataFrame({"question": ["a"]}), "llm_relevancy")
    assert rows["doc_id"].to_list() == [None]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"question": ["a"], "document": ["x"]},
         "the test table demo.questions lacks the column doc_id; its columns are: question, document"),
        ({"doc_id": ["a"]}, "lacks the column question; its columns are: doc_id"),
        ({"question": [], "doc_id": []}, "the test table demo.questions has no rows"),
        ({"question": ["a", " ", None], "doc_id": [1, 2, 3]}, "a blank question in 2 of 3 rows: row 2, 3"),
        ({"question": ["a", "b"], "doc_id": [None, 2]}, "no doc_id in 1 of 2 rows: row 1"),
        ({"question": ["a"] * 20, "doc_id": [None] * 20}, "and 10 more"),
        ({"question": ["a"], "doc_id": ["x"], "grade": ["good"]}, "a grade that is not a number"),
        ({"question": ["a"], "doc_id": ["x"], "grade": [float("nan")]}, "a grade that is not a number"),
        ({"question": ["a", "b"], "doc_id": [1, 2], "question_id": ["q", "q"]}, "different questions: q"),
        ({"question": ["a"], "doc_id": ["x"], "Question": ["b"]}, 'two columns "question"'),
    ],
)  # fmt: skip
def test_refused_tables(frame: dict[str, list[object]], message: str) -> None:
    with pytest.raises(UserError) as raised:
        read(pl.DataFrame(frame))
    assert message in str(raised.value)


@given(st.permutations([("a", "1"), ("b", "2"), ("c", "3"), ("c", "1")]))
def test_the_version_ignores_the_order_of_rows(pairs: list[tuple[str, str]]) -> None:
    rows = read(pl.DataFrame(pairs, schema=["question", "doc_id"], orient="row"))
    straight = read(pl.DataFrame(sorted(pairs), schema=["question", "doc_id"], orient="row"))
    assert version_of(rows) == version_of(straight)


def test_the_version_follows_the_content() -> None:
    versions = {
        version_of(read(pl.DataFrame(frame)))
        for frame in (
            {"question": ["a"], "doc_id": ["1"]},
            {"question": ["a"], "doc_id": ["2"]},
            {"question": ["b"], "doc_id": ["1"]},
            {"question": ["a"], "doc_id": ["1"], "grade": [2]},
        )
    }
    assert len(versions) == 4
