"""`kbeval evaluate`: run one evaluation through Dagster and print its result row."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from kbeval_pipeline.cli.instance import dagster_instance, process_tag
from kbeval_pipeline.cli.output import print_extended_metrics, print_result
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.result_rows import documented_row
from kbeval_pipeline.partitions import all_evaluations
from kbeval_pipeline.progress import show_progress
from kbeval_pipeline.project import Project
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.results import results_of_run, warehouse_of
from kbeval_pipeline.settings import nearest
from kbeval_pipeline.statements import is_statement, parse_statement, save_statement

if TYPE_CHECKING:
    from dagster import ExecuteInProcessResult


@click.command()
@click.argument("name_or_statement")
@click.option("--json", "as_json", is_flag=True, help="Print the result row as one JSON object.")
@click.option("--dry-run", is_flag=True, help="Only print the calls to models and their estimated cost.")
@click.pass_obj
def evaluate(project_file: Path, name_or_statement: str, as_json: bool, dry_run: bool) -> None:
    """Run an evaluation, by its name or by an EVALUATE KNOWLEDGE_BASE statement.

    The run goes through Dagster: its materializations and checks are in the UI (`kbeval dev`).
    """
    project = read_project(project_file)
    name = _evaluation_name(name_or_statement, project)
    if dry_run:
        _print_plan(project_file, name)
        return
    console = Console(stderr=True)
    result = _run(project_file, project, name, console)
    _report_checks(result)
    if not result.success:
        raise click.exceptions.Exit(_report_failure(result))
    warehouse = warehouse_of(project)
    rows = results_of_run(warehouse, result.run_id)
    if as_json:
        documented = [documented_row(row) for row in rows]
        click.echo(json.dumps(documented[0] if len(documented) == 1 else documented, default=str))
    elif rows:
        for row in rows:
            print_result(row, Console())
        print_extended_metrics(result.run_id, warehouse, Console())
    else:
        click.echo(f"the test set of {name} is ready; nothing was evaluated", err=True)


def _print_plan(project_file: Path, name: str) -> None:
    from kbeval_pipeline.dry_run import plan  # noqa: PLC0415 - only this option needs it
    from kbeval_pipeline.resources.project import ProjectResource  # noqa: PLC0415

    stages = plan(ProjectResource(project_file=str(project_file.resolve())), name)
    for stage in stages:
        cost = "unknown" if stage.estimate.cost is None else f"{stage.estimate.cost:.4f}"
        note = f" ({stage.note})" if stage.note else ""
        click.echo(
            f"{stage.stage}: {stage.estimate.calls} calls to {stage.model}, about {stage.estimate.tokens} "
            f"tokens, cost {cost}{note}"
        )
    if not stages:
        click.echo(f"{name} makes no call to a model")


def _evaluation_name(text: str, project: Project) -> str:
    if is_statement(text):
        statement = parse_statement(text, project)
        save_statement(statement, project)
        return statement.name
    evaluations = all_evaluations(project)
    if text not in evaluations:
        raise UserError(f'unknown evaluation "{text}", {nearest(text, evaluations)}')
    return text


def _run(project_file: Path, project: Project, name: str, console: Console) -> "ExecuteInProcessResult":
    from kbeval_pipeline.definitions import build_definitions  # noqa: PLC0415 - needs the saved statement
    from kbeval_pipeline.jobs import EVALUATE, GENERATE_TEST_DATA  # noqa: PLC0415

    evaluation = all_evaluations(project)[name]
    job = build_definitions(project_file).resolve_job_def(
        EVALUATE if evaluation.evaluate else GENERATE_TEST_DATA
    )
    with dagster_instance(project) as instance, show_progress(console):
        return job.execute_in_process(
            instance=instance,
            partition_key=name,
            raise_on_error=False,
            tags=process_tag(),
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )


def _report_checks(result: "ExecuteInProcessResult") -> None:
    for check in result.get_asset_check_evaluations():
        if not check.passed:
            severity = "check failed" if check.blocking else "warning"
            reason = check.description or "see the UI"
            click.echo(
                f"{severity}: {check.asset_key.to_user_string()}.{check.check_name}: {reason}", err=True
            )


def _report_failure(result: "ExecuteInProcessResult") -> int:
    """Print why the run failed and return the exit code."""
    code = 1
    for event in result.get_step_failure_events():
        data: Any = event.step_failure_data
        failure = data.user_failure_data
        if failure is not None and "user_error" in failure.metadata:
            click.echo(f"error: {failure.description}", err=True)
            code = 2
        elif "AssetCheck" not in (data.error.cls_name or "" if data.error else ""):
            cause = data.error
            while cause is not None and cause.cause is not None:
                cause = cause.cause
            click.echo(f"error: {event.step_key}: {cause.message.strip() if cause else 'failed'}", err=True)
    click.echo(f"the run {result.run_id} failed; its log is in the UI (kbeval dev)", err=True)
    sys.stderr.flush()
    return code
