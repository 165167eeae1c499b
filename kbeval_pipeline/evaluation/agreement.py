"""How far a judge agrees with human labels, and several judges with each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.statistics import Floats

Weights = Literal["nominal", "linear", "quadratic"]

STATISTICS = (
    "kappa",
    "kappa_binary",
    "kappa_linear",
    "kappa_quadratic",
    "accuracy",
    "accuracy_binary",
    "bias",
    "base_rate",
    "judge_rate",
)

# A resample holds one count for each pair of grades; scores are to be rounded to grades first.
_MOST_GRADES = 50
_PAIR = ["human_grade", "judge_grade"]


@dataclass(frozen=True)
class Estimate:
    """A statistic with its bootstrap interval; None where it is not defined."""

    value: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True)
class _Table:
    """Counts of pairs: rows are human grades, columns the judge's, both in the order of `grades`."""

    grades: Floats
    counts: Floats


def cohen_kappa(human: pl.Series, judge: pl.Series, *, weights: Weights = "nominal") -> float | None:
    """Cohen's kappa: agreement beyond what chance would give.

    kappa = 1 - sum of w_ij o_ij / sum of w_ij e_ij over pairs of grades; o = observed share of a pair, e =
    the product of both graders' shares. w_ij = 1 where i differs from j (nominal; Cohen 1960), |i - j|
    (linear) or (i - j)^2 (quadratic; Cohen 1968), of the grades' values, so that a grade nobody gave makes
    no difference.

    Args:
        human: grades by a human.
        judge: grades by the judge, item by item; items where one is null are left out.
        weights: how a disagreement counts.

    Returns:
        From -1 to 1; None if both gave one and the same grade throughout, or without items.

    Raises:
        UserError: a grade is NaN or infinite, or there are too many different grades to be grades.
        ValueError: the series have different lengths.
    """
    table = _table(human, judge)
    return _optional(_kappa(table.counts, _weights(table.grades, weights)))


def binary_kappa(human: pl.Series, judge: pl.Series, *, threshold: float = 2) -> float | None:
    """Cohen's kappa of two classes: grades of at least the threshold, and those below.

    Args:
        human: grades by a human.
        judge: grades by the judge, item by item; items where one is null are left out.
        threshold: lowest grade that is relevant.

    Returns:
        From -1 to 1; None if both put all items in the same class, or without items.

    Raises:
        UserError: a grade is NaN or infinite, or there are too many different grades to be grades.
        ValueError: the series have different lengths.
    """
    table = _table(human, judge)
    return _optional(_kappa(table.counts, _across(table.grades, threshold)))


