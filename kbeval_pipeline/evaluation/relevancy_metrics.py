"""The metrics of version `llm_relevancy`: how relevant a judge finds the chunks of every question."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import canonical_ids, with_canonical_ids
from kbeval_pipeline.evaluation.statistics import Floats

# Metrics of a question as a whole, then those that have a cut-off k.
QUESTION_METRICS = (
    "relevancy",
    "relevancy_rr",
    "relevancy_first_position",
    "relevancy_entropy",
    "relevancy_ndcg",
    "relevancy_chunks",
    "relevancy_failed",
)
CUT_METRICS = ("relevancy_score", "relevancy_hit", "relevancy_precision", "relevancy_judged")
METRICS = QUESTION_METRICS + CUT_METRICS

_SCHEMA = pl.Schema(
    {"question_id": pl.String(), "metric": pl.String(), "k": pl.Int64(), "value": pl.Float64()}
)
_DECIMALS = 2


@dataclass(frozen=True)
class RelevancyMetrics:
    """The result row of version `llm_relevancy`.

    A value is None where nothing was measured. The lists have one value for each k from 1 to the largest
    number of chunks of a question; those with a documented name are rounded to 2 decimals.

    Attributes:
        avg_relevancy: mean over questions of a question's mean score.
        avg_relevance_score_by_k: mean score at each rank, over the questions that have one there.
        avg_first_relevant_position: mean position, from 0, of the first relevant chunk, over the questions
            that have one.
        mean_mrr: mean reciprocal rank of the first relevant chunk.
        hit_at_k: share of questions with a relevant chunk among the first k.
        bin_precision_at_k: mean share of relevant chunks among the first k.
        avg_entropy: mean entropy of the scores, natural logarithm.
        avg_ndcg: mean nDCG of the scores.
        avg_query_time: mean duration of one search, seconds.
        judged_at_k: mean share of the first k chunks that has a score; not rounded, so that one failed
            judgment in a thousand still shows.
        n_questions: questions asked; `n_measured` + `n_failed`.
        n_measured: questions that the means are over.
        n_failed: questions whose search failed, or all of whose judgments did.
        n_judgments: chunks that were to be judged.
        n_failed_judgments: those of them without a score.
    """

    avg_relevancy: float | None
    avg_relevance_score_by_k: list[float | None]
    avg_first_relevant_position: float | None
    mean_mrr: float | None
    hit_at_k: list[float | None]
    bin_precision_at_k: list[float | None]
    avg_entropy: float | None
    avg_ndcg: float | None
    avg_query_time: float | None
    judged_at_k: list[float | None]
    n_questions: int
    n_measured: int
    n_failed: int
    n_judgments: int
    n_failed_judgments: int


def question_relevancy_metrics(
    judged: pl.DataFrame,
    questions: pl.Series | pl.DataFrame,
    *,
    top_k: int = 10,
    relevance_threshold: float = 0.5,
) -> pl.DataFrame:
    """Relevancy metrics of every question, from a judge's scores of its chunks.

    A question has n chunks of ranks 1..n (at most `top_k`) and scores s_i from 0 to 1; a chunk is relevant
    where s_i >= `relevance_threshold`. K is the largest n of all questions. Source: MindsDB's EVALUATE
    KNOWLEDGE_BASE, version llm_relevancy, with its order of summation.

    * relevancy = mean score.
    * relevancy_rr = 1/(rank of the first relevant chunk), 0 if none; relevancy_first_position = that
      rank - 1, null if none.
    * relevancy_entropy = -sum of p_i ln p_i over s_i > 0, p_i = s_i/sum of s; 0 for fewer than two scores.
    * relevancy_ndcg = DCG/ideal DCG, DCG = sum of s_i/log2(i+1); the ideal is the same scores in falling
      order (Jarvelin and Kekalainen 2002); 0 if all are 0.
    * relevancy_score@k = s_k, null beyond n.
    * relevancy_hit@k = 1 if one of the first k chunks is relevant; relevancy_precision@k = relevant chunks
      among the first k, divided by k: ranks beyond n count as not relevant.
    * relevancy_judged@k = share of the first k chunks that has a score; null for a question without chunks.
    * relevancy_chunks = n; relevancy_failed = chunks without a score.

    A question without chunks was measured, and is 0 throughout. A chunk whose score is null (its judgment
    failed) keeps its rank and is otherwise left out, never counted as 0: mean and entropy are over the
    scores there are; DCG and ideal DCG are over their ranks, so that a falling order still gives 1;
    precision@k divides by k less the failed among the first k; the first relevant chunk is the first one
    known to be. Hit@k and precision@k are null where all of the first k judgments failed, and a question all
    of whose judgments failed is not measured: null in all but its coverage.

    Args:
        judged: `question_id`, `rank` (from 1, without gaps), `score` (null: failed), in any order; other
            columns are ignored.
        questions: ids of the questions whose search succeeded, also of those without chunks, or a frame with
            the column `question_id`; repeats are ignored.
        top_k: number of chunks of a question that count.
        relevance_threshold: lowest score that is relevant.

    Returns:
        `question_id, metric, k, value`, ordered by question, then as in `METRICS`, then by k from 1 to K;
        k is null where the metric has no cut-off.

    Raises:
        UserError: `top_k` or the threshold is out of range, or a score is NaN or outside 0 to 1.
        ValueError: ranks of a question are not 1..n, or a chunk belongs to none of the questions.
    """
    if isinstance(top_k, bool) or top_k < 1:
        raise UserError(f"top_k must be at least 1, not {top_k}")
    if not 0 <= relevance_threshold <= 1:
        raise UserError(f"relevance_threshold must be from 0 to 1, not {relevance_threshold}")
    column = questions["question_id"] if isinstance(questions, pl.DataFrame) else questions
    ids = canonical_ids(column).rename("question_id").unique().sort()
    if ids.null_count():
        raise ValueError("a question has no id")
    scores, lengths = _score_matrix(_checked(judged), ids, top_k)
    return _long_format(ids, _measure(scores, lengths, relevance_threshold), int(lengths.max(initial=0)))


def relevancy_report(
    per_question: pl.DataFrame, query_seconds: pl.Series, *, failed_searches: int = 0
) -> RelevancyMetrics:
    """Aggregate questions to the documented metrics: means over the questions that were measured.

    Args:
        per_question: what `question_relevancy_metrics` returned.
        query_seconds: duration of each search in seconds; nulls are left out.
        failed_searches: questions that are not in `per_question` as their search failed.

    Returns:
        The metrics, and how much of the test set they cover.

    Raises:
        UserError: there is no question at all.
        ValueError: a duration is not finite.
    """
    n_given = per_question.filter(pl.col("metric") == "relevancy").height
    if n_given + failed_searches == 0:
        raise UserError("the test table has no rows")
    groups = (
        per_question.lazy()
        .drop_nulls("value")
        .group_by("metric", "k")
        .agg(pl.col("value").sort_by("question_id"))
        .collect()
    )
    values = {(metric, k): series.to_numpy() for metric, k, series in zip(*groups.get_columns(), strict=True)}
    none = np.empty(0)
    last_k = per_question["k"].max()
    ks = range(1, int(last_k) + 1) if isinstance(last_k, int) else range(0)

    def mean(metric: str) -> float | None:
        return _mean(values.get((metric, None), none))

    def by_k(metric: str) -> list[float | None]:
        return [_mean(values.get((metric, k), none)) for k in ks]

    seconds = query_seconds.drop_nulls().cast(pl.Float64).to_numpy()
    if not np.isfinite(seconds).all():
        raise ValueError("a duration of query_seconds is not finite")
    n_measured = len(values.get(("relevancy", None), none))
    return RelevancyMetrics(
        avg_relevancy=mean("relevancy"),
        avg_relevance_score_by_k=_rounded(by_k("relevancy_score")),
        avg_first_relevant_position=mean("relevancy_first_position"),
        mean_mrr=mean("relevancy_rr"),
        hit_at_k=_rounded(by_k("relevancy_hit")),
        bin_precision_at_k=_rounded(by_k("relevancy_precision")),
        avg_entropy=mean("relevancy_entropy"),
        avg_ndcg=mean("relevancy_ndcg"),
        avg_query_time=_mean(seconds),
        judged_at_k=by_k("relevancy_judged"),
        n_questions=n_given + failed_searches,
        n_measured=n_measured,
        n_failed=n_given - n_measured + failed_searches,
        n_judgments=int(values.get(("relevancy_chunks", None), none).sum()),
        n_failed_judgments=int(values.get(("relevancy_failed", None), none).sum()),
    )


def _checked(judged: pl.DataFrame) -> pl.DataFrame:
    """Canonical ids and checked types, scores and ranks."""
    rows = with_canonical_ids(judged, "question_id").select(
        "question_id", pl.col("rank").cast(pl.Int64), pl.col("score").cast(pl.Float64)
    )
    wrong = rows.filter(pl.col("score").is_nan() | ~pl.col("score").is_between(0, 1))
    if wrong.height:
        raise UserError(
            f"a judge's score must be a number from 0 to 1; it is not in questions {_some(wrong)}"
        )
    rank = pl.col("rank")
    ranks = rows.group_by("question_id").agg(
        gap=(rank.min() != 1) | (rank.max() != pl.len()) | (rank.n_unique() != pl.len()) | rank.has_nulls()
    )
    wrong = ranks.filter(pl.col("gap").fill_null(True))
    if wrong.height:
        raise ValueError(
            f"the ranks must run from 1 without gaps or repeats; not so in questions {_some(wrong)}"
        )
    return rows


def _score_matrix(rows: pl.DataFrame, ids: pl.Series, top_k: int) -> tuple[Floats, NDArray[np.int64]]:
    """Scores by question and rank, NaN where there is none, and the number of chunks of each question.

    There is one column at least, so that no question having chunks is no special case.
    """
    numbers = ids.to_frame().with_columns(of=pl.int_range(pl.len(), dtype=pl.Int64))
    placed = (
        rows.lazy()
        .filter(pl.col("rank") <= top_k)
        .join(numbers.lazy(), on="question_id", how="left")
        .collect()
    )
    unknown = placed.filter(pl.col("of").is_null())
    if unknown.height:
        raise ValueError(f"there are chunks of questions that were not measured: {_some(unknown)}")
    of, rank = placed["of"].to_numpy(), placed["rank"].to_numpy()
    scores = np.full((len(ids), int(rank.max(initial=1))), np.nan)
    # Adding zero makes -0.0 a 0.0.
    scores[of, rank - 1] = placed["score"].to_numpy() + 0.0
    return scores, np.bincount(of, minlength=len(ids)).astype(np.int64)


def _measure(scores: Floats, lengths: NDArray[np.int64], threshold: float) -> Mapping[str, Floats]:
    """Each metric as a vector over questions or a matrix of questions by k; NaN is null."""
    ks = np.arange(1, scores.shape[1] + 1)
    with_score = ~np.isnan(scores)
    retrieved = ks <= lengths[:, None]
    failed = np.cumsum(retrieved & ~with_score, axis=1)
    relevant = scores >= threshold
    n_relevant = np.cumsum(relevant, axis=1)
    # Ranks up to k that are known: judged, or beyond the last chunk.
    known = ks - failed
    is_measured = (lengths == 0) | with_score.any(axis=1)
    filled = np.where(with_score, scores, 0.0)
    first = relevant.argmax(axis=1)
    has_relevant = relevant.any(axis=1)

    def if_measured(values: Floats) -> Floats:
        return np.where(is_measured, values, np.nan)

    def if_known(values: Floats) -> Floats:
        return np.where(is_measured[:, None] & (known > 0), values, np.nan)

    return {
        "relevancy": if_measured(_ratio(_sum(filled), with_score.sum(axis=1))),
        "relevancy_rr": if_measured(np.where(has_relevant, 1 / (first + 1), 0.0)),
        "relevancy_first_position": np.where(has_relevant, first, np.nan),
        "relevancy_entropy": if_measured(_entropy(filled)),
        "relevancy_ndcg": if_measured(_ndcg(filled, with_score)),
        "relevancy_chunks": lengths.astype(np.float64),
        "relevancy_failed": failed[:, -1].astype(np.float64),
        "relevancy_score": scores,
        "relevancy_hit": if_known((n_relevant > 0).astype(np.float64)),
        "relevancy_precision": if_known(_ratio(n_relevant, known)),
        "relevancy_judged": np.where(
            lengths[:, None] > 0,
            _ratio(np.cumsum(with_score, axis=1), np.minimum(ks, lengths[:, None])),
            np.nan,
        ),
    }


def _entropy(scores: Floats) -> Floats:
    """Entropy of each row's shares; rows may hold zeros."""
    shares = _ratio(scores, np.broadcast_to(_sum(scores)[:, None], scores.shape))
    positive = shares > 0
    terms = np.zeros_like(shares)
    # Polars takes the C library's logarithm, as Python does; numpy's differs by processor.
    terms[positive] = shares[positive] * pl.Series(shares[positive]).log().to_numpy()
    return 0.0 - _sum(terms)


