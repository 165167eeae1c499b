import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ranking_metrics import (
    METRICS,
    count_repeats,
    question_ranking_metrics,
    rank_documents,
    summarise,
)

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles" / "ranking_metrics.json").read_text(encoding="utf-8")
)
CUTS = [1, 3, 5, 10, 20, 100]
SCORED = [q for q in ORACLE["queries"] if q["expected"] is not None]

Row = tuple[str, str, float]


def chunks_of(rows: list[Row]) -> pl.DataFrame:
    schema = {"question_id": pl.String, "doc_id": pl.String, "score": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").with_row_index("rank", offset=1)


def qrels_of(rows: list[Row]) -> pl.DataFrame:
    schema = {"question_id": pl.String, "doc_id": pl.String, "grade": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def measure(qrels: list[Row], chunks: list[Row], ks: list[int] = CUTS) -> dict[str, dict[str, float]]:
    result = question_ranking_metrics(qrels_of(qrels), rank_documents(chunks_of(chunks)), ks)
    measured: dict[str, dict[str, float]] = {}
    for question, metric, k, value in result.iter_rows():
        measured.setdefault(question, {})[metric if k is None else f"{metric}@{k}"] = value
    return measured


def oracle_rows(part: str, value: str) -> list[Row]:
    return [(q["query_id"], r["doc_id"], r[value]) for q in ORACLE["queries"] for r in q[part]]


def test_every_case_of_trec_eval() -> None:
    measured = measure(oracle_rows("qrels", "grade"), oracle_rows("run", "score"))
    assert sorted(measured) == sorted(q["query_id"] for q in SCORED)
    for query in SCORED:
        expected = query.get("expected_float64", query["expected"])
        got = {name: measured[query["query_id"]][name] for name in ORACLE["metrics"]}
        assert got == pytest.approx(expected, abs=ORACLE["tolerance"]), query["case"]


def reference(qrels: dict[str, float], scores: dict[str, float], ks: list[int]) -> dict[str, float]:
    """One question, written down from the definitions with no regard to speed."""
    ranking = sorted(scores, key=lambda d: (scores[d], d.encode()), reverse=True)
    grades = [qrels.get(d) for d in ranking]
    gains = [max(g or 0.0, 0.0) for g in grades]
    ideal = sorted((max(g, 0.0) for g in qrels.values()), reverse=True)
    relevant = [int(g is not None and g >= 1) for g in grades]
    num_rel = sum(g >= 1 for g in qrels.values())
    num_nonrel = sum(0 <= g < 1 for g in qrels.values())
    first = relevant.index(1) + 1 if 1 in relevant else math.inf

    def dcg(values: list[float], k: int) -> float:
        return sum(v / math.log2(i + 2) for i, v in enumerate(values[:k]))

    def average_precision(k: int) -> float:
        hits = [sum(relevant[: i + 1]) / (i + 1) for i, r in enumerate(relevant[:k]) if r]
        return sum(hits) / num_rel if num_rel else 0.0

    bpref = 0.0
    for i, is_relevant in enumerate(relevant):
        if is_relevant:
            above = sum(g is not None and 0 <= g < 1 for g in grades[:i])
            bpref += 1 - (min(above, num_rel) / min(num_nonrel, num_rel) if above else 0)
    values = {
        "mrr": 1 / first,
        "map": average_precision(len(ranking)),
        "r_precision": sum(relevant[:num_rel]) / num_rel if num_rel else 0.0,
        "bpref": bpref / num_rel if num_rel else 0.0,
        "num_rel": num_rel,
        "num_rel_ret": sum(relevant),
        "num_ret": len(ranking),
    }
    for k in ks:
        found = sum(relevant[:k])
        values[f"recall@{k}"] = found / num_rel if num_rel else 0.0
        values[f"precision@{k}"] = found / k
        values[f"hit@{k}"] = float(found > 0)
        values[f"mrr@{k}"] = 1 / first if first <= k else 0.0
        values[f"map@{k}"] = average_precision(k)
        values[f"ndcg@{k}"] = dcg(gains, k) / dcg(ideal, k) if dcg(ideal, k) else 0.0
    return values


IDS = st.sampled_from(["a", "B", "10", "9", "dé", "日本", "\U0001f600", "\ue000", "z"])
QUESTIONS = st.sampled_from(["q1", "q2", "Q", "é"])
SCORES = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, 1.000000001, 7.0, math.inf])
GRADES = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
CHUNK_ROWS = st.lists(st.tuples(QUESTIONS, IDS, SCORES), max_size=40)
QREL_ROWS = st.lists(st.tuples(QUESTIONS, IDS, GRADES), max_size=30)


