"""Kappa of published LLM judges, computed by the pipeline's own calibration asset.

    python benchmarks/judge_calibration.py --data FOLDER

FOLDER holds `judgements.tsv`: query_id, doc_id, human, and a column of grades for each judge.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl
import yaml
from dagster import DagsterInstance

from kbeval_pipeline.assets.calibration import calibration
from kbeval_pipeline.definitions import build_definitions

KNOWN = {"kappa": 0.286, "kappa_binary": 0.428}


def main() -> int:
    """Run the asset and compare the best judge with the known values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with judgements.tsv")
    arguments = parser.parse_args()
    grades = pl.read_csv(arguments.data / "judgements.tsv", separator="\t", infer_schema_length=None)
    labels = grades.unpivot(
        index=["query_id", "doc_id", "human"], variable_name="judge", value_name="judge_grade"
    ).rename({"human": "grade"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tables").mkdir()
        (folder / "dagster").mkdir()
        labels.write_parquet(folder / "tables" / "labels.parquet")
        evaluation = {
            "knowledge_base": "none",
            "test_table": "tables.none",
            "calibration": {"table": "tables.labels"},
        }
        project = {
            "data_sources": {"tables": {"type": "folder", "path": "tables"}},
            "knowledge_bases": {"none": {"documents": {"files": "none"}}},
            "evaluations": {"judges": evaluation},
        }
        (folder / "kbeval.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
        definitions = build_definitions(folder / "kbeval.yaml")
        with DagsterInstance.local_temp(
            str(folder / "dagster"), overrides={"telemetry": {"enabled": False}}
        ) as instance:
            run = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance, partition_key="judges", asset_selection=list(calibration.keys)
            )
        report = run.asset_value("judge_calibration")
    print("| figure | best judge | value | 95 % interval | known |\n|---|---|---|---|---|")
    off = False
    for figure, known in KNOWN.items():
        best = report.sort(figure, descending=True, nulls_last=True).row(0, named=True)
        off |= abs(best[figure] - known) > 0.0005
        interval = f"{best[f'{figure}_ci_low']:.3f} to {best[f'{figure}_ci_high']:.3f}"
        print(f"| {figure} | {best['judge']} | {best[figure]:.4f} | {interval} | {known} |")
    return int(off)


if __name__ == "__main__":
    sys.exit(main())
