import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ranking_metrics import summarise
from kbeval_pipeline.evaluation.relevancy_metrics import (
    CUT_METRICS,
    METRICS,
    QUESTION_METRICS,
    RelevancyMetrics,
    question_relevancy_metrics,
    relevancy_report,
)

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles" / "mindsdb_metrics.json").read_text(encoding="utf-8")
)
CASES = {case["name"]: case for case in ORACLE["llm_relevancy_metrics"]}

Scores = list[list[float | None]]


def ids_of(scores: Scores) -> pl.Series:
    return pl.Series("question_id", [f"q{i:03}" for i in range(len(scores))], dtype=pl.String)


def judged_of(scores: Scores) -> pl.DataFrame:
    rows = [(f"q{i:03}", rank, s) for i, question in enumerate(scores) for rank, s in enumerate(question, 1)]
    schema = {"question_id": pl.String, "rank": pl.Int64, "score": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def per_question(scores: Scores, top_k: int = 100, threshold: float = 0.5) -> pl.DataFrame:
    return question_relevancy_metrics(
        judged_of(scores), ids_of(scores), top_k=top_k, relevance_threshold=threshold
    )


def report(scores: Scores, seconds: list[float | None] | None = None, top_k: int = 100) -> RelevancyMetrics:
    times = pl.Series(seconds or [], dtype=pl.Float64)
    return relevancy_report(per_question(scores, top_k), times)


def values_of(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for question, metric, k, value in frame.iter_rows():
        result.setdefault(question, {})[metric if k is None else f"{metric}@{k}"] = value
    return result


def documented(metrics: RelevancyMetrics, expected: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asdict(metrics).items() if name in expected}


# Cases whose reference value is not what section 5 defines: ours, and why.
ZERO_RESULTS = "a question without results counts 0 in every mean; the reference leaves it out of these"
UNEVEN = "the lists have the length of the longest question; the reference cuts them to the shortest"
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "empty_and_nonempty": (
        ZERO_RESULTS,
        {
            "mean_mrr": 0.5,
            "hit_at_k": [0.5, 0.5],
            "bin_precision_at_k": [0.5, 0.25],
            "avg_entropy": 0.6365141682948128 / 2,
            "avg_ndcg": 0.5,
        },
    ),
    "empty_first_last": (
        ZERO_RESULTS,
        {
            "mean_mrr": 1 / 3,
            "hit_at_k": [0.33, 0.33],
            "bin_precision_at_k": [0.33, 0.17],
            "avg_entropy": 0.6365141682948128 / 3,
            "avg_ndcg": 1 / 3,
        },
    ),
    "uneven_lengths_3_1_2": (
        UNEVEN,
        {
            # (.9+.6+.4)/3, (.8+.3)/2 of the questions that have rank 2, .7 of the one that has rank 3.
            "avg_relevance_score_by_k": [0.63, 0.55, 0.7],
            "hit_at_k": [0.67, 0.67, 0.67],
            # Ranks beyond n are not relevant: (1+.5+0)/3 and (1+1/3+0)/3.
            "bin_precision_at_k": [0.67, 0.5, 0.44],
        },
    ),
}
REFUSED = {
    "no_queries": ("a test table without rows is a mistake of the user, not a ZeroDivisionError", "no rows"),
    "negative_scores_binary_method": (
        "a score is from 0 to 1; these came from the reference's inverted binary method",
        "from 0 to 1",
    ),
    "nan_score": ("no average is computed from what is no number; a failed judgment is null", "from 0 to 1"),
}


def decoded(scores: list[list[Any]]) -> Scores:
    return [[float(s["__float__"]) if isinstance(s, dict) else s for s in row] for row in scores]


def test_every_case_of_mindsdb_is_one_of_these() -> None:
    assert set(OURS) | set(REFUSED) <= set(CASES)
    assert len(CASES) == 22


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_bit_identical_to_mindsdb(name: str) -> None:
    case = CASES[name]
    _, ours = OURS.get(name, ("", {}))
    expected = case["output"] | ours
    got = documented(report(case["scores"], case["query_times"]), expected)
    assert got == expected
    assert set(expected) <= {field.name for field in fields(RelevancyMetrics)}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_where_mindsdb_fails_or_gives_nonsense(name: str) -> None:
    _, message = REFUSED[name]
    case = CASES[name]
    with pytest.raises(UserError, match=message):
        report(decoded(case["scores"]), case["query_times"])


@pytest.mark.parametrize("case", ORACLE["entropy"], ids=lambda case: str(case["values"])[:30])
def test_entropy_of_mindsdb(case: dict[str, Any]) -> None:
    values = case["values"]
    if any(v < 0 for v in values):
        # Scores are from 0 to 1: no entropy of -1.39, and no division by a sum of zero.
        with pytest.raises(UserError, match="from 0 to 1"):
            report([values])
        return
    # Entropy is of the shares; dividing by a power of two changes none.
    scale = 4.0 if max(values) > 1 else 1.0
    assert report([[v / scale for v in values]]).avg_entropy == case["output"]


def naive(scores: list[float | None], n_ks: int, threshold: float) -> dict[str, float | None]:
    """One question, written down from the definitions with no regard to speed."""
    known = [(rank, s) for rank, s in enumerate(scores, 1) if s is not None]
    relevant = [rank for rank, s in known if s >= threshold]
    measured = bool(known) or not scores
    values = [s for _, s in known]
    total = sum(values)
    dcg = sum(s / math.log2(rank + 1) for rank, s in known)
    falling = zip((rank for rank, _ in known), sorted(values, reverse=True), strict=True)
    ideal = sum(s / math.log2(rank + 1) for rank, s in falling)
    result: dict[str, float | None] = {
        "relevancy": (total / len(values) if values else 0.0) if measured else None,
        "relevancy_rr": (1 / relevant[0] if relevant else 0.0) if measured else None,
        "relevancy_first_position": relevant[0] - 1 if relevant else None,
        "relevancy_entropy": (
            -sum(s / total * math.log(s / total) for s in values if s / total > 0) if total else 0.0
        )
        if measured
        else None,
        "relevancy_ndcg": (dcg / ideal if ideal else 0.0) if measured else None,
        "relevancy_chunks": len(scores),
        "relevancy_failed": scores.count(None),
    }
    for k in range(1, n_ks + 1):
        first = scores[:k]
        n_known = k - first.count(None)
        is_known = measured and n_known > 0
        n_relevant = sum(rank <= k for rank in relevant)
        result[f"relevancy_score@{k}"] = scores[k - 1] if k <= len(scores) else None
        result[f"relevancy_hit@{k}"] = float(n_relevant > 0) if is_known else None
        result[f"relevancy_precision@{k}"] = n_relevant / n_known if is_known else None
        result[f"relevancy_judged@{k}"] = 1 - first.count(None) / len(first) if scores else None
    return result


SCORE = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1)
QUESTIONS = st.lists(st.lists(SCORE, max_size=7), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(QUESTIONS, st.integers(1, 8), st.floats(0, 1))
def test_agrees_with_the_definitions(scores: Scores, top_k: int, threshold: float) -> None:
    got = values_of(per_question(scores, top_k, threshold))
    cut = [question[:top_k] for question in scores]
    n_ks = max(map(len, cut))
    assert list(got) == ids_of(scores).to_list()
    for values, question in zip(got.values(), cut, strict=True):
        assert values == pytest.approx(naive(question, n_ks, threshold), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(QUESTIONS)
def test_bounds_and_monotony(scores: Scores) -> None:
    for values in values_of(per_question(scores)).values():
        for name, value in values.items():
            if value is not None and name.split("@")[0] not in {
                "relevancy_first_position",
                "relevancy_entropy",
                "relevancy_chunks",
                "relevancy_failed",
            }:
                assert 0 <= value <= 1, name
        entropy, n = values["relevancy_entropy"], values["relevancy_chunks"] - values["relevancy_failed"]
        assert entropy is None or 0 <= entropy <= math.log(max(n, 1)) + 1e-12
        hits = [v for name, v in values.items() if name.startswith("relevancy_hit") and v is not None]
        assert hits == sorted(hits)


@settings(max_examples=100, deadline=None)
@given(QUESTIONS, st.randoms(use_true_random=False))
def test_row_order_does_not_change_a_bit(scores: Scores, random: Any) -> None:
    judged, ids = judged_of(scores), ids_of(scores).to_list()
    order = random.sample(range(judged.height), judged.height)
    shuffled = question_relevancy_metrics(judged[order], pl.Series(random.sample(ids, len(ids))), top_k=100)
    assert_frame_equal(shuffled, per_question(scores), check_exact=True)
    times = pl.Series([0.5])
    mixed = shuffled.sample(fraction=1, shuffle=True, seed=1)
    assert relevancy_report(mixed, times) == relevancy_report(shuffled, times)


@settings(deadline=None)
@given(st.lists(st.floats(1e-300, 1), min_size=1, max_size=9), st.sets(st.integers(0, 8)))
def test_a_falling_order_has_ndcg_1_whatever_failed(scores: list[float], failed: set[int]) -> None:
    falling: list[float | None] = [*sorted(scores, reverse=True)]
    for i in failed & set(range(len(scores) - 1)):
        falling[i] = None
    assert values_of(per_question([falling]))["q000"]["relevancy_ndcg"] == 1.0


def test_rounding_puts_no_order_above_the_ideal() -> None:
    above = math.nextafter(0.1, 1)
    assert values_of(per_question([[above, 0.1, above, 0.1]]))["q000"]["relevancy_ndcg"] == 1.0


def test_a_failed_judgment_is_left_out_and_keeps_its_rank() -> None:
    values = values_of(per_question([[None, 0.25, 0.75]]))["q000"]
    assert values == pytest.approx(
        {
            "relevancy": 0.5,
            "relevancy_rr": 1 / 3,
            "relevancy_first_position": 2,
            "relevancy_entropy": -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)),
            # Ranks 2 and 3 against the same ranks in falling order.
            "relevancy_ndcg": (0.25 / math.log2(3) + 0.75 / 2) / (0.75 / math.log2(3) + 0.25 / 2),
            "relevancy_chunks": 3,
            "relevancy_failed": 1,
            "relevancy_score@1": None,
            "relevancy_score@2": 0.25,
            "relevancy_score@3": 0.75,
            "relevancy_hit@1": None,
            "relevancy_hit@2": 0.0,
            "relevancy_hit@3": 1.0,
            "relevancy_precision@1": None,
            "relevancy_precision@2": 0.0,
            "relevancy_precision@3": 0.5,
            "relevancy_judged@1": 0.0,
            "relevancy_judged@2": 0.5,
            "relevancy_judged@3": pytest.approx(2 / 3),
        }
    )


