"""What all assets share: how a table's asset is declared, and how a user's mistake ends a step."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dagster import AssetOut, AssetsDefinition, Failure, asset

from kbeval_pipeline.assets.metadata import table_metadata
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.table_schema import Table

P = ParamSpec("P")
R = TypeVar("R")

USER_ERROR = "user_error"


def readable_failures(function: Callable[P, R]) -> Callable[P, R]:
    """Turn a `UserError` into Dagster's `Failure`, which the UI shows by its message, without retries."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise Failure(str(error), metadata={USER_ERROR: True}, allow_retries=False) from None

    return wrapped


def table_asset(
    table: Table, group: str, *, pool: str | None = None, deps: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], AssetsDefinition]:
    """Declare the asset that writes a table; its name is the function's, which is the table's.

    Args:
        table: the table.
        group: the asset's group.
        pool: the pool in which its step waits for its turn.
        deps: assets that it stands on and does not read.
    """

    def decorate(function: Callable[..., Any]) -> AssetsDefinition:
        return asset(
            group_name=group,
            kinds={"polars", "duckdb"},
            description=table.description,
            metadata=table_metadata(table),
            pool=pool,
            deps=list(deps),
        )(readable_failures(function))

    return decorate


def table_out(table: Table, group: str) -> AssetOut:
    """Declare one table of a multi-asset.

    Args:
        table: the table.
        group: the asset's group.
    """
    return AssetOut(
        group_name=group,
        kinds={"polars", "duckdb"},
        description=table.description,
        metadata=table_metadata(table),
    )
