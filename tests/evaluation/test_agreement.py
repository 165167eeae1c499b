import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.agreement import (
    STATISTICS,
    Estimate,
    Weights,
    agreement,
    binary_kappa,
    calibration_report,
    cohen_kappa,
    confusion_matrix,
    panel,
)

Pairs = list[tuple[Any, Any]]
GRADE = st.integers(0, 3)
PAIRS = st.lists(st.tuples(GRADE, GRADE), min_size=1, max_size=30)


def series(pairs: Pairs) -> tuple[pl.Series, pl.Series]:
    human, judge = zip(*pairs, strict=True) if pairs else ((), ())
    return pl.Series(human, dtype=pl.Float64), pl.Series(judge, dtype=pl.Float64)


def labels_of(pairs: Pairs, judge: str = "a") -> pl.DataFrame:
    human, grade = series(pairs)
    return pl.DataFrame({"judge": [judge] * len(pairs), "human_grade": human, "judge_grade": grade})


# Cohen 1960-style table, 2x2: both yes 20, human only 10, judge only 5, both no 15.
# po = 35/50 = .7; pe = (30*25 + 20*25)/2500 = .5; kappa = .2/.5 = .4
TWO_CLASSES: Pairs = [(1, 1)] * 20 + [(1, 0)] * 10 + [(0, 1)] * 5 + [(0, 0)] * 15
# Rows 0-2 of the human: (2,1,0), (0,2,1), (1,0,3); n = 10, both margins (3,3,4).
# Nominal: po = .7, pe = (9+9+16)/100 = .34, kappa = .36/.66.
# Linear: observed = 1+1+2 = 4; chance = (9+9)*1 + (12+12)*1 + (12+12)*2 = 90, /10 = 9; kappa = 1 - 4/9.
# Quadratic: observed = 1+1+4 = 6; chance = (18+24+24*4)/10 = 13.8; kappa = 1 - 6/13.8.
THREE_CLASSES: Pairs = (
    [(0, 0)] * 2 + [(0, 1)] + [(1, 1)] * 2 + [(1, 2)] + [(2, 0)] + [(2, 2)] * 3
)  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "weights", "kappa"),
    [
        (TWO_CLASSES, "nominal", 0.4),
        # With two classes all weights are the same.
        (TWO_CLASSES, "linear", 0.4),
        (TWO_CLASSES, "quadratic", 0.4),
        (THREE_CLASSES, "nominal", 0.36 / 0.66),
        (THREE_CLASSES, "linear", 5 / 9),
        (THREE_CLASSES, "quadratic", 1 - 6 / 13.8),
        ([(0, 0), (1, 1)], "nominal", 1.0),
        ([(0, 1), (1, 0)], "nominal", -1.0),
        # A judge that always says the same knows nothing.
        ([(0, 0), (1, 0), (2, 0)], "nominal", 0.0),
        ([(0, 0), (1, 0), (2, 0)], "quadratic", 0.0),
        # All human labels are the same: as chance has it.
        ([(0, 0), (0, 1)], "nominal", 0.0),
    ],
)
def test_kappas_by_hand(pairs: Pairs, weights: Weights, kappa: float) -> None:
    assert cohen_kappa(*series(pairs), weights=weights) == pytest.approx(kappa, abs=1e-15)


def test_binary_kappa_by_hand() -> None:
    # 3 and 2 are relevant, 1 and 0 are not: the table of TWO_CLASSES.
    pairs = [(h * 2 + i % 2, j * 2 + i % 2) for i, (h, j) in enumerate(TWO_CLASSES)]
    assert binary_kappa(*series(pairs), threshold=2) == pytest.approx(0.4, abs=1e-15)
    assert binary_kappa(*series(TWO_CLASSES), threshold=1) == pytest.approx(0.4, abs=1e-15)


@pytest.mark.parametrize("pairs", [[], [(2, 2)], [(2, 2)] * 5, [(None, 1)], [(1, None)]])
def test_not_defined_with_one_class_or_no_item(pairs: Pairs) -> None:
    for weights in ("nominal", "linear", "quadratic"):
        assert cohen_kappa(*series(pairs), weights=weights) is None
    assert binary_kappa(*series(pairs)) is None