def _ndcg(scores: Floats, with_score: NDArray[np.bool_]) -> Floats:
    """NDCG of each row over the ranks that have a score; the others hold 0."""
    discounts = np.array([math.log2(rank + 1) for rank in range(1, scores.shape[1] + 1)])
    best_scores = -np.sort(-scores, axis=1)
    best_discounts = np.sort(np.where(with_score, discounts, np.inf), axis=1)
    # The ideal is the largest sum there is; rounding may not put another order above it.
    return np.minimum(_ratio(_sum(scores / discounts), _sum(best_scores / best_discounts)), 1.0)


def _sum(matrix: Floats) -> Floats:
    """Sum of each row, added one by one as the reference does; numpy's sum may add pairwise."""
    total: Floats = np.cumsum(matrix, axis=1)[:, -1]
    return total


def _ratio(numerator: NDArray[np.generic], denominator: NDArray[np.generic]) -> Floats:
    """Divide; 0 where the denominator is 0."""
    divisor = denominator.astype(np.float64)
    share: Floats = np.divide(numerator, divisor, out=np.zeros(numerator.shape), where=divisor > 0)
    return share


def _long_format(ids: pl.Series, columns: Mapping[str, Floats], last_k: int) -> pl.DataFrame:
    names = [(name, None) for name in QUESTION_METRICS] + [
        (name, k) for name in CUT_METRICS for k in range(1, last_k + 1)
    ]
    if len(ids) == 0:
        return _SCHEMA.to_frame()
    values = np.concatenate(
        [columns[name][:, None] for name in QUESTION_METRICS]
        + [columns[name][:, :last_k] for name in CUT_METRICS],
        axis=1,
    )
    column = np.tile(np.arange(len(names)), len(ids))
    return pl.DataFrame(
        {
            "question_id": ids.gather(np.repeat(np.arange(len(ids)), len(names))),
            "metric": pl.Series([name for name, _ in names]).gather(column),
            "k": pl.Series([k for _, k in names], dtype=pl.Int64).gather(column),
            "value": pl.Series(values.ravel(), nan_to_null=True),
        },
        schema=_SCHEMA,
    )


def _mean(values: Floats) -> float | None:
    return float(np.cumsum(values)[-1]) / len(values) if len(values) else None


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, _DECIMALS) for value in values]


def _some(rows: pl.DataFrame) -> str:
    """Name the first questions of a frame."""
    ids = rows["question_id"].unique().sort().to_list()
    rest = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(map(str, ids[:5])) + rest