def test_a_question_whose_judgments_all_failed_is_not_measured() -> None:
    metrics = report([[None, None], [1.0], []])
    assert (metrics.n_questions, metrics.n_measured, metrics.n_failed) == (3, 2, 1)
    assert (metrics.n_judgments, metrics.n_failed_judgments) == (3, 2)
    assert metrics.avg_relevancy == metrics.mean_mrr == metrics.avg_ndcg == 0.5
    assert metrics.avg_relevance_score_by_k == [1.0, None]
    assert metrics.hit_at_k == [0.5, 0.5]
    assert metrics.bin_precision_at_k == [0.5, 0.25]
    # It has chunks, so its coverage counts; the question without chunks has none to cover.
    assert metrics.judged_at_k == [0.5, 0.5]


def test_nothing_measured_is_null_and_not_0() -> None:
    metrics = report([[None], [None]], [0.5, 1.5])
    assert metrics == RelevancyMetrics(
        avg_relevancy=None,
        avg_relevance_score_by_k=[None],
        avg_first_relevant_position=None,
        mean_mrr=None,
        hit_at_k=[None],
        bin_precision_at_k=[None],
        avg_entropy=None,
        avg_ndcg=None,
        avg_query_time=1.0,
        judged_at_k=[0.0],
        n_questions=2,
        n_measured=0,
        n_failed=2,
        n_judgments=2,
        n_failed_judgments=2,
    )