def test_binary_kappa_is_not_defined_on_one_side_of_the_threshold() -> None:
    pairs: Pairs = [(0, 1), (1, 0), (1, 1)]
    assert binary_kappa(*series(pairs), threshold=2) is None
    assert cohen_kappa(*series(pairs)) is not None


def naive_kappa(pairs: Pairs, weight: Any) -> float | None:
    n = len(pairs)
    observed = sum(weight(h, j) for h, j in pairs) / n
    expected = sum(weight(h, j) for h, _ in pairs for _, j in pairs) / n**2
    return None if expected == 0 else 1 - observed / expected


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_agrees_with_the_definitions(pairs: Pairs) -> None:
    human, judge = zip(*pairs, strict=True)
    n = len(pairs)
    expected = {
        "kappa": naive_kappa(pairs, lambda h, j: h != j),
        "kappa_binary": naive_kappa(pairs, lambda h, j: (h >= 2) != (j >= 2)),
        "kappa_linear": naive_kappa(pairs, lambda h, j: abs(h - j)),
        "kappa_quadratic": naive_kappa(pairs, lambda h, j: (h - j) ** 2),
        "accuracy": sum(h == j for h, j in pairs) / n,
        "accuracy_binary": sum((h >= 2) == (j >= 2) for h, j in pairs) / n,
        "bias": sum(judge) / n - sum(human) / n,
        "base_rate": sum(h >= 2 for h in human) / n,
        "judge_rate": sum(j >= 2 for j in judge) / n,
    }
    estimates = agreement(*series(pairs), n_resamples=5)
    assert tuple(estimates) == STATISTICS
    assert {name: e.value for name, e in estimates.items()} == pytest.approx(expected, abs=1e-12)
    for weights in ("nominal", "linear", "quadratic"):
        kappa = cohen_kappa(*series(pairs), weights=weights)
        assert kappa == estimates["kappa" if weights == "nominal" else f"kappa_{weights}"].value
        assert kappa is None or -1 - 1e-12 <= kappa <= 1
    assert binary_kappa(*series(pairs)) == estimates["kappa_binary"].value


@settings(max_examples=100, deadline=None)
@given(PAIRS)
def test_symmetry(pairs: Pairs) -> None:
    swapped = [(j, h) for h, j in pairs]
    for weights in ("nominal", "linear", "quadratic"):
        there, back = (cohen_kappa(*series(p), weights=weights) for p in (pairs, swapped))
        assert there == pytest.approx(back, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(PAIRS)
def test_a_perfect_judge_has_kappa_1(pairs: Pairs) -> None:
    assume(len({h for h, _ in pairs}) > 1)
    perfect = [(h, h) for h, _ in pairs]
    estimates = agreement(*series(perfect), n_resamples=20)
    assert estimates["kappa"].value == estimates["kappa_quadratic"].value == 1.0
    assert estimates["kappa"].ci_low in {1.0, None}
    assert estimates["accuracy"] == Estimate(1.0, 1.0, 1.0)
    assert estimates["bias"] == Estimate(0.0, 0.0, 0.0)


def test_grades_weigh_by_value_not_by_place() -> None:
    # 0 and 3 are three apart although nobody gave 1 or 2.
    pairs: Pairs = [(0, 0), (0, 2), (2, 3), (3, 3)]
    expected = naive_kappa(pairs, lambda h, j: abs(h - j))
    assert cohen_kappa(*series(pairs), weights="linear") == pytest.approx(expected)


def test_interval_agrees_with_drawing_items() -> None:
    pairs = THREE_CLASSES * 20
    estimates = agreement(*series(pairs), n_resamples=4000)
    generator = np.random.default_rng(3)
    drawn = [[pairs[i] for i in generator.integers(len(pairs), size=len(pairs))] for _ in range(1000)]
    kappas = [cohen_kappa(*series(sample)) or 0.0 for sample in drawn]
    low, high = np.quantile(kappas, [0.025, 0.975])
    kappa = estimates["kappa"]
    assert (kappa.ci_low, kappa.ci_high) == pytest.approx((low, high), abs=0.015)
    accuracy = estimates["accuracy"]
    margin = 1.96 * math.sqrt(0.7 * 0.3 / len(pairs))
    assert (accuracy.ci_low, accuracy.ci_high) == pytest.approx((0.7 - margin, 0.7 + margin), abs=0.01)


def test_seed_and_confidence_decide_the_interval() -> None:
    first, again, other = (agreement(*series(TWO_CLASSES), threshold=1, seed=s)["kappa"] for s in (7, 7, 8))
    assert first == again != other
    narrow = agreement(*series(TWO_CLASSES), seed=7, confidence=0.5)["kappa"]
    assert first.ci_low < narrow.ci_low < 0.4 < narrow.ci_high < first.ci_high  # type: ignore[operator]


def test_resamples_that_are_not_defined_are_left_out() -> None:
    # A quarter of the resamples of two items draws (0, 0) twice, another (1, 1) twice.
    kappa = agreement(*series([(0, 0), (1, 1)]))["kappa"]
    assert kappa == Estimate(1.0, 1.0, 1.0)


def test_a_statistic_that_is_not_defined_has_no_interval() -> None:
    estimates = agreement(*series([(2, 2)] * 3))
    assert estimates["kappa"] == Estimate(None, None, None)
    assert estimates["base_rate"] == Estimate(1.0, 1.0, 1.0)
    assert agreement(*series([])) == dict.fromkeys(STATISTICS, Estimate(None, None, None))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_grades_must_be_finite(wrong: float) -> None:
    with pytest.raises(UserError, match="NaN or infinite"):
        cohen_kappa(*series([(0, wrong)]))
    with pytest.raises(UserError, match="NaN or infinite"):
        calibration_report(labels_of([(0, wrong)]))


def test_scores_are_no_grades() -> None:
    pairs: Pairs = [(0, i / 60) for i in range(60)]
    with pytest.raises(UserError, match="60 different grades"):
        cohen_kappa(*series(pairs))
    with pytest.raises(UserError, match="60 different grades"):
        confusion_matrix(labels_of(pairs))


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="1 human grades for 2"):
        cohen_kappa(pl.Series([1]), pl.Series([1, 2]))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_confidence_out_of_range(confidence: float) -> None:
    with pytest.raises(UserError, match="confidence"):
        agreement(*series(TWO_CLASSES), confidence=confidence)


