"""Entry point of the `kbeval` command; exit codes 0 done, 1 evaluation failed, 2 wrong input."""

import sys
from pathlib import Path

import click

from kbeval_pipeline.cli.check import check
from kbeval_pipeline.cli.dev import dev
from kbeval_pipeline.cli.evaluate import evaluate
from kbeval_pipeline.cli.results import results
from kbeval_pipeline.errors import UserError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kbeval-pipeline")
@click.option(
    "-p",
    "--project",
    "project_file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="KBEVAL_PROJECT",
    default=Path("kbeval.yaml"),
    show_default=True,
    help="The project file.",
)
@click.pass_context
def cli(context: click.Context, project_file: Path) -> None:
    """Evaluate knowledge bases, and look at what came out."""
    context.obj = project_file


cli.add_command(check)
cli.add_command(evaluate)
cli.add_command(results)
cli.add_command(dev)


def main() -> None:
    """Run the command; a user's mistake is printed without a stack trace."""
    try:
        # Outside its standalone mode click returns the code of an Exit instead of raising it.
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(1)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
