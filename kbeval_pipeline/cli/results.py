"""`kbeval results`: the history of results."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from kbeval_pipeline.cli.output import cell
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.partitions import all_evaluations
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.results import result_history, warehouse_of
from kbeval_pipeline.settings import nearest

_COLUMNS = (
    "created_at", "evaluation", "version", "total", "total_found", "retrieved_in_top_10",
    "ndcg@10", "mrr", "avg_query_time", "n_failed", "run_id",
)  # fmt: skip


@click.command()
@click.argument("name", required=False)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Rows to show.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every column.")
@click.pass_obj
def results(project_file: Path, name: str | None, limit: int, as_json: bool) -> None:
    """Show the results of earlier runs, newest first."""
    project = read_project(project_file)
    evaluations = all_evaluations(project)
    history = result_history(warehouse_of(project), name, limit)
    if history.is_empty():
        if name is not None and name not in evaluations:
            raise UserError(f'unknown evaluation "{name}", {nearest(name, evaluations)}')
        click.echo("no results yet; run kbeval evaluate NAME", err=True)
        return
    if as_json:
        click.echo(history.write_ndjson(), nl=False)
        return
    table = Table()
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in history.select(_COLUMNS).iter_rows(named=True):
        table.add_row(
            *(cell(value)[:8] if column == "run_id" else cell(value) for column, value in row.items())
        )
    Console().print(table)