def best_by_pair(rows: list[Row]) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    for question, document, value in rows:
        values = best.setdefault(question, {})
        values[document] = max(value, values.get(document, -math.inf))
    return best


@settings(max_examples=200, deadline=None)
@given(QREL_ROWS, CHUNK_ROWS)
def test_agrees_with_the_definitions(qrels: list[Row], chunks: list[Row]) -> None:
    measured = measure(qrels, chunks, [1, 2, 5])
    judged, scores = best_by_pair(qrels), best_by_pair(chunks)
    assert list(measured) == sorted(judged, key=str.encode)
    for question, values in measured.items():
        expected = reference(judged[question], scores.get(question, {}), [1, 2, 5])
        assert values == pytest.approx(expected, abs=1e-12)


def test_dense_rankings_agree_with_the_definitions() -> None:
    random = Random(1)
    questions = [f"q{i}" for i in range(150)]
    documents = [f"d{i}" for i in range(30)]
    grades = [-2.0, -1.0, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0]
    chunks = [(q, d, random.randrange(12) / 4) for q in questions for d in random.choices(documents, k=25)]
    qrels = [
        (q, d, random.choice(grades))
        for q in questions
        for d in random.sample(documents, random.randrange(1, 25))
    ]
    judged, scores = best_by_pair(qrels), best_by_pair(chunks)
    for question, values in measure(qrels, chunks).items():
        expected = reference(judged[question], scores[question], CUTS)
        assert values == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(QREL_ROWS, CHUNK_ROWS)
def test_bounds_and_monotony(qrels: list[Row], chunks: list[Row]) -> None:
    ks = list(range(1, 8))
    for values in measure(qrels, chunks, ks).values():
        assert all(0 <= v <= 1 for name, v in values.items() if not name.startswith("num_"))
        for name in ("recall", "hit", "mrr", "map"):
            curve = [values[f"{name}@{k}"] for k in ks]
            assert curve == sorted(curve)


@settings(max_examples=100, deadline=None)
@given(QREL_ROWS, CHUNK_ROWS, st.randoms(use_true_random=False))
def test_row_order_does_not_change_a_bit(qrels: list[Row], chunks: list[Row], random: Any) -> None:
    shuffled_qrels = random.sample(qrels, len(qrels))
    shuffled_chunks = random.sample(chunks, len(chunks))
    assert measure(shuffled_qrels, shuffled_chunks) == measure(qrels, chunks)


def test_many_rows_in_another_order_give_the_same_bits() -> None:
    n_questions, n_chunks = 300, 60
    chunks = pl.DataFrame(
        {
            "question_id": [f"q{i}" for i in range(n_questions) for _ in range(n_chunks)],
            "doc_id": [f"d{(i * 7 + j * 13) % 97}" for i in range(n_questions) for j in range(n_chunks)],
            "score": [(i * j) % 11 / 7 for i in range(n_questions) for j in range(n_chunks)],
        }
    )
    qrels = chunks.gather_every(3).with_columns(grade=pl.int_range(pl.len()) % 5 / 1.7).drop("score")
    first = question_ranking_metrics(qrels, rank_documents(chunks), CUTS)
    mixed_chunks, mixed_qrels = (f.sample(fraction=1, shuffle=True, seed=4) for f in (chunks, qrels))
    again = question_ranking_metrics(mixed_qrels, rank_documents(mixed_chunks), CUTS)
    assert_frame_equal(first, again, check_exact=True)
    mixed = first.sample(fraction=1, shuffle=True, seed=5)
    assert_frame_equal(summarise(first, n_resamples=50), summarise(mixed, n_resamples=50), check_exact=True)


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9))
def test_the_ideal_ranking_has_ndcg_1(grades: list[float]) -> None:
    qrels = [("q", str(i), grade) for i, grade in enumerate(grades)]
    values = measure(qrels, qrels)["q"]
    assert all(values[f"ndcg@{k}"] == 1.0 for k in CUTS)


@settings(max_examples=100, deadline=None)
@given(CHUNK_ROWS)
def test_rows_that_are_already_ordered_give_the_same_ranking(chunks: list[Row]) -> None:
    ordered = sorted(chunks, key=lambda row: row[1].encode(), reverse=True)
    ordered.sort(key=lambda row: row[2], reverse=True)
    ordered.sort(key=lambda row: row[0].encode())
    ranking = rank_documents(chunks_of(ordered))
    assert_frame_equal(ranking, rank_documents(chunks_of(ordered[::-1])))
    best = best_by_pair(chunks)
    expected = [
        (question, document, position)
        for question in sorted(best, key=str.encode)
        for position, document in enumerate(
            sorted(best[question], key=lambda d: (best[question][d], d.encode()), reverse=True), 1
        )
    ]
    assert ranking.rows() == expected


