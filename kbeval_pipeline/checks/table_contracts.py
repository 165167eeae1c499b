"""A Great Expectations suite for each table, as a blocking check."""

import os
from typing import Any

import polars as pl
from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    PartitionsDefinition,
    asset_check,
)

from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.table_schema import Table

_PRESENT = "present"


def table_contract_check(table: Table, partitions: PartitionsDefinition[str]) -> AssetChecksDefinition:
    """Make the check that a table keeps its declared contract.

    Args:
        table: the declaration.
        partitions: one partition for each evaluation.
    """

    @asset_check(
        asset=table.name,
        name="table_contract",
        description=f"Great Expectations suite of {table.name}: nulls, ranges, allowed values, key.",
        blocking=True,
        partitions_def=partitions,
    )
    def table_contract(rows: pl.DataFrame) -> AssetCheckResult:
        failures = contract_failures(table, rows)
        return AssetCheckResult(
            passed=failures.is_empty(),
            severity=AssetCheckSeverity.ERROR,
            description=None if failures.is_empty() else f"{failures.height} expectations failed",
            metadata={
                "rows": rows.height,
                **({} if failures.is_empty() else {"failures": markdown_table(failures)}),
            },
        )

    return table_contract


def contract_failures(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Validate rows against the suite that a table's declaration implies.

    Args:
        table: the declaration.
        rows: rows of the table.

    Returns:
        `expectation, column, detail`, one row for each failed expectation; empty when all hold.

    Raises:
        RuntimeError: when an expectation could not be evaluated, which is no verdict on the data.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx  # noqa: PLC0415 - seconds and 250 MB, only where a check runs
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = (
        context.data_sources.add_pandas("frame")
        .add_dataframe_asset(table.name)
        .add_batch_definition_whole_dataframe("rows")
        .get_batch({"dataframe": _light(table, rows).to_pandas()})
    )
    outcome = batch.validate(gx.ExpectationSuite(table.name, expectations=_expectations(table)))
    failures = []
    results: list[Any] = list(outcome.results)
    for result in results:
        if (result.exception_info or {}).get("raised_exception"):
            raise RuntimeError(
                f"{table.name}: {result.expectation_config.type} could not be evaluated: "
                f"{result.exception_info['exception_message']}"
            )
        if not result.success:
            failures.append(_failure(result))
    schema = dict.fromkeys(("expectation", "column", "detail"), pl.String)
    return pl.DataFrame(failures, schema=schema, orient="row")


def _expectations(table: Table) -> list[Any]:
    import great_expectations.expectations as _expectations_module  # noqa: PLC0415

    gxe: Any = _expectations_module

    names = [column.name for column in table.columns]
    suite: list[Any] = [gxe.ExpectTableColumnsToMatchSet(column_set=names, exact_match=True)]
    for column in table.columns:
        if not column.nullable:
            suite.append(gxe.ExpectColumnValuesToNotBeNull(column=column.name))
        if column.minimum is not None or column.maximum is not None:
            suite.append(
                gxe.ExpectColumnValuesToBeBetween(
                    column=column.name, min_value=column.minimum, max_value=column.maximum
                )
            )
        if column.values is not None:
            suite.append(gxe.ExpectColumnValuesToBeInSet(column=column.name, value_set=list(column.values)))
    if len(table.key) == 1:
        suite.append(gxe.ExpectColumnValuesToBeUnique(column=table.key[0]))
    elif table.key:
        suite.append(gxe.ExpectCompoundColumnsToBeUnique(column_list=list(table.key), ignore_row_if="never"))
    return suite


def _light(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Replace texts of which only their presence is tested, to keep the pandas copy small."""
    tested = {*table.key, *(c.name for c in table.columns if c.values is not None)}
    return rows.with_columns(
        pl.when(pl.col(c.name).is_not_null()).then(pl.lit(_PRESENT)).alias(c.name)
        for c in table.columns
        if c.dtype == pl.String() and c.name not in tested and c.name in rows.columns
    )


def _failure(result: Any) -> tuple[str, str, str]:
    arguments = result.expectation_config.kwargs
    column = arguments.get("column") or ", ".join(arguments.get("column_list", []))
    found = result.result
    if "unexpected_count" in found:
        detail = f"{found['unexpected_count']} of {found['element_count']} rows"
        examples = [str(value) for value in found.get("partial_unexpected_list", [])[:3]]
        if examples and not result.expectation_config.type.endswith("not_be_null"):
            detail += f", such as {', '.join(examples)}"
    else:
        detail = str(found.get("observed_value", ""))
    return result.expectation_config.type, str(column), detail
