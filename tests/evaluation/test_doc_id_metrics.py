import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.doc_id_metrics import doc_id_metrics, first_positions

ORACLE = Path(__file__).parents[1] / "oracles" / "mindsdb_metrics.json"
CASES = json.loads(ORACLE.read_text(encoding="utf-8"))["doc_id_metrics"]


def series(values: list[Any]) -> pl.Series:
    return pl.Series("position", values, dtype=pl.Int64)


@pytest.mark.parametrize("case", [c for c in CASES if "output" in c], ids=lambda case: case["name"])
def test_bit_identical_to_mindsdb(case: dict[str, Any]) -> None:
    metrics = doc_id_metrics(series(case["positions"]), pl.Series(case["query_times"]), 20)
    expected = case["output"]
    assert metrics.total == expected["total"]
    assert metrics.total_found == expected["total_found"]
    assert metrics.retrieved_in_top_10 == expected["retrieved_in_top_10"]
    assert metrics.avg_query_time == expected["avg_query_time"]
    assert json.dumps(metrics.cumulative_recall) == expected["cumulative_recall"]


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(0, 7), min_size=1), st.integers(1, 8))
def test_agrees_with_counting_one_by_one(positions: list[int | None], top_k: int) -> None:
    metrics = doc_id_metrics(series(positions), pl.Series([0.5]), top_k)
    running, expected = 0.0, {}
    for k in range(top_k):
        running += positions.count(k) / len(positions)
        expected[str(k)] = running
    assert metrics.cumulative_recall == expected
    assert metrics.total_found == sum(p is not None for p in positions)


def test_no_rows_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UserError, match="the test table has no rows"):
        doc_id_metrics(series([]), pl.Series([], dtype=pl.Float64), 20)


def test_searches_without_duration_are_left_out() -> None:
    assert doc_id_metrics(series([0, 1]), pl.Series([0.5, None, 1.5]), 2).avg_query_time == 1.0


@pytest.mark.parametrize("seconds", [[], [None], [float("nan")]])
def test_durations_are_needed(seconds: list[float | None]) -> None:
    with pytest.raises(ValueError, match="query_seconds"):
        doc_id_metrics(series([0]), pl.Series(seconds, dtype=pl.Float64), 1)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        doc_id_metrics(series([-1]), pl.Series([0.5]), 1)


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_out_of_range(top_k: int) -> None:
    with pytest.raises(UserError, match="top_k"):
        doc_id_metrics(series([0]), pl.Series([0.5]), top_k)


def expected_rows(*rows: tuple[object, object]) -> pl.DataFrame:
    questions, documents = zip(*rows, strict=True)
    return pl.DataFrame(
        {
            "row_number": range(1, len(rows) + 1),
            "question_id": list(questions),
            "doc_id": list(documents),
        }
    )


CHUNKS = pl.DataFrame(
    [("q1", 3, "a"), ("q1", 1, "b"), ("q1", 2, "a"), ("q2", 1, "2"), ("q2", 2, "02"), ("q1", 4, "c")],
    schema=["question_id", "rank", "doc_id"],
    orient="row",
)


def test_position_is_that_of_the_first_chunk() -> None:
    expected = expected_rows(("q2", "02"), ("q1", "a"), ("q1", "zz"), ("q1", "a"), ("q3", "a"))
    positions = first_positions(expected, CHUNKS, 20)
    assert positions.columns == ["row_number", "question_id", "doc_id", "position"]
    assert positions["row_number"].to_list() == [1, 2, 3, 4, 5]
    assert positions["position"].to_list() == [1, 1, None, 1, None]
    assert positions["position"].dtype == pl.Int64


def test_rows_stay_in_their_order() -> None:
    chunks = pl.DataFrame({"question_id": ["q"] * 500, "rank": range(1, 501), "doc_id": range(500)})
    expected = expected_rows(*(("q", document) for document in range(499, -1, -1)))
    positions = first_positions(expected, chunks, 500)
    assert positions["row_number"].to_list() == list(range(1, 501))
    assert positions["position"].to_list() == list(range(499, -1, -1))


def test_chunks_beyond_top_k_do_not_count() -> None:
    assert first_positions(expected_rows(("q1", "c")), CHUNKS, 3)["position"].to_list() == [None]
    assert first_positions(expected_rows(("q1", "c")), CHUNKS, 4)["position"].to_list() == [3]


@pytest.mark.parametrize(("doc_id", "position"), [(2, 0), (2.0, 0), ("2", 0), ("02", 1), ("2.0", None)])
def test_ids_are_compared_as_canonical_text(doc_id: object, position: int | None) -> None:
    assert first_positions(expected_rows(("q2", doc_id)), CHUNKS, 20)["position"].to_list() == [position]


def test_a_null_id_is_never_found() -> None:
    chunks = pl.DataFrame({"question_id": ["q"], "rank": [1], "doc_id": [None]})
    assert first_positions(expected_rows(("q", None)), chunks, 20)["position"].to_list() == [None]


def test_metrics_take_the_frame_of_positions() -> None:
    positions = first_positions(expected_rows(("q1", "b"), ("q1", "c")), CHUNKS, 2)
    metrics = doc_id_metrics(positions, pl.Series([0.25]), 2)
    assert metrics.cumulative_recall == {"0": 0.5, "1": 0.5}
    assert metrics.total_found == 1
