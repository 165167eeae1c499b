"""Documents that a test set expects but the knowledge base lacks, and documents it could not read."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

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
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import canonical_id
from kbeval_pipeline.resources.project import ProjectResource

P = ParamSpec("P")


def _warning_at_most(function: Callable[P, AssetCheckResult]) -> Callable[P, AssetCheckResult]:
    """Make a check that cannot be carried out a warning, as these checks stop no run."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> AssetCheckResult:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            return AssetCheckResult(passed=False, severity=AssetCheckSeverity.WARN, description=str(error))

    return wrapped


def document_checks(partitions: PartitionsDefinition[str]) -> list[AssetChecksDefinition]:
    """Make the checks that compare a test set with the documents of its knowledge base.

    Args:
        partitions: one partition for each evaluation.
    """

    @asset_check(
        asset="test_set",
        description="Every document that a question expects is in the knowledge base.",
        partitions_def=partitions,
    )
    @_warning_at_most
    def documents_known(
        context: AssetCheckExecutionContext, project: ProjectResource, test_set: pl.DataFrame
    ) -> AssetCheckResult:
        base = project.knowledge_base(project.evaluation(context.partition_key).knowledge_base)
        known = pl.Series([canonical_id(document.id) for document in base.documents()], dtype=pl.String)
        absent = test_set.filter(pl.col("doc_id").is_not_null() & ~pl.col("doc_id").is_in(known.implode()))
        return AssetCheckResult(
            passed=absent.is_empty(),
            severity=AssetCheckSeverity.WARN,
            description=None
            if absent.is_empty()
            else f"{absent.height} of {test_set.height} rows expect a document that {base.name} lacks; "
            "they count as not found",
            metadata={
                "documents": known.len(),
                "absent": absent.height,
                "rows": markdown_table(absent.select("row_number", "doc_id", "question")),
            },
        )

    @asset_check(
        asset="retrieved_chunks",
        description="Every document of the knowledge base could be read.",
        partitions_def=partitions,
    )
    @_warning_at_most
    def documents_readable(context: AssetCheckExecutionContext, project: ProjectResource) -> AssetCheckResult:
        base = project.knowledge_base(project.evaluation(context.partition_key).knowledge_base)
        skipped = base.skipped_documents()
        listed = pl.DataFrame(
            [(document.where, document.cause) for document in skipped],
            schema={"document": pl.String, "cause": pl.String},
            orient="row",
        )
        return AssetCheckResult(
            passed=not skipped,
            severity=AssetCheckSeverity.WARN,
            description=f"{len(skipped)} documents were left out" if skipped else None,
            metadata={"left_out": len(skipped), "documents": markdown_table(listed)},
        )

    return [documents_known, documents_readable]
