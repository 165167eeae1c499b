"""Ranking metrics of documents against graded relevance (qrels), by trec_eval's conventions."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import with_canonical_ids
from kbeval_pipeline.evaluation.statistics import Floats, bootstrap_mean

METRICS = (
    "recall",
    "precision",
    "hit",
    "mrr",
    "map",
    "ndcg",
    "r_precision",
    "bpref",
    "num_rel",
    "num_rel_ret",
    "num_ret",
)

_PAIR = ["question_id", "doc_id"]
_RELEVANT = 1  # the lowest grade that is relevant
_PER_QUESTION = pl.Schema(
    {"question_id": pl.String(), "metric": pl.String(), "k": pl.Int64(), "value": pl.Float64()}
)
_SUMMARY = pl.Schema(
    {
        "metric": pl.String(),
        "k": pl.Int64(),
        "value": pl.Float64(),
        "ci_low": pl.Float64(),
        "ci_high": pl.Float64(),
        "n": pl.Int64(),
    }
)

Integers = NDArray[np.int64]


def rank_documents(chunks: pl.DataFrame) -> pl.DataFrame:
    """Rank documents from retrieved chunks: score descending, then document id descending by UTF-8 bytes.

    A document stands where its best-scored chunk stands; its other chunks are dropped, so that they take no
    rank (`count_repeats` counts them). The order is trec_eval's, with scores in 64 bits.

    Args:
        chunks: `question_id`, `doc_id`, `score` (higher is better), in any order; other columns are ignored.

    Returns:
        `question_id`, `doc_id` as canonical text, and `position` from 1, ordered by question and position.

    Raises:
        UserError: naming questions that have a null or NaN score, or a chunk without a document id.
    """
    _refuse(
        chunks, pl.col("score").is_null() | pl.col("score").cast(pl.Float64).is_nan(), "a null or NaN score"
    )
    _refuse(chunks, _is_without_id(), "a chunk without question or document id")
    rows = with_canonical_ids(chunks, *_PAIR).select(*_PAIR, pl.col("score").cast(pl.Float64)).lazy()
    if _is_ordered(rows):
        # As a knowledge base returns them: the first chunk is the best, and nothing needs sorting.
        ranked = rows.filter(pl.col("doc_id").is_first_distinct().over("question_id"))
    else:
        best = rows.group_by(_PAIR).agg(pl.col("score").max())
        ranked = best.sort("question_id", "score", "doc_id", descending=[False, True, True])
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    first_of_question = pl.col("question_id").ne_missing(pl.col("question_id").shift(1))
    position = row - pl.when(first_of_question).then(row).forward_fill() + 1
    return ranked.select(*_PAIR, position=position).collect()


def count_repeats(frame: pl.DataFrame) -> int:
    """Number of rows that repeat a document of the same question.

    Args:
        frame: retrieved chunks or qrels, with `question_id` and `doc_id`.

    Returns:
        Rows less distinct pairs: what `rank_documents` drops of chunks, `question_ranking_metrics` of qrels.
    """
    distinct: int = with_canonical_ids(frame, *_PAIR).select(pl.struct(_PAIR).n_unique()).item()
    return frame.height - distinct


def question_ranking_metrics(
    qrels: pl.DataFrame, ranking: pl.DataFrame, ks: Iterable[int], *, metrics: Collection[str] = METRICS
) -> pl.DataFrame:
    """Ranking metrics of every judged question, by trec_eval's conventions and in 64-bit floats.

    R is the number of relevant documents (judged, grade >= 1), r_i = 1 where the document at position i is
    relevant, g_i its grade (0 where unjudged or negative):

    * recall@k = (r_1+..+r_k)/R; precision@k = (r_1+..+r_k)/k, also where fewer are retrieved; hit@k = 1 if
      any of r_1..r_k is 1; r_precision = precision@R.
    * mrr = 1/(first i with r_i = 1), else 0; mrr@k the same, 0 beyond k.
    * map = sum over i with r_i = 1 of (r_1+..+r_i)/i, divided by R; map@k the same cut at k.
    * ndcg@k = DCG/ideal DCG, DCG = sum of g_i/log2(i+1) for i <= k; the ideal orders all judged documents by
      grade, cut at k (Jarvelin and Kekalainen 2002, with trec_eval's discount).
    * bpref = mean over the R relevant documents of 1 - min(n, R)/min(N, R), 0 for one that is not retrieved;
      N = judged documents of 0 <= grade < 1, n = those of them ranked above it (Buckley and Voorhees 2004).
    * num_rel, num_rel_ret, num_ret = R, the retrieved of these, all retrieved.

    A question without relevant documents has 0 throughout, as has one without a ranking; a question without
    qrels is left out. Source: trec_eval 9 and 10 (https://github.com/usnistgov/trec_eval).

    Args:
        qrels: `question_id`, `doc_id`, `grade` (any number); of a repeated document the best grade is kept.
        ranking: `question_id`, `doc_id`, `position` from 1, as `rank_documents` returns it. A document
            that is there twice counts once, at its first position.
        ks: cut-offs, each at least 1; repeats are ignored.
        metrics: families to compute, of `METRICS`.

    Returns:
        `question_id, metric, k, value`, ordered by question, then as in `METRICS`, then by k. `k` is null
        where the metric has no cut-off: mrr and map have both forms.

    Raises:
        UserError: a cut-off below 1, an unknown metric, a qrel without ids or without a
            finite grade.
    """
    cuts = sorted({_checked_cut(k) for k in ks})
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UserError(f"unknown ranking metrics {unknown}; known are {', '.join(METRICS)}")
    _refuse(
        qrels, ~pl.col("grade").cast(pl.Float64).is_finite().fill_null(False), "a grade that is no number"
    )
    _refuse(qrels, _is_without_id(), "a judgment without question or document id")
    questions, judged = _collect(qrels, ranking, with_num_ret="num_ret" in metrics)
    columns = {
        (name, k): values
        for name in METRICS
        if name in metrics
        for k, values in _FAMILIES[name](judged, cuts).items()
    }
    return _long_format(questions, columns)


def summarise(
    per_question: pl.DataFrame, *, seed: int = 0, n_resamples: int = 1000, confidence: float = 0.95
) -> pl.DataFrame:
    """Mean over questions of every metric, with its percentile bootstrap interval.

    Args:
        per_question: `question_id, metric, k, value`; rows whose value is null (not measured) are left out.
        seed: seed of the bootstrap.
        n_resamples: number of bootstrap resamples.
        confidence: coverage of the interval.

    Returns:
        `metric, k, value, ci_low, ci_high, n` ordered by metric and k (null first); n is the number of
        questions in the mean. Metrics that are measured on as many questions share their resamples.

    Raises:
        UserError: `n_resamples` or `confidence` is out of range.
        ValueError: a value is NaN or infinite, or a question is there twice for a metric and k.
    """
    groups = (
        per_question.lazy()
        .drop_nulls("value")
        .group_by("metric", "k")
        .agg(
            pl.col("value").cast(pl.Float64).sort_by("question_id"),
            n=pl.len().cast(pl.Int64),
            n_distinct=pl.col("question_id").n_unique(),
        )
        .sort("metric", "k")
        .collect()
    )
    repeated = groups.filter(pl.col("n") != pl.col("n_distinct"))
    if repeated.height:
        raise ValueError(f"questions are repeated for metrics {repeated['metric'].unique().sort().to_list()}")
    parts = [
        _with_intervals(group, seed=seed, n_resamples=n_resamples, confidence=confidence)
        for group in groups.partition_by("n", maintain_order=True)
    ]
    return pl.concat([_SUMMARY.to_frame(), *parts]).sort("metric", "k")


@dataclass(frozen=True)
class _Judged:
    """What the metrics are computed from; `of` arrays hold question numbers from 0, sorted.

    Rows of `hit_*` are the judged documents that are retrieved, by question and position; rows of `ideal_*`
    all judged documents, by question and falling gain.
    """

    n_questions: int
    num_ret: Floats
    ideal_of: Integers
    ideal_grade: Floats
    hit_of: Integers
    hit_position: Integers
    hit_grade: Floats

    def total(self, of: Integers, values: NDArray[np.generic] | None = None) -> Floats:
        """Sum by question (rows counted without values), row after row: the same bits on every machine."""
        return np.bincount(of, weights=values, minlength=self.n_questions).astype(np.float64)

    @cached_property
    def num_rel(self) -> Floats:
        return self.total(self.ideal_of, self.ideal_grade >= _RELEVANT)

    @cached_property
    def relevant(self) -> tuple[Integers, Integers]:
        """Question number and position of every retrieved relevant document."""
        relevant = self.hit_grade >= _RELEVANT
        return self.hit_of[relevant], self.hit_position[relevant]


_Columns = Mapping[int | None, Floats]


def _is_ordered(rows: pl.LazyFrame) -> bool:
    """Whether rows are by question, then score descending, then document id descending."""
    question, score, document = pl.col("question_id"), pl.col("score"), pl.col("doc_id")
    after = (score < score.shift(1)) | ((score == score.shift(1)) & (document <= document.shift(1)))
    in_order = (question > question.shift(1)) | ((question == question.shift(1)) & after)
    ordered: bool = rows.select(in_order.all()).collect().item()
    return ordered


def _collect(qrels: pl.DataFrame, ranking: pl.DataFrame, *, with_num_ret: bool) -> tuple[pl.Series, _Judged]:
    """Order the judgments, and join the ranking to them once."""
    judged = (
        with_canonical_ids(qrels, *_PAIR)
        .lazy()
        .group_by(_PAIR)
        .agg(pl.col("grade").cast(pl.Float64).max())
        .sort("question_id", "grade", descending=[False, True])
        .with_columns(of=pl.col("question_id").rle_id().cast(pl.Int64))
        .collect()
    )
    questions = judged["question_id"].unique(maintain_order=True)
    ranks = with_canonical_ids(ranking, *_PAIR).lazy()
    hits = (
        ranks.join(judged.lazy(), on=_PAIR)
        .group_by("of", "doc_id")
        .agg(pl.col("position").min().cast(pl.Int64), pl.col("grade").first())
        .sort("of", "position", "doc_id")
        .collect()
    )
    position = hits["position"].to_numpy()
    if (position < 1).any():
        raise ValueError("a position of the ranking is below 1")
    return questions, _Judged(
        n_questions=len(questions),
        num_ret=_lengths(ranks, questions) if with_num_ret else np.zeros(len(questions)),
        ideal_of=judged["of"].to_numpy(),
        ideal_grade=judged["grade"].to_numpy(),
        hit_of=hits["of"].to_numpy(),
        hit_position=position,
        hit_grade=hits["grade"].to_numpy(),
    )


def _lengths(ranks: pl.LazyFrame, questions: pl.Series) -> Floats:
    lengths = ranks.group_by("question_id").agg(num_ret=pl.len().cast(pl.Float64))
    joined = questions.to_frame().lazy().join(lengths, on="question_id", how="left", maintain_order="left")
    return joined.select(pl.col("num_ret").fill_null(0.0)).collect()["num_ret"].to_numpy()


def _relevant_in(judged: _Judged, k: int) -> Floats:
    of, position = judged.relevant
    return judged.total(of[position <= k])


def _recall(judged: _Judged, ks: list[int]) -> _Columns:
    return {k: _ratio(_relevant_in(judged, k), judged.num_rel) for k in ks}


def _precision(judged: _Judged, ks: list[int]) -> _Columns:
    return {k: _relevant_in(judged, k) / k for k in ks}


def _hit(judged: _Judged, ks: list[int]) -> _Columns:
    return {k: (_relevant_in(judged, k) > 0).astype(np.float64) for k in ks}


def _mrr(judged: _Judged, ks: list[int]) -> _Columns:
    of, position = judged.relevant
    first = np.full(judged.n_questions, np.inf)
    is_first = _number_within(of) == 1
    first[of[is_first]] = position[is_first]
    return {None: 1 / first} | {k: np.where(first <= k, 1 / first, 0.0) for k in ks}


def _map(judged: _Judged, ks: list[int]) -> _Columns:
    of, position = judged.relevant
    precision = _number_within(of) / position
    num_rel = judged.num_rel

    def cut_at(k: float) -> Floats:
        kept = position <= k
        return _ratio(judged.total(of[kept], precision[kept]), num_rel)

    return {None: cut_at(np.inf)} | {k: cut_at(k) for k in ks}


def _ndcg(judged: _Judged, ks: list[int]) -> _Columns:
    def dcg_at(of: Integers, position: Integers, grade: Floats) -> Callable[[int], Floats]:
        discounted = np.maximum(grade, 0.0) / np.log2(position + 1)
        return lambda k: judged.total(of[position <= k], discounted[position <= k])

    dcg = dcg_at(judged.hit_of, judged.hit_position, judged.hit_grade)
    ideal = dcg_at(judged.ideal_of, _number_within(judged.ideal_of), judged.ideal_grade)
    # The ideal is the largest sum there is; rounding may not put another order above it.
    return {k: np.minimum(_ratio(dcg(k), ideal(k)), 1.0) for k in ks}


def _r_precision(judged: _Judged, _: list[int]) -> _Columns:
    of, position = judged.relevant
    num_rel = judged.num_rel
    return {None: _ratio(judged.total(of[position <= num_rel[of]]), num_rel)}


def _bpref(judged: _Judged, _: list[int]) -> _Columns:
    def is_nonrelevant(grade: Floats) -> NDArray[np.bool_]:
        return (grade >= 0) & (grade < _RELEVANT)

    num_rel = judged.num_rel
    num_nonrel = judged.total(judged.ideal_of, is_nonrelevant(judged.ideal_grade))
    nonrelevant = is_nonrelevant(judged.hit_grade)
    seen: Floats = np.cumsum(nonrelevant, dtype=np.float64)
    first = np.searchsorted(judged.hit_of, judged.hit_of)
    above: Floats = seen - (seen - nonrelevant)[first]
    relevant = judged.hit_grade >= _RELEVANT
    of, above = judged.hit_of[relevant], above[relevant]
    share = _ratio(np.minimum(above, num_rel[of]), np.minimum(num_nonrel, num_rel)[of])
    return {None: _ratio(judged.total(of, 1 - share), num_rel)}


def _count(judged: _Judged, _: list[int], *, name: str) -> _Columns:
    match name:
        case "num_rel":
            return {None: judged.num_rel}
        case "num_rel_ret":
            return {None: judged.total(judged.relevant[0])}
        case _:
            return {None: judged.num_ret}


_FAMILIES: dict[str, Callable[[_Judged, list[int]], _Columns]] = {
    "recall": _recall,
    "precision": _precision,
    "hit": _hit,
    "mrr": _mrr,
    "map": _map,
    "ndcg": _ndcg,
    "r_precision": _r_precision,
    "bpref": _bpref,
    "num_rel": partial(_count, name="num_rel"),
    "num_rel_ret": partial(_count, name="num_rel_ret"),
    "num_ret": partial(_count, name="num_ret"),
}


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide; 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _number_within(of: Integers) -> Integers:
    """Number of each row within its question, from 1; `of` is sorted."""
    return np.arange(1, len(of) + 1) - np.searchsorted(of, of)


def _long_format(questions: pl.Series, columns: Mapping[tuple[str, int | None], Floats]) -> pl.DataFrame:
    n_questions, n_columns = len(questions), len(columns)
    if n_questions == 0 or n_columns == 0:
        return _PER_QUESTION.to_frame()
    column = np.tile(np.arange(n_columns), n_questions)
    return pl.DataFrame(
        {
            "question_id": questions.gather(np.repeat(np.arange(n_questions), n_columns)),
            "metric": pl.Series([name for name, _ in columns]).gather(column),
            "k": pl.Series([k for _, k in columns], dtype=pl.Int64).gather(column),
            "value": np.stack(list(columns.values()), axis=1).ravel(),
        },
        schema=_PER_QUESTION,
    )


def _with_intervals(group: pl.DataFrame, *, seed: int, n_resamples: int, confidence: float) -> pl.DataFrame:
    """Mean and interval of metrics that are measured on equally many questions."""
    columns = [values.to_numpy() for values in group["value"]]
    low, high = bootstrap_mean(
        np.stack(columns, axis=1), seed=seed, n_resamples=n_resamples, confidence=confidence
    )
    means = [float(np.clip(values.mean(), values.min(), values.max())) for values in columns]
    return group.select(
        "metric",
        "k",
        pl.Series("value", means),
        pl.Series("ci_low", low),
        pl.Series("ci_high", high),
        "n",
    )


def _checked_cut(k: int) -> int:
    if isinstance(k, bool) or k != int(k) or k < 1:
        raise UserError(f"a cut-off k must be an integer of at least 1, not {k!r}")
    return int(k)


def _is_without_id() -> pl.Expr:
    return pl.any_horizontal(pl.col(_PAIR).is_null())


def _refuse(frame: pl.DataFrame, wrong: pl.Expr, what: str) -> None:
    """Raise a UserError that names the first questions with a wrong row."""
    if not frame.select(wrong.any()).item():
        return
    named = frame.filter(wrong)["question_id"].unique(maintain_order=True)
    shown = ", ".join(str(name) for name in named.head(5))
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    raise UserError(f"questions with {what}: {shown}{more}")
