"""Judge calibration: how well the judge agrees with people."""

from typing import Any

import polars as pl
from dagster import AssetExecutionContext, Output, multi_asset

from kbeval_pipeline.assets.judge_work import judge_pairs
from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.assets.stage import readable_failures, table_out
from kbeval_pipeline.evaluation.agreement import calibration_report, confusion_matrix
from kbeval_pipeline.evaluation.calibration import (
    GRADES,
    calibration_pairs,
    is_recorded,
    judged_labels,
    recorded_labels,
)
from kbeval_pipeline.evaluation.panels import with_panel
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.settings import TableName
from kbeval_pipeline.tables import JUDGE_CALIBRATION, JUDGE_CONFUSION


@multi_asset(
    name="calibration",
    outs={table.name: table_out(table, "judging") for table in (JUDGE_CALIBRATION, JUDGE_CONFUSION)},
)
@readable_failures
def calibration(
    context: AssetExecutionContext, project: ProjectResource, warehouse: Warehouse
) -> tuple[Output[pl.DataFrame], Output[pl.DataFrame]]:
    """Compare the judge with human labels; no row where the evaluation names none."""
    evaluation = project.evaluation(context.partition_key)
    how = evaluation.calibration
    if how is None:
        note = {"note": "the evaluation names no human labels"}
        return (
            Output(JUDGE_CALIBRATION.frame(), metadata=note),
            Output(JUDGE_CONFUSION.frame(), metadata=note),
        )
    labels = project.data_sources().read_table(TableName.parse(how.table))
    spent: dict[str, Any] = {}
    if is_recorded(labels, how.table):
        graded = recorded_labels(labels)
    else:
        pairs = calibration_pairs(labels, how.table)
        judgments = []
        for settings in project.judges(evaluation):
            rows, usage = judge_pairs(
                context, project, warehouse, evaluation, settings, pairs.drop("grade"), "calibration"
            )
            judgments.append(rows)
            spent.update(usage)
        graded = judged_labels(pairs, with_panel(pl.concat(judgments)))
    report = calibration_report(graded, threshold=how.binary_threshold, scale=GRADES, seed=evaluation.seed)
    confusion = confusion_matrix(graded, scale=GRADES)
    best = report.sort("kappa", descending=True, nulls_last=True).row(0, named=True)
    shown = report.sort("kappa", descending=True, nulls_last=True).select(
        "judge", "n", "kappa", "kappa_ci_low", "kappa_ci_high", "kappa_binary", "kappa_quadratic", "bias"
    )
    numbers = {name: best[name] for name in ("kappa", "kappa_binary", "bias") if best[name] is not None}
    return (
        Output(
            JUDGE_CALIBRATION.conform(report),
            metadata={**numbers, "judge": best["judge"], "judges": markdown_table(shown), **spent},
        ),
        Output(JUDGE_CONFUSION.conform(confusion), metadata={"counts": markdown_table(confusion, rows=32)}),
    )
