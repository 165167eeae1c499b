"""Printing results for people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from kbeval_pipeline.evaluation.result_rows import documented_row
from kbeval_pipeline.resources.warehouse import Warehouse

_SHOWN_RECALL = ("0", "1", "2", "4", "9", "19")


def print_result(stored: Mapping[str, Any], warehouse: Warehouse, console: Console) -> None:
    """Print a result row, and the extended metrics of its run.

    Args:
        stored: one row of `evaluation_results` with its run stamp.
        warehouse: where the extended metrics are.
        console: where to print.
    """
    table = Table(title=f"{stored['evaluation']} ({stored['version']})", title_justify="left")
    table.add_column("metric")
    table.add_column("value", overflow="fold")
    for name, value in documented_row(stored).items():
        table.add_row(name, cell(value))
    table.add_row("rows measured", f"{stored['n_measured']} of {stored['n_questions']}")
    console.print(table)
    extended = warehouse.query(
        "SELECT metric, k, value, ci_low, ci_high, n FROM extended_metrics WHERE run_id = ? "
        "AND (k IS NULL OR k IN (1, 10)) ORDER BY metric, k",
        [stored["run_id"]],
    )
    if extended.is_empty():
        return
    table = Table(title="document-level metrics, 95 % bootstrap intervals", title_justify="left")
    for heading in ("metric", "value", "interval", "questions"):
        table.add_column(heading, justify="right" if heading != "metric" else "left")
    for metric, k, value, low, high, n in extended.iter_rows():
        name = metric if k is None else f"{metric}@{k}"
        table.add_row(name, f"{value:.4f}", f"{low:.4f} .. {high:.4f}", str(n))
    console.print(table)


def cell(value: object) -> str:
    """Render a value for a table cell."""
    if isinstance(value, dict):
        return "  ".join(f"{key}: {value[key]:.3f}" for key in _SHOWN_RECALL if key in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return "" if value is None else str(value)
