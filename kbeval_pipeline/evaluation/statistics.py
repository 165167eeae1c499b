"""Bootstrap intervals of means."""

import numpy as np
from numpy.typing import NDArray

from kbeval_pipeline.errors import UserError

Floats = NDArray[np.float64]

# Resample counts held at once: 2 million float64 are 16 MB.
_COUNTS_IN_MEMORY = 2_000_000


def bootstrap_mean(
    matrix: Floats, *, seed: int = 0, n_resamples: int = 1000, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Percentile bootstrap interval of every column's mean, questions being resampled.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile interval).
    A resample draws n questions with replacement; how often it drew each of them, times the matrix, is n
    times its means. So all metrics share the resamples, and one matrix product serves them all.

    Args:
        matrix: values, shape (n_questions, n_metrics), all finite.
        seed: seed of the resamples (PCG64); the same seed and number of questions give the same resamples.
        n_resamples: number of resamples, at least 1.
        confidence: coverage of the interval, above 0 and below 1.

    Returns:
        Lower and upper ends, each of shape (n_metrics,), within the column's smallest and largest value. One
        question gives its value twice; no question gives NaN, as there is no mean.

    Raises:
        UserError: `n_resamples` or `confidence` is out of range.
        ValueError: the matrix is not two-dimensional or holds NaN or infinity.
    """
    if n_resamples < 1:
        raise UserError(f"the number of bootstrap resamples must be at least 1, not {n_resamples}")
    if not 0 < confidence < 1:
        raise UserError(f"the confidence of an interval must be above 0 and below 1, not {confidence}")
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"expected a matrix of questions by metrics, got {values.ndim} dimensions")
    if not np.isfinite(values).all():
        raise ValueError("the bootstrap needs finite values; leave unmeasured questions out")
    n_questions, n_metrics = values.shape
    if n_questions == 0:
        return np.full(n_metrics, np.nan), np.full(n_metrics, np.nan)
    means = _resampled_means(values, np.random.Generator(np.random.PCG64(seed)), n_resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    # A mean lies between the extremes; rounding may not put it outside.
    smallest, largest = values.min(axis=0), values.max(axis=0)
    return np.clip(low, smallest, largest), np.clip(high, smallest, largest)


def _resampled_means(values: Floats, generator: np.random.Generator, n_resamples: int) -> Floats:
    n_questions, n_metrics = values.shape
    means = np.empty((n_resamples, n_metrics))
    step = max(1, min(n_resamples, _COUNTS_IN_MEMORY // n_questions))
    counts = np.empty((step, n_questions))
    for start in range(0, n_resamples, step):
        block = counts[: min(step, n_resamples - start)]
        for row in block:
            row[:] = np.bincount(generator.integers(n_questions, size=n_questions), minlength=n_questions)
        np.matmul(block, values, out=means[start : start + len(block)])
    means /= n_questions
    return means