def test_rounding_puts_no_ranking_above_the_ideal() -> None:
    # Added in this order, the discounted gains round to more than the ideal's.
    grades = [1.0, 1.0, 1 + 2**-52, 1 + 2**-52]
    qrels = [("q", str(i), grade) for i, grade in enumerate(grades)]
    chunks = [("q", str(i), -float(i)) for i in range(4)]
    assert measure(qrels, chunks)["q"]["ndcg@10"] == 1.0


def test_equal_scores_fall_by_utf8_bytes() -> None:
    # In UTF-16 order U+E000 would be above the emoji, which is a surrogate pair there.
    ids = ["\ue000", "a", "\U0001f600", "B", "é"]
    ranking = rank_documents(chunks_of([("q", d, 1.0) for d in ids]))
    assert ranking["doc_id"].to_list() == ["\U0001f600", "\ue000", "é", "a", "B"]
    assert ranking["position"].to_list() == [1, 2, 3, 4, 5]


def test_signed_zeros_tie() -> None:
    ranking = rank_documents(chunks_of([("q", "a", 0.0), ("q", "b", -0.0)]))
    assert ranking["doc_id"].to_list() == ["b", "a"]


def test_a_document_stands_where_its_best_chunk_stands() -> None:
    chunks = chunks_of([("q", "a", 1.0), ("q", "b", 2.0), ("q", "a", 3.0), ("r", "a", 1.0)])
    ranking = rank_documents(chunks)
    assert ranking.rows() == [("q", "a", 1), ("q", "b", 2), ("r", "a", 1)]
    assert ranking.schema == {"question_id": pl.String, "doc_id": pl.String, "position": pl.Int64}
    assert count_repeats(chunks) == 1
    assert count_repeats(ranking) == 0


def test_no_chunks_give_an_empty_typed_ranking() -> None:
    ranking = rank_documents(chunks_of([]))
    assert ranking.height == 0
    assert ranking.schema == {"question_id": pl.String, "doc_id": pl.String, "position": pl.Int64}


def test_ids_of_other_types_are_the_same_ids() -> None:
    chunks = pl.DataFrame({"question_id": [1, 1], "doc_id": [2.0, 3.0], "score": [2, 1]})
    qrels = pl.DataFrame({"question_id": ["1"], "doc_id": ["2"], "grade": [1]})
    result = question_ranking_metrics(qrels, rank_documents(chunks), [1], metrics=["hit"])
    assert result.rows() == [("1", "hit", 1, 1.0)]


def test_a_repeated_judgment_keeps_the_best_grade() -> None:
    qrels = [("q", "a", 0.0), ("q", "a", 2.0), ("q", "b", 1.0)]
    assert count_repeats(qrels_of(qrels)) == 1
    values = measure(qrels, [("q", "a", 2.0), ("q", "b", 1.0)])["q"]
    assert values["num_rel"] == 2
    assert values["ndcg@10"] == 1.0


def test_a_document_twice_in_a_ranking_counts_once() -> None:
    ranking = pl.DataFrame({"question_id": ["q"] * 3, "doc_id": ["a", "a", "b"], "position": [1, 2, 3]})
    qrels = qrels_of([("q", "a", 1.0), ("q", "b", 1.0)])
    result = question_ranking_metrics(qrels, ranking, [3], metrics=["ndcg", "recall", "num_rel_ret"])
    ideal = 1 + 1 / math.log2(3)
    assert result["value"].to_list() == pytest.approx([1.0, (1 + 0.5) / ideal, 2.0])


@pytest.mark.parametrize("wrong", [None, float("nan")])
def test_scores_that_are_none_are_refused(wrong: float | None) -> None:
    rows: list[Any] = [(f"q{i}", "a", wrong) for i in range(7)] + [("fine", "a", 1.0)]
    with pytest.raises(UserError, match="null or NaN score: q0, q1, q2, q3, q4 and 2 more") as error:
        rank_documents(chunks_of(rows))
    assert "fine" not in str(error.value)


def test_a_chunk_without_document_is_refused() -> None:
    rows: list[Any] = [("q7", None, 1.0)]
    with pytest.raises(UserError, match="document id: q7"):
        rank_documents(chunks_of(rows))


@pytest.mark.parametrize("grade", [None, math.nan, math.inf])
def test_grades_that_are_no_numbers_are_refused(grade: float | None) -> None:
    rows: list[Any] = [("q7", "a", grade)]
    with pytest.raises(UserError, match=r"grade .*: q7"):
        question_ranking_metrics(qrels_of(rows), rank_documents(chunks_of([])), [1])