def test_resamples_out_of_range() -> None:
    with pytest.raises(UserError, match="resamples"):
        agreement(*series(TWO_CLASSES), n_resamples=0)


def test_one_row_for_each_judge() -> None:
    labels = pl.concat([labels_of(THREE_CLASSES, "b"), labels_of([(0, None), (2, 2), (0, 0)], "a")])
    result = calibration_report(labels)
    assert result.select("judge", "n", "n_failed").rows() == [("a", 2, 1), ("b", 10, 0)]
    assert result.columns[3:6] == ["kappa", "kappa_ci_low", "kappa_ci_high"]
    assert len(result.columns) == 3 + 3 * len(STATISTICS)
    alone = calibration_report(labels.filter(judge="b"))
    assert_frame_equal(result.filter(judge="b"), alone)
    expected = agreement(*series(THREE_CLASSES))
    row = alone.row(0, named=True)
    for name, estimate in expected.items():
        assert (row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"]) == (
            estimate.value,
            estimate.ci_low,
            estimate.ci_high,
        )


def test_row_order_does_not_change_the_report() -> None:
    labels = pl.concat([labels_of(THREE_CLASSES, "b"), labels_of(TWO_CLASSES, "a")])
    mixed = labels.sample(fraction=1, shuffle=True, seed=2)
    assert_frame_equal(calibration_report(mixed), calibration_report(labels), check_exact=True)


def test_a_judge_that_always_failed_has_no_statistics() -> None:
    row = calibration_report(labels_of([(1, None), (2, None)])).row(0, named=True)
    assert (row["n"], row["n_failed"]) == (0, 2)
    assert all(row[name] is None for name in STATISTICS)


def test_grades_off_the_scale_are_failed_judgments() -> None:
    labels = labels_of([(0, 0), (1, 1), (1, 10), (2, None)])
    row = calibration_report(labels, scale=[0, 1, 2, 3]).row(0, named=True)
    assert (row["n"], row["n_failed"], row["kappa"]) == (2, 2, 1.0)
    assert calibration_report(labels)["n"].to_list() == [3]
    with pytest.raises(UserError, match=r"\[2.0\] are not on the scale"):
        calibration_report(labels, scale=[0, 1])


def test_human_labels_are_needed() -> None:
    with pytest.raises(UserError, match="1 of 2 labels have no human grade"):
        calibration_report(labels_of([(0, 0), (None, 0)]))