def test_judged_at_k_is_not_rounded() -> None:
    scores: Scores = [[1.0] for _ in range(999)]
    assert report([*scores, [None]]).judged_at_k == [0.999]


def test_failed_searches_are_in_the_coverage_only() -> None:
    frame, seconds = per_question([[1.0]]), pl.Series([0.25, None])
    metrics = relevancy_report(frame, seconds, failed_searches=2)
    assert (metrics.n_questions, metrics.n_measured, metrics.n_failed) == (3, 1, 2)
    assert metrics.avg_relevancy == 1.0
    assert metrics.avg_query_time == 0.25


def test_all_searches_failed() -> None:
    none = pl.Series([], dtype=pl.Float64)
    metrics = relevancy_report(per_question([]), none, failed_searches=2)
    assert (metrics.n_questions, metrics.n_measured, metrics.n_failed) == (2, 0, 2)
    assert metrics.avg_relevancy is None
    assert metrics.avg_query_time is None
    assert metrics.hit_at_k == []


def test_chunks_beyond_top_k_do_not_count() -> None:
    metrics = report([[0.1, 0.2, 0.9], [0.3]], top_k=2)
    assert metrics.avg_relevance_score_by_k == [0.2, 0.2]
    assert metrics.mean_mrr == 0.0
    assert metrics.n_judgments == 3