def test_judgments_without_ids_are_refused() -> None:
    rows: list[Any] = [("q7", None, 1.0)]
    with pytest.raises(UserError, match=r"judgment .*: q7"):
        question_ranking_metrics(qrels_of(rows), rank_documents(chunks_of([])), [1])


@pytest.mark.parametrize("k", [0, -1, True, 1.5])
def test_cut_offs_out_of_range(k: Any) -> None:
    with pytest.raises(UserError, match="cut-off"):
        question_ranking_metrics(qrels_of([]), rank_documents(chunks_of([])), [k])


def test_unknown_metrics_are_named() -> None:
    with pytest.raises(UserError, match=r"\['err'\].*recall"):
        question_ranking_metrics(qrels_of([]), rank_documents(chunks_of([])), [1], metrics=["err"])


def test_a_position_below_1_is_refused() -> None:
    ranking = pl.DataFrame({"question_id": ["q"], "doc_id": ["a"], "position": [0]})
    with pytest.raises(ValueError, match="below 1"):
        question_ranking_metrics(qrels_of([("q", "a", 1.0)]), ranking, [1])


def test_order_and_types_of_the_result() -> None:
    qrels, chunks = [("q2", "a", 1.0), ("q1", "a", 1.0)], [("q1", "a", 1.0)]
    result = question_ranking_metrics(qrels_of(qrels), rank_documents(chunks_of(chunks)), [10, 1, 10])
    assert result["question_id"].unique(maintain_order=True).to_list() == ["q1", "q2"]
    assert result["metric"].unique(maintain_order=True).to_list() == list(METRICS)
    assert result.filter(metric="recall", question_id="q1")["k"].to_list() == [1, 10]
    assert result.filter(metric="map", question_id="q1")["k"].to_list() == [None, 1, 10]
    assert result.schema == {
        "question_id": pl.String,
        "metric": pl.String,
        "k": pl.Int64,
        "value": pl.Float64,
    }


@pytest.mark.parametrize("metrics", [METRICS, ()])
def test_no_judgments_give_an_empty_typed_frame(metrics: tuple[str, ...]) -> None:
    ranking = rank_documents(chunks_of([("q", "a", 1.0)]))
    result = question_ranking_metrics(qrels_of([]), ranking, CUTS, metrics=metrics)
    assert result.height == 0
    assert result.schema["value"] == pl.Float64
    assert summarise(result).columns == ["metric", "k", "value", "ci_low", "ci_high", "n"]


def per_question(rows: Sequence[tuple[str, str, int | None, float | None]]) -> pl.DataFrame:
    schema = {"question_id": pl.String, "metric": pl.String, "k": pl.Int64, "value": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_summary_is_the_mean_over_measured_questions() -> None:
    frame = per_question(
        [
            ("a", "ndcg", 10, 0.0),
            ("b", "ndcg", 10, 1.0),
            ("c", "ndcg", 10, 0.5),
            ("a", "mrr", None, 0.25),
            ("b", "mrr", None, None),
        ]
    )
    summary = summarise(frame)
    assert summary.select("metric", "k", "value", "n").rows() == [
        ("mrr", None, 0.25, 1),
        ("ndcg", 10, 0.5, 3),
    ]
    mrr, ndcg = summary.iter_rows(named=True)
    assert mrr["ci_low"] == mrr["ci_high"] == 0.25
    assert 0 <= ndcg["ci_low"] < 0.5 < ndcg["ci_high"] <= 1


def test_summary_depends_on_seed_and_confidence() -> None:
    frame = per_question([(f"q{i}", "mrr", None, i * i % 17 / 17) for i in range(40)])
    default, other = summarise(frame), summarise(frame, seed=1)
    assert default["value"].to_list() == other["value"].to_list()
    assert default["ci_low"].to_list() != other["ci_low"].to_list()
    assert summarise(frame, confidence=0.5)["ci_low"][0] > default["ci_low"][0]


def test_metrics_of_the_same_questions_share_their_resamples() -> None:
    values = [i * i % 17 / 17 for i in range(40)]
    frame = per_question(
        [(f"q{i}", "hit", None, v) for i, v in enumerate(values)]
        + [(f"q{i}", "miss", None, 1 - v) for i, v in enumerate(values)]
    )
    hit, miss = summarise(frame).iter_rows(named=True)
    assert (hit["ci_low"], hit["ci_high"]) == pytest.approx(
        (1 - miss["ci_high"], 1 - miss["ci_low"]), abs=1e-12
    )


def test_repeated_questions_are_refused() -> None:
    frame = per_question([("a", "mrr", None, 1.0), ("a", "mrr", None, 0.0)])
    with pytest.raises(ValueError, match="mrr"):
        summarise(frame)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        summarise(per_question([("a", "mrr", None, math.nan)]))
