"""Ranking metrics: this package, ranx and pytrec_eval on the same data, in the same run.

    python benchmarks/ranking_metrics.py --questions 10000 --chunks 100 --repeats 3

Each tool runs in a process of its own, from the same two Polars frames. Needs the extra `peers`.
"""

import argparse
import importlib.util
import multiprocessing
import os
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl

K = 10
FAMILIES = ("ndcg", "recall", "precision", "hit", "mrr", "map")
# ours -> (ranx, pytrec_eval's measure, pytrec_eval's result)
NAMES = {
    "ndcg@10": ("ndcg@10", "ndcg_cut.10", "ndcg_cut_10"),
    "recall@10": ("recall@10", "recall.10", "recall_10"),
    "precision@10": ("precision@10", "P.10", "P_10"),
    "hit@10": ("hit_rate@10", "success.10", "success_10"),
    "mrr": ("mrr", "recip_rank", "recip_rank"),
    "map": ("map", "map", "map"),
}
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Measured:
    """What one tool did: best times in seconds, means by metric, resident memory in MB."""

    build: float
    evaluate: float
    first_evaluate: float
    means: dict[str, float]
    memory_of_data: float
    memory_peak: float


def make_data(
    n_questions: int, n_chunks: int, *, shuffle: bool, seed: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make chunks as a knowledge base returns them (a fifth repeats a document) and graded judgments.

    Scores are distinct within a question even in 32 bits, as pytrec_eval keeps no more: ties would be
    broken differently and the values would not compare.
    """
    rng = np.random.default_rng(seed)
    n_rows, n_documents = n_questions * n_chunks, max(1000, n_questions * 10)
    documents = rng.integers(n_documents, size=n_rows)
    repeats = rng.random(n_rows) < 0.2
    repeats[::n_chunks] = False
    documents[repeats] = documents[np.flatnonzero(repeats) - 1]
    rank = np.tile(np.arange(1, n_chunks + 1), n_questions)
    question = pl.col("question").cast(pl.String).str.zfill(7)
    chunks = pl.DataFrame(
        {
            "question": np.repeat(np.arange(n_questions), n_chunks),
            "rank": rank,
            "document": documents,
            "score": (1 - (rank - rng.random(n_rows) / 2) / (n_chunks + 1)).astype(np.float32),
        }
    ).select(
        ("q" + question).alias("question_id"),
        "rank",
        ("doc-" + pl.col("document").cast(pl.String)).alias("doc_id"),
        pl.col("score").cast(pl.Float64),
    )
    # Per question four retrieved documents, likelier near the top, and two that no chunk belongs to.
    drawn = (rng.beta(1, 4, size=(n_questions, 4)) * n_chunks).astype(np.int64)
    retrieved = chunks[(drawn + np.arange(n_questions)[:, None] * n_chunks).ravel()]
    questions = retrieved["question_id"].gather_every(4)
    missed = pl.DataFrame(
        {
            "question_id": pl.concat([questions, questions]),
            "doc_id": ["missed-a"] * n_questions + ["missed-b"] * n_questions,
        }
    )
    qrels = pl.concat([retrieved.select("question_id", "doc_id"), missed]).unique(maintain_order=True)
    qrels = qrels.with_columns(grade=pl.Series(rng.integers(0, 4, size=qrels.height)))
    if shuffle:
        return chunks.sample(fraction=1, shuffle=True, seed=seed), qrels.sample(
            fraction=1, shuffle=True, seed=seed
        )
    return chunks, qrels


def nested_dict(frame: pl.DataFrame, value: str) -> dict[str, dict[str, Any]]:
    """The peers' input, question -> document -> value, as fast as we know how to build it."""
    lists = frame.group_by("question_id").agg(pl.col("doc_id"), pl.col(value)).rows()
    return {question: dict(zip(documents, values, strict=True)) for question, documents, values in lists}


def best_chunks(chunks: pl.DataFrame) -> pl.DataFrame:
    """One row per question and document: what a dict would otherwise decide by chance."""
    return chunks.lazy().group_by("question_id", "doc_id").agg(pl.col("score").max()).collect()


def ours() -> tuple[Callable[..., Any], Callable[..., dict[str, float]]]:
    """Nothing to build: the evaluation starts from the raw frames and ranks the documents itself."""
    from kbeval_pipeline.evaluation.ranking_metrics import (  # noqa: PLC0415 - a process loads its own tool
        question_ranking_metrics,
        rank_documents,
    )

    def evaluate(frames: tuple[pl.DataFrame, pl.DataFrame]) -> dict[str, float]:
        chunks, qrels = frames
        result = question_ranking_metrics(qrels, rank_documents(chunks), [K], metrics=FAMILIES)
        means = result.group_by("metric", "k").agg(pl.col("value").mean()).rows()
        return {name if k is None else f"{name}@{k}": value for name, k, value in means}

    return lambda chunks, qrels: (chunks, qrels), evaluate


def ranx() -> tuple[Callable[..., Any], Callable[..., dict[str, float]]]:
    """Qrels and Run from dicts."""
    from ranx import Qrels, Run, evaluate  # type: ignore[import-untyped]  # noqa: PLC0415

    def build(chunks: pl.DataFrame, qrels: pl.DataFrame) -> Any:
        run = Run.from_dict(nested_dict(best_chunks(chunks), "score"))
        return Qrels.from_dict(nested_dict(qrels, "grade")), run

    def means(built: Any) -> dict[str, float]:
        result = evaluate(*built, [names[0] for names in NAMES.values()], make_comparable=True)
        return {name: float(result[theirs]) for name, (theirs, _, _) in NAMES.items()}

    return build, means


def pytrec_eval() -> tuple[Callable[..., Any], Callable[..., dict[str, float]]]:
    """An evaluator of the qrels' dict, and the run's dict."""
    from pytrec_eval import RelevanceEvaluator  # noqa: PLC0415

    def build(chunks: pl.DataFrame, qrels: pl.DataFrame) -> Any:
        measures = {names[1] for names in NAMES.values()}
        evaluator = RelevanceEvaluator(nested_dict(qrels, "grade"), measures)
        return evaluator, nested_dict(best_chunks(chunks), "score")

    def means(built: Any) -> dict[str, float]:
        evaluator, run = built
        rows = evaluator.evaluate(run).values()
        return {name: float(np.mean([row[theirs] for row in rows])) for name, (_, _, theirs) in NAMES.items()}

    return build, means


TOOLS = {"kbeval-pipeline": ours, "ranx": ranx, "pytrec_eval": pytrec_eval}


def resident_peak() -> float:
    """Largest resident memory of this process so far, MB."""
    # Kilobytes on Linux, bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def measure(tool: str, n_questions: int, n_chunks: int, repeats: int, shuffle: bool) -> Measured:
    """Measure one tool; runs in a process of its own."""
    warnings.filterwarnings("ignore")
    chunks, qrels = make_data(n_questions, n_chunks, shuffle=shuffle)
    build, evaluate = TOOLS[tool]()
    memory_of_data = resident_peak()
    build_times, evaluate_times, means = [], [], {}
    for _ in range(repeats + 1):
        started = time.perf_counter()
        built = build(chunks, qrels)
        ready = time.perf_counter()
        # ranx sorts its run in place: a second evaluation of the same object would be cheaper.
        means = evaluate(built)
        build_times.append(ready - started)
        evaluate_times.append(time.perf_counter() - ready)
        del built
    return Measured(
        build=min(build_times[1:]),
        evaluate=min(evaluate_times[1:]),
        first_evaluate=evaluate_times[0],
        means=means,
        memory_of_data=memory_of_data,
        memory_peak=resident_peak(),
    )


def check_agreement(results: dict[str, Measured]) -> float:
    """Largest difference from our means over all peers and metrics; exits if above the tolerance."""
    mine = results["kbeval-pipeline"].means
    gaps = {
        (tool, name): abs(result.means[name] - mine[name])
        for tool, result in results.items()
        for name in NAMES
    }
    worst = max(gaps, key=lambda key: gaps[key])
    if not gaps[worst] <= TOLERANCE:
        sys.exit(f"values differ: {worst[0]}, {worst[1]}: {gaps[worst]:.2e}")
    return gaps[worst]


def report(results: dict[str, Measured], arguments: argparse.Namespace) -> None:
    """Print the Markdown tables."""
    mine = results["kbeval-pipeline"]
    packages = ("polars", "numpy", "ranx", "numba", "pytrec-eval-terrier")
    print(
        f"{arguments.questions:,} questions x {arguments.chunks} chunks"
        f"{' in shuffled rows' if arguments.shuffle else ''}, best of {arguments.repeats}; "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in packages)
    )
    print(f"Metrics: {', '.join(NAMES)}. Ours ranks the documents within its evaluation time.\n")
    print(
        "| tool | build inputs, s | evaluate, s | total, s | evaluate / ours | total / ours "
        "| first evaluation, s | peak memory, MB | above the data, MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for tool, r in results.items():
        total = r.build + r.evaluate
        print(
            f"| {tool} | {r.build:.3f} | {r.evaluate:.3f} | {total:.3f} | {r.evaluate / mine.evaluate:.1f} "
            f"| {total / (mine.build + mine.evaluate):.1f} | {r.first_evaluate:.3f} "
            f"| {r.memory_peak:.0f} | {r.memory_peak - r.memory_of_data:.0f} |"
        )
    print(f"\nLargest difference of a mean: {check_agreement(results):.1e}")
    print("| metric | " + " | ".join(results) + " |\n|---|" + "---|" * len(results))
    for name in NAMES:
        print(f"| {name} | " + " | ".join(f"{r.means[name]:.9f}" for r in results.values()) + " |")


def positive(text: str) -> int:
    """Parse a command line number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main() -> None:
    """Run every tool in a new process and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=positive, default=10_000)
    parser.add_argument("--chunks", type=positive, default=100)
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument("--shuffle", action="store_true", help="hand over the rows in random order")
    arguments = parser.parse_args()
    missing = [name for name in ("ranx", "pytrec_eval") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} not installed: pip install 'kbeval-pipeline[peers]'")
    results = {}
    context = multiprocessing.get_context("spawn")
    for tool in TOOLS:
        with context.Pool(1) as pool:
            results[tool] = pool.apply(
                measure,
                (tool, arguments.questions, arguments.chunks, arguments.repeats, arguments.shuffle),
            )
    report(results, arguments)


if __name__ == "__main__":
    main()
