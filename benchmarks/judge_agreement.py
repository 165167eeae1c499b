"""Agreement of 33 LLM judges with human labels: kappas that are known, computed by this package.

    python benchmarks/judge_agreement.py --data ../shared/data/ir/llmjudge

The folder holds `judgements.tsv`: `query_id`, `doc_id`, `human` and one column for each judge, grades 0-3
(llm4eval/LLMJudge-benchmark, MIT). A grade off that scale counts as failed. Exits with 1 if the best kappas
are not the known ones.
"""

import argparse
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from kbeval_pipeline.evaluation.agreement import calibration_report

SCALE = (0, 1, 2, 3)
RELEVANT = 2
CONSTANT = "(always 0)"
KNOWN = {"kappa": 0.286, "kappa_binary": 0.428}
TOLERANCE = 0.0005
COLUMNS = {
    "kappa": "kappa, 4 grades",
    "kappa_binary": f"kappa, grade >= {RELEVANT}",
    "kappa_linear": "linear",
    "kappa_quadratic": "quadratic",
    "bias": "bias",
}


def read_labels(folder: Path) -> pl.DataFrame:
    """Long format of the judgments, with one more judge that always says grade 0."""
    path = folder / "judgements.tsv"
    if not path.is_file():
        sys.exit(f"{path} is absent: give the folder of the LLMJudge judgments with --data")
    wide = pl.read_csv(path, separator="\t").with_columns(pl.lit(0, dtype=pl.Int64).alias(CONSTANT))
    return wide.unpivot(
        index=["query_id", "doc_id", "human"], variable_name="judge", value_name="judge_grade"
    ).rename({"human": "human_grade"})


def with_interval(row: dict[str, Any], name: str) -> str:
    """Value and interval, three decimals."""
    if row[name] is None:
        return "not defined"
    return f"{row[name]:.3f} ({row[f'{name}_ci_low']:.3f} to {row[f'{name}_ci_high']:.3f})"


def main() -> None:
    """Print the table and check the known values."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds judgements.tsv")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    labels = read_labels(arguments.data)
    started = time.perf_counter()
    report = calibration_report(
        labels, threshold=RELEVANT, scale=SCALE, seed=arguments.seed, n_resamples=arguments.resamples
    )
    seconds = time.perf_counter() - started
    base_rate = report["base_rate"].to_list()[0]
    report = report.sort("kappa", "judge", descending=[True, False], nulls_last=True)
    print(
        f"{report.height} judges, {labels.height:,} labels, {arguments.resamples} resamples: "
        f"{seconds:.2f} s. "
        f"Python {platform.python_version()}, polars {version('polars')}, numpy {version('numpy')}. "
        f"Base rate (human grade >= {RELEVANT}): {base_rate:.3f}. In brackets: 95 % interval.\n"
    )
    print(f"| judge | {' | '.join(COLUMNS.values())} | accuracy, 4 grades | accuracy, binary | n | failed |")
    print("|---" * (len(COLUMNS) + 5) + "|")
    for row in report.iter_rows(named=True):
        cells = [with_interval(row, name) for name in COLUMNS]
        print(
            f"| {row['judge']} | {' | '.join(cells)} | {row['accuracy']:.3f} | {row['accuracy_binary']:.3f} "
            f"| {row['n']} | {row['n_failed']} |"
        )
    print()
    wrong = False
    for name, known in KNOWN.items():
        best = report.sort(name, descending=True, nulls_last=True).row(0, named=True)
        agrees = abs(best[name] - known) <= TOLERANCE
        wrong |= not agrees
        print(
            f"Best {COLUMNS[name]}: {best['judge']} {best[name]:.4f}, known {known}: "
            f"{'agrees' if agrees else 'DIFFERS'}"
        )
    sys.exit(wrong)


if __name__ == "__main__":
    main()
