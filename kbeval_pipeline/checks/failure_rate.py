"""The share of failed searches, as a blocking check."""

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


def failure_rate_check(partitions: PartitionsDefinition[str]) -> AssetChecksDefinition:
    """Make the check that stops a run in which too many searches failed.

    Args:
        partitions: one partition for each evaluation.
    """

    @asset_check(
        asset="question_searches",
        description="The share of failed searches is at most `max_failure_rate`.",
        blocking=True,
        partitions_def=partitions,
    )
    def failure_rate(
        context: AssetCheckExecutionContext, project: ProjectResource, question_searches: pl.DataFrame
    ) -> AssetCheckResult:
        allowed = project.evaluation(context.partition_key).max_failure_rate
        failed = question_searches.filter(pl.col("status") == "failed")
        share = failed.height / question_searches.height
        causes = (
            failed.group_by("error").len("questions").sort("questions", "error", descending=[True, False])
        )
        passed = share <= allowed and failed.height < question_searches.height
        return AssetCheckResult(
            passed=passed,
            severity=AssetCheckSeverity.ERROR,
            description=None
            if passed
            else f"{failed.height} of {question_searches.height} searches failed, allowed is a share of "
            f"{allowed:g}; most often: {causes['error'][0]}",
            metadata={
                "failed": failed.height,
                "share": share,
                "allowed": allowed,
                "causes": markdown_table(causes),
            },
        )

    return failure_rate
