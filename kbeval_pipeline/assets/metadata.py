"""What an asset tells about itself in the Dagster UI: schema, lineage, tables and plots."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from dagster import (
    AssetKey,
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
)

from kbeval_pipeline.table_schema import Column, Table

_LONGEST_TEXT = 4000
_LONGEST_CELL = 80


def table_metadata(table: Table) -> dict[str, Any]:
    """Describe a table for its asset's definition page: columns, constraints and column lineage."""
    lineage = {
        column.name: [_column_dependency(source) for source in column.sources]
        for column in table.columns
        if column.sources
    }
    columns = [
        TableColumn(
            column.name,
            column.duckdb_type,
            column.description,
            TableColumnConstraints(nullable=column.nullable, other=_constraints(column)),
        )
        for column in table.stored_columns
    ]
    return {
        "dagster/column_schema": TableSchema(columns=columns),
        "dagster/column_lineage": TableColumnLineage(lineage),
    }


def markdown_table(frame: pl.DataFrame, *, rows: int = 10) -> MetadataValue:
    """Show the head of a frame as a Markdown table of at most 4 KB.

    Args:
        frame: what to show.
        rows: how many rows at most.
    """
    header = ["| " + " | ".join(frame.columns) + " |", "|" + " --- |" * frame.width]
    body = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in frame.head(rows).iter_rows()]
    lines = header
    for line in body:
        if sum(len(item.encode()) + 1 for item in [*lines, line]) > _LONGEST_TEXT:
            break
        lines.append(line)
    return MetadataValue.md("\n".join(lines))


def cumulative_recall_plot(recall: Mapping[str, float]) -> MetadataValue:
    """Plot cumulative recall by position as a picture of less than 50 KB inside Markdown.

    Args:
        recall: position from 0, as text, to the share of questions found by there.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(6, 3.2), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.step([int(position) + 1 for position in recall], list(recall.values()), where="post", marker=".")
    axes.set(xlabel="chunks looked at", ylabel="share of questions found", ylim=(0, 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    encoded = base64.b64encode(picture.getvalue()).decode()
    return MetadataValue.md(f"![cumulative recall](data:image/png;base64,{encoded})")


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _column_dependency(source: str) -> TableColumnDep:
    table, column = source.split(".", 1)
    return TableColumnDep(AssetKey(table), column)


def _constraints(column: Column) -> Sequence[str]:
    found = []
    if column.minimum is not None:
        found.append(f">= {column.minimum:g}")
    if column.maximum is not None:
        found.append(f"<= {column.maximum:g}")
    if column.values is not None:
        found.append(f"one of {', '.join(column.values)}")
    return found
