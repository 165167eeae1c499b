"""The share of failed searches and of failed judgments, as blocking checks."""

import polars as pl
from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    PartitionsDefinition,
    asset_check,
)

from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.resources.project import ProjectResource


def failure_rate_checks(partitions: PartitionsDefinition[str]) -> list[AssetChecksDefinition]:
    """Make the checks that stop a run in which too many searches or judgments failed.

    Args:
        partitions: one partition for each evaluation.
    """
    return [
        _failure_rate_check("question_searches", "searches", partitions),
        _failure_rate_check("relevance_judgments", "judgments", partitions),
    ]


def _failure_rate_check(
    table: str, what: str, partitions: PartitionsDefinition[str]
) -> AssetChecksDefinition:
    @asset_check(
        asset=table,
        description=f"The share of failed {what} is at most `max_failure_rate`.",
        blocking=True,
        partitions_def=partitions,
    )
    def failure_rate(
        context: AssetCheckExecutionContext, project: ProjectResource, rows: pl.DataFrame
    ) -> AssetCheckResult:
        allowed = project.evaluation(context.partition_key).max_failure_rate
        failed = rows.filter(pl.col("status") == "failed")
        share = failed.height / rows.height if rows.height else 0.0
        causes = failed.group_by("error").len("rows").sort("rows", "error", descending=[True, False])
        passed = failed.is_empty() or (share <= allowed and failed.height < rows.height)
        return AssetCheckResult(
            passed=passed,
            severity=AssetCheckSeverity.ERROR,
            description=None
            if passed
            else f"{failed.height} of {rows.height} {what} failed, allowed is a share of {allowed:g}; "
            f"most often: {causes['error'][0]}",
            metadata={
                "failed": failed.height,
                "share": share,
                "allowed": allowed,
                "causes": markdown_table(causes),
            },
        )

    return failure_rate
