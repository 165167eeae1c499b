import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation import statistics
from kbeval_pipeline.evaluation.statistics import bootstrap_mean


def naive_interval(values: list[float], seed: int, n_resamples: int) -> tuple[float, float]:
    generator = np.random.Generator(np.random.PCG64(seed))
    means = []
    for _ in range(n_resamples):
        drawn = generator.integers(len(values), size=len(values))
        means.append(sum(values[i] for i in drawn) / len(values))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(0, 2**32))
def test_agrees_with_drawing_one_by_one(values: list[float], seed: int) -> None:
    low, high = bootstrap_mean(np.array([values]).T, seed=seed, n_resamples=40)
    assert (low[0], high[0]) == pytest.approx(naive_interval(values, seed, 40), abs=1e-12)
    assert min(values) <= low[0] <= high[0] <= max(values)


def test_interval_is_that_of_the_normal_approximation_for_many_questions() -> None:
    values = np.random.default_rng(1).random((5000, 1))
    low, high = bootstrap_mean(values, n_resamples=2000)
    margin = 1.96 * values.std() / np.sqrt(5000)
    assert low[0] == pytest.approx(values.mean() - margin, abs=margin / 10)
    assert high[0] == pytest.approx(values.mean() + margin, abs=margin / 10)


def test_wider_for_more_confidence() -> None:
    values = np.random.default_rng(1).random((50, 1))
    low_90, high_90 = bootstrap_mean(values, confidence=0.9)
    low_99, high_99 = bootstrap_mean(values, confidence=0.99)
    assert low_99[0] < low_90[0] < high_90[0] < high_99[0]


def test_seed_decides_the_result() -> None:
    values = np.random.default_rng(1).random((50, 3))
    first, again, other = (np.stack(bootstrap_mean(values, seed=seed)) for seed in (7, 7, 8))
    assert first.tobytes() == again.tobytes()
    assert (first != other).any()


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((50, 3))
    whole = bootstrap_mean(values, n_resamples=101)
    monkeypatch.setattr(statistics, "_COUNTS_IN_MEMORY", 350)
    np.testing.assert_allclose(bootstrap_mean(values, n_resamples=101), whole, rtol=1e-14)


def test_a_constant_column_has_no_width() -> None:
    low, high = bootstrap_mean(np.full((7, 1), 0.1))
    assert low[0] == high[0] == 0.1


def test_one_question_gives_its_value() -> None:
    low, high = bootstrap_mean(np.array([[0.25, 1.0]]))
    assert low.tolist() == high.tolist() == [0.25, 1.0]


def test_no_question_gives_nan() -> None:
    low, high = bootstrap_mean(np.empty((0, 2)))
    assert np.isnan(low).all()
    assert np.isnan(high).all()
    assert low.shape == high.shape == (2,)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_unmeasured_values_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap_mean(np.array([[0.5], [wrong]]))


def test_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="matrix"):
        bootstrap_mean(np.array([0.5]))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, float("nan")])
def test_confidence_out_of_range(confidence: float) -> None:
    with pytest.raises(UserError, match="confidence"):
        bootstrap_mean(np.array([[0.5]]), confidence=confidence)


def test_resamples_out_of_range() -> None:
    with pytest.raises(UserError, match="resamples"):
        bootstrap_mean(np.array([[0.5]]), n_resamples=0)
