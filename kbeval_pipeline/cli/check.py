"""`kbeval check`: every mistake of the project file at once."""

from pathlib import Path

import click

from kbeval_pipeline.project_file import read_project


@click.command()
@click.pass_obj
def check(project_file: Path) -> None:
    """Check the project file and print every mistake in it."""
    project = read_project(project_file)
    click.echo(
        f"{project_file}: no mistakes; {len(project.data_sources)} data sources, "
        f"{len(project.knowledge_bases)} knowledge bases, {len(project.evaluations)} evaluations"
    )
