"""`kbeval dev`: the Dagster UI and daemon on the project."""

import os
import signal
import sys
from pathlib import Path

import click

from kbeval_pipeline.cli.instance import prepare_dagster_home
from kbeval_pipeline.project_file import read_project


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the UI.")
@click.option("--port", default=3000, show_default=True, help="Port of the UI.")
@click.pass_obj
def dev(project_file: Path, host: str, port: int) -> None:
    """Start the Dagster UI and the daemon that runs schedules; stop with Ctrl-C."""
    home = prepare_dagster_home(read_project(project_file))
    os.environ["KBEVAL_PROJECT"] = str(project_file.resolve())
    # A shell that started us in the background has SIGINT ignored, and dagster would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    click.echo(f"the UI will be at http://{host}:{port} (storage in {home})", err=True)
    command = [
        sys.executable, "-m", "dagster", "dev", "-m", "kbeval_pipeline.definitions",
        "--host", host, "--port", str(port),
    ]  # fmt: skip
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter, no shell