def test_a_label_without_judge_is_refused() -> None:
    labels = labels_of([(0, 0)]).with_columns(judge=pl.lit(None, dtype=pl.String))
    with pytest.raises(UserError, match="no judge"):
        calibration_report(labels)


def test_no_labels_give_an_empty_typed_report() -> None:
    result = calibration_report(labels_of([]))
    assert result.height == 0
    assert result.schema["kappa_ci_low"] == pl.Float64
    assert confusion_matrix(labels_of([])).height == 0


def test_confusion_matrix() -> None:
    labels = pl.concat([labels_of([(0, 1), (0, 1), (1, None)], "b"), labels_of([(1, 1)], "a")])
    result = confusion_matrix(labels)
    assert result.rows() == [
        ("a", 0.0, 0.0, 0),
        ("a", 0.0, 1.0, 0),
        ("a", 1.0, 0.0, 0),
        ("a", 1.0, 1.0, 1),
        ("b", 0.0, 0.0, 0),
        ("b", 0.0, 1.0, 2),
        ("b", 1.0, 0.0, 0),
        ("b", 1.0, 1.0, 0),
    ]
    assert result.schema["n"] == pl.Int64
    scaled = confusion_matrix(labels, scale=[3, 0, 1, 2])
    assert scaled.height == 2 * 16
    assert scaled["n"].sum() == 3


def judgments_of(rows: list[tuple[str, int, str, float | None]]) -> pl.DataFrame:
    schema = {"question_id": pl.String, "rank": pl.Int64, "judge": pl.String, "score": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_panel() -> None:
    judgments = judgments_of(
        [
            ("q2", 1, "a", 0.25),
            ("q1", 2, "a", None),
            ("q1", 1, "a", 0.0),
            ("q1", 1, "b", 1.0),
            ("q1", 1, "c", 0.25),
            ("q2", 1, "b", 0.75),
            ("q2", 2, "b", 0.5),
            ("q2", 2, "a", None),
        ]
    )
    result = panel(judgments)
    assert result.select("question_id", "rank", "score", "disagreement", "n_judges", "n_failed").rows() == [
        ("q1", 1, 0.25, 1.0, 3, 0),
        ("q1", 2, None, None, 0, 1),
        ("q2", 1, 0.5, 0.5, 2, 0),
        ("q2", 2, 0.5, 0.0, 1, 1),
    ]
    assert result["std"].to_list() == pytest.approx([math.sqrt(13 / 72), None, 0.25, 0.0])


def test_panel_with_named_items_leaves_other_columns_out() -> None:
    judgments = judgments_of([("q", 1, "a", 0.5), ("q", 2, "b", 1.0)])
    assert panel(judgments, ["question_id"])["score"].to_list() == [0.75]


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("xyz"), st.sampled_from("abcde")), st.none() | st.floats(0, 1), max_size=15
    ),
    st.integers(0, 9),
)
def test_panel_agrees_with_numpy(scores: dict[tuple[str, str], float | None], seed: int) -> None:
    rows = [(item, 1, judge, score) for (item, judge), score in scores.items()]
    judgments = judgments_of(rows)
    result = panel(judgments)
    shuffled = judgments.sample(fraction=1, shuffle=True, seed=seed)
    assert_frame_equal(panel(shuffled), result, check_exact=True)
    assert result["question_id"].to_list() == sorted({item for item, *_ in rows})
    for row in result.iter_rows(named=True):
        values = [s for item, _, _, s in rows if item == row["question_id"] and s is not None]
        assert row["n_judges"] == len(values)
        if values:
            assert row["score"] == pytest.approx(np.median(values), abs=1e-12)
            assert row["disagreement"] == max(values) - min(values)
            assert row["std"] == pytest.approx(np.std(values), abs=1e-9)


def test_panel_refuses_repeats_and_nan() -> None:
    with pytest.raises(UserError, match=r"judge 'a' scored the same item twice: \('q', 1\)"):
        panel(judgments_of([("q", 1, "a", 0.5), ("q", 1, "a", 0.5)]))
    with pytest.raises(UserError, match="finite"):
        panel(judgments_of([("q", 1, "a", math.nan)]))
    with pytest.raises(ValueError, match="at least one column"):
        panel(pl.DataFrame({"judge": ["a"], "score": [1.0]}))