def test_order_types_and_names() -> None:
    frame = per_question([[0.5, 0.5], []])
    assert frame.schema == {
        "question_id": pl.String,
        "metric": pl.String,
        "k": pl.Int64,
        "value": pl.Float64,
    }
    one = frame.filter(question_id="q001")
    assert one["metric"].unique(maintain_order=True).to_list() == list(METRICS)
    assert one["k"].to_list() == [None] * len(QUESTION_METRICS) + [1, 2] * len(CUT_METRICS)
    # In one table with the metrics of ranking_metrics nothing may have the same name.
    assert all(name.startswith("relevancy") for name in METRICS)


def test_questions_may_be_a_frame_of_any_id_type_with_repeats() -> None:
    judged = pl.DataFrame({"question_id": ["1"], "rank": [1], "score": [1]})
    questions = pl.DataFrame({"question_id": [2.0, 1.0, 1.0], "other": [0, 0, 0]})
    frame = question_relevancy_metrics(judged, questions)
    assert frame.filter(metric="relevancy")["question_id"].to_list() == ["1", "2"]


def test_summary_with_intervals_is_that_of_the_other_metrics() -> None:
    summary = summarise(per_question([[0.5, None], [1.0], [None]]))
    row = summary.row(by_predicate=pl.col("metric") == "relevancy", named=True)
    assert (row["value"], row["n"]) == (0.75, 2)


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1, math.inf])
def test_scores_out_of_range_are_refused(wrong: float) -> None:
    with pytest.raises(UserError, match=r"from 0 to 1; it is not in questions q001$"):
        report([[0.5], [wrong]])


@pytest.mark.parametrize("ranks", [[0, 1], [2, 3], [1, 3], [1, 1], [1, None]])
def test_ranks_with_gaps_or_repeats_are_refused(ranks: list[int | None]) -> None:
    judged = pl.DataFrame({"question_id": ["q"] * 2, "rank": ranks, "score": [0.5] * 2})
    with pytest.raises(ValueError, match=r"ranks .* q$"):
        question_relevancy_metrics(judged, pl.Series(["q"]))


def test_chunks_of_unknown_questions_are_refused() -> None:
    scores: Scores = [[0.5]] * 7
    with pytest.raises(ValueError, match="q000, q001, q002, q003, q004 and 2 more"):
        question_relevancy_metrics(judged_of(scores), pl.Series(["other"]))


def test_a_question_without_id_is_refused() -> None:
    with pytest.raises(ValueError, match="no id"):
        question_relevancy_metrics(judged_of([]), pl.Series(["q", None]))


@pytest.mark.parametrize("top_k", [0, -1, True])
def test_top_k_out_of_range(top_k: int) -> None:
    with pytest.raises(UserError, match="top_k"):
        per_question([[0.5]], top_k=top_k)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan])
def test_threshold_out_of_range(threshold: float) -> None:
    with pytest.raises(UserError, match="relevance_threshold"):
        per_question([[0.5]], threshold=threshold)


def test_durations_must_be_finite() -> None:
    with pytest.raises(ValueError, match="query_seconds"):
        report([[0.5]], [math.nan])