def agreement(
    human: pl.Series,
    judge: pl.Series,
    *,
    threshold: float = 2,
    seed: int = 0,
    n_resamples: int = 1000,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """All statistics of agreement with percentile bootstrap intervals, items being resampled.

    * kappa, kappa_linear, kappa_quadratic, kappa_binary as in `cohen_kappa` and `binary_kappa`.
    * accuracy = share of items of the same grade; accuracy_binary = of the same class.
    * bias = mean of the judge's grades - mean of the human's: above 0 the judge is too generous.
    * base_rate, judge_rate = share of items that the human, the judge, grades at least `threshold`.

    Every statistic depends on the items only through the counts of pairs of grades, and the counts of n
    items drawn with replacement are multinomial with the observed shares. So a resample is one multinomial
    draw, the same in distribution as drawing items. Source: Efron and Tibshirani, An Introduction to the
    Bootstrap (1993), chapter 13. Resamples in which a statistic is not defined are left out of its interval.

    Args:
        human: grades by a human.
        judge: grades by the judge, item by item; items where one is null are left out.
        threshold: lowest grade that is relevant.
        seed: seed of the resamples (PCG64).
        n_resamples: number of resamples, at least 1.
        confidence: coverage of the interval, above 0 and below 1.

    Returns:
        An estimate for each of `STATISTICS`.

    Raises:
        UserError: an argument is out of range, a grade is NaN or infinite, or there are too many different
            grades to be grades.
        ValueError: the series have different lengths.
    """
    if n_resamples < 1:
        raise UserError(f"the number of bootstrap resamples must be at least 1, not {n_resamples}")
    if not 0 < confidence < 1:
        raise UserError(f"the confidence of an interval must be above 0 and below 1, not {confidence}")
    table = _table(human, judge)
    if table.counts.sum() == 0:
        return dict.fromkeys(STATISTICS, Estimate(None, None, None))
    values = _statistics(table, table.counts, threshold)
    resampled = _statistics(table, _resamples(table.counts, seed, n_resamples), threshold)
    tail = (1 - confidence) / 2
    return {name: _estimate(values[name], resampled[name], tail) for name in STATISTICS}


def calibration_report(
    labels: pl.DataFrame,
    *,
    threshold: float = 2,
    scale: Sequence[float] | None = None,
    seed: int = 0,
    n_resamples: int = 1000,
    confidence: float = 0.95,
) -> pl.DataFrame:
    """Agreement of every judge version with human labels.

    A judge's row depends on its own labels only: the same seed resamples every judge.

    Args:
        labels: `judge`, `human_grade`, `judge_grade` (null: the judgment failed), one row for each judge
            and item; other columns are ignored.
        threshold: lowest grade that is relevant.
        scale: the grades there are; a judge's grade off the scale counts as failed. Without it every grade
            is taken as it is.
        seed: seed of the resamples.
        n_resamples: number of bootstrap resamples.
        confidence: coverage of the intervals.

    Returns:
        One row for each judge, ordered by its name: `judge`, `n` items in the statistics, `n_failed` items
        without a usable grade, and for each of `STATISTICS` its value, `<name>_ci_low` and `<name>_ci_high`;
        null where it is not defined. See `agreement`.

    Raises:
        UserError: a judge has no name, a human grade is missing or off the scale, or as in `agreement`.
    """
    rows = _checked_labels(labels, scale)
    options = {"threshold": threshold, "confidence": confidence}
    parts: dict[str, list[str | int | float | None]] = {name: [] for name in _REPORT}
    for group in rows.partition_by("judge", maintain_order=True):
        n_failed = group["judge_grade"].null_count()
        estimates = agreement(
            group["human_grade"], group["judge_grade"], seed=seed, n_resamples=n_resamples, **options
        )
        parts["judge"].append(group["judge"][0])
        parts["n"].append(group.height - n_failed)
        parts["n_failed"].append(n_failed)
        for name, estimate in estimates.items():
            parts[name].append(estimate.value)
            parts[f"{name}_ci_low"].append(estimate.ci_low)
            parts[f"{name}_ci_high"].append(estimate.ci_high)
    return pl.DataFrame(parts, schema=_REPORT)


def confusion_matrix(labels: pl.DataFrame, *, scale: Sequence[float] | None = None) -> pl.DataFrame:
    """How often each judge gave which grade to items of each human grade.

    Args:
        labels: `judge`, `human_grade`, `judge_grade`; pairs whose `judge_grade` is null are left out.
        scale: the grades there are; a judge's grade off the scale is left out. Without it, all grades that
            occur in `labels`.

    Returns:
        `judge, human_grade, judge_grade, n` in this order; every pair of grades is there for every judge, n
        is 0 where it does not occur.

    Raises:
        UserError: as `calibration_report`.
    """
    rows = _checked_labels(labels, scale)
    if scale is None:
        grades = pl.concat([rows[name] for name in _PAIR]).drop_nulls().unique().sort()
    else:
        grades = pl.Series(scale, dtype=pl.Float64).unique().sort()
    if len(grades) > _MOST_GRADES:
        raise UserError(_too_many(len(grades)))
    pairs = (
        rows.select(pl.col("judge").unique(maintain_order=True))
        .join(grades.alias("human_grade").to_frame(), how="cross")
        .join(grades.alias("judge_grade").to_frame(), how="cross")
    )
    counts = rows.group_by("judge", *_PAIR).agg(n=pl.len().cast(pl.Int64))
    return pairs.join(
        counts, on=["judge", *_PAIR], how="left", maintain_order="left", nulls_equal=False
    ).with_columns(pl.col("n").fill_null(0))


def panel(judgments: pl.DataFrame, items: Sequence[str] | None = None) -> pl.DataFrame:
    """The verdict of several judges on each item: the median of their scores, and how far they disagree.

    Args:
        judgments: columns that say which item it is, `judge`, and `score` (null: the judgment failed).
        items: names of the columns of the item; without it all columns but `judge` and `score`.

    Returns:
        The item's columns and, ordered by them: `score` = median (mean of the middle two of an even number),
        `disagreement` = largest - smallest score, `std` = standard deviation (divided by n),
        `n_judges` = scores there are, `n_failed` = judgments without one. Score, disagreement and std are
        null where all failed; of one score the latter two are 0.

    Raises:
        UserError: a score is NaN or infinite, or a judge scored an item twice.
    """
    keys = (
        [name for name in judgments.columns if name not in {"judge", "score"}] if items is None else [*items]
    )
    if not keys:
        raise ValueError("a panel needs at least one column that says which item was judged")
    rows = judgments.select(*keys, "judge", pl.col("score").cast(pl.Float64))
    if not rows["score"].drop_nulls().is_finite().all():
        raise UserError("a panel needs finite scores; a judge gave NaN or infinity")
    repeated = rows.filter(pl.struct(*keys, "judge").is_duplicated())
    if repeated.height:
        raise UserError(
            f"judge {repeated['judge'][0]!r} scored the same item twice: {repeated.select(keys).row(0)}"
        )
    score = pl.col("score")
    return (
        rows.group_by(keys)
        .agg(
            score.median(),
            disagreement=score.max() - score.min(),
            # Sorted, as rounding depends on the order.
            std=score.sort().std(ddof=0),
            n_judges=score.count().cast(pl.Int64),
            n_failed=score.null_count().cast(pl.Int64),
        )
        .sort(keys)
    )


_REPORT = pl.Schema(
    {"judge": pl.String(), "n": pl.Int64(), "n_failed": pl.Int64()}
    | {f"{name}{end}": pl.Float64() for name in STATISTICS for end in ("", "_ci_low", "_ci_high")}
)


def _checked_labels(labels: pl.DataFrame, scale: Sequence[float] | None) -> pl.DataFrame:
    """The three columns by judge; a judge's grade off the scale becomes null."""
    rows = labels.select(pl.col("judge").cast(pl.String), *(pl.col(name).cast(pl.Float64) for name in _PAIR))
    if rows["judge"].null_count():
        raise UserError("a label has no judge")
    missing = rows["human_grade"].null_count()
    if missing:
        raise UserError(f"{missing} of {rows.height} labels have no human grade")
    if scale is not None:
        grades = [float(grade) for grade in scale]
        off = rows.filter(~pl.col("human_grade").is_in(grades))["human_grade"].unique().sort().to_list()
        if off:
            raise UserError(f"human grades {off[:5]} are not on the scale {grades}")
        on_scale = pl.col("judge_grade").is_in(grades)
        rows = rows.with_columns(judge_grade=pl.when(on_scale).then("judge_grade"))
    if not all(rows[name].drop_nulls().is_finite().all() for name in _PAIR):
        raise UserError("a grade is NaN or infinite")
    return rows.sort("judge", maintain_order=True)


def _table(human: pl.Series, judge: pl.Series) -> _Table:
    if len(human) != len(judge):
        raise ValueError(f"{len(human)} human grades for {len(judge)} of the judge")
    # Adding zero makes -0.0 a 0.0.
    pairs = [
        series.cast(pl.Float64).alias(name) + 0.0 for series, name in zip((human, judge), _PAIR, strict=True)
    ]
    rows = pl.DataFrame(pairs).drop_nulls()
    values = rows.to_numpy()
    if not np.isfinite(values).all():
        raise UserError("a grade is NaN or infinite")
    grades, number = np.unique(values, return_inverse=True)
    size = len(grades)
    if size > _MOST_GRADES:
        raise UserError(_too_many(size))
    number = number.reshape(values.shape)
    counts = np.bincount(number[:, 0] * size + number[:, 1], minlength=size * size)
    return _Table(grades, counts.reshape(size, size).astype(np.float64))


def _too_many(size: int) -> str:
    return f"{size} different grades are no grade scale (at most {_MOST_GRADES}); round the scores to grades"


def _weights(grades: Floats, weights: Weights) -> Floats:
    distance: Floats = np.abs(grades[:, None] - grades)
    match weights:
        case "nominal":
            return (distance > 0).astype(np.float64)
        case "linear":
            return distance
        case "quadratic":
            return distance**2


def _across(grades: Floats, threshold: float) -> Floats:
    """1 for pairs of grades on different sides of the threshold."""
    relevant: NDArray[np.bool_] = grades >= threshold
    return np.not_equal(relevant[:, None], relevant).astype(np.float64)


def _kappa(counts: Floats, weights: Floats) -> Floats:
    """Kappa of each table of counts, shape (..., grades, grades); NaN where chance cannot disagree.

    Counts are whole numbers, so that for grades that are, too, only the last division rounds.
    """
    human, judge = counts.sum(axis=-1), counts.sum(axis=-2)
    observed = (counts * weights).sum(axis=(-2, -1)) * counts.sum(axis=(-2, -1))
    expected = ((human @ weights) * judge).sum(axis=-1)
    undefined = np.full(np.shape(expected), np.nan)
    kappa: Floats = 1 - np.divide(observed, expected, out=undefined, where=expected > 0)
    return kappa


def _statistics(table: _Table, counts: Floats, threshold: float) -> Mapping[str, Floats]:
    """Each of `STATISTICS` for each table of counts, shape (..., grades, grades), none of them empty."""
    grades = table.grades
    nominal, across = _weights(grades, "nominal"), _across(grades, threshold)
    relevant = (grades >= threshold).astype(np.float64)

    def mean(of_pair: NDArray[np.float64]) -> Floats:
        total: Floats = (counts * of_pair).sum(axis=(-2, -1)) / counts.sum(axis=(-2, -1))
        return total

    return {
        "kappa": _kappa(counts, nominal),
        "kappa_binary": _kappa(counts, across),
        "kappa_linear": _kappa(counts, _weights(grades, "linear")),
        "kappa_quadratic": _kappa(counts, _weights(grades, "quadratic")),
        "accuracy": mean(1 - nominal),
        "accuracy_binary": mean(1 - across),
        "bias": mean(grades - grades[:, None]),
        "base_rate": mean(relevant[:, None]),
        "judge_rate": mean(relevant),
    }


def _resamples(counts: Floats, seed: int, n_resamples: int) -> Floats:
    n_items = int(counts.sum())
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.multinomial(n_items, counts.ravel() / n_items, size=n_resamples)
    return drawn.reshape(n_resamples, *counts.shape).astype(np.float64)


def _estimate(value: Floats, resampled: Floats, tail: float) -> Estimate:
    defined = resampled[~np.isnan(resampled)]
    if np.isnan(value) or len(defined) == 0:
        return Estimate(_optional(value), None, None)
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Estimate(float(value), float(low), float(high))


def _optional(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)
