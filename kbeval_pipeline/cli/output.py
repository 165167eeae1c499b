"""Printing results for people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from kbeval_pipeline.evaluation.result_rows import documented_row
from kbeval_pipeline.resources.warehouse import Warehouse

_SHOWN_RECALL = ("0", "1", "2", "4", "9", "19")


def print_result(stored: Mapping[str, Any], console: Console) -> None:
    """Print a result row.

    Args:
        stored: one row of `evaluation_results` with its run stamp.
        console: where to print.
    """
    table = Table(title=f"{stored['evaluation']} ({stored['version']})", title_justify="left")
    table.add_column("metric")
    table.add_column("value", overflow="fold")
    for name, value in documented_row(stored).items():
        table.add_row(name, cell(value))
    table.add_row("measured", f"{stored['n_measured']} of {stored['n_questions']}")
    if stored["judge"]:
        table.add_row("judge", f"{stored['judge']} ({stored['method']})")
    console.print(table)
    if stored["warning"]:
        console.print(f"Note: {stored['warning']}", highlight=False)


def print_extended_metrics(run_id: str, warehouse: Warehouse, console: Console) -> None:
    """Print the document-level metrics of a run at the cut-offs 1 and 10.

    Args:
        run_id: id of the run.
        warehouse: where they are stored.
        console: where to print.
    """
    extended = warehouse.query(
        "SELECT metric, k, value, ci_low, ci_high, n FROM extended_metrics WHERE run_id = ? "
        "AND (k IS NULL OR k IN (1, 10)) AND NOT starts_with(metric, 'relevancy') ORDER BY metric, k",
        [run_id],
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
    if isinstance(value, list):
        return "  ".join("" if item is None else f"{item:g}" for item in value)
    if isinstance(value, dict):
        return "  ".join(f"{key}: {value[key]:.3f}" for key in _SHOWN_RECALL if key in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return "" if value is None else str(value)
