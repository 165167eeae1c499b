"""DuckDB for statements that users write: no files, no settings, bounded memory and time."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import duckdb
import polars as pl

from kbeval_pipeline.duckdb_connection import connect, quoted
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.base import QUERY_SECONDS
from kbeval_pipeline.resources.data_sources.frames import plain

MEMORY_LIMIT = "4GB"

# Without a folder for temporary files DuckDB would make one in the working directory.
GUARDED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "lock_configuration": "true",
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
}

# Types that Polars cannot import, or imports as bytes that mean nothing outside DuckDB.
_FOREIGN = ("INTERVAL", "BIT", "UNION", "BIGNUM", "VARINT", "TIME WITH TIME ZONE", "GEOMETRY", "VARIANT")


def short_message(error: BaseException) -> str:
    """Cut a DuckDB error down to what went wrong.

    Args:
        error: any error of DuckDB.

    Returns:
        Its first lines, without the statement, its advice and its links.
    """
    text = str(error).split("\nLINE ")[0].split("Possible fixes:")[0].split("See also")[0]
    return " ".join(text.split()).rstrip(" .")


def fetch(relation: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """Run a relation and convert its rows.

    Args:
        relation: what `connection.sql` returned.

    Returns:
        Its rows; types without a counterpart as text, sums of integers as integers, moments in UTC.

    Raises:
        UserError: when two columns have the same name.
    """
    check_unique(relation.columns)
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    if any(_is_foreign(name) for name in types.values()):
        relation = relation.project(
            ", ".join(
                f"CAST({quoted(column)} AS VARCHAR) AS {quoted(column)}"
                if _is_foreign(name)
                else quoted(column)
                for column, name in types.items()
            )
        )
    frame = pl.DataFrame(pl.from_arrow(relation.to_arrow_table()))
    for column, name in types.items():
        if name == "HUGEINT":
            narrow = frame[column].cast(pl.Int64, strict=False)
            if narrow.null_count() == frame[column].null_count():
                frame = frame.with_columns(narrow)
    return plain(frame)


def _is_foreign(type_name: str) -> bool:
    return any(word in type_name for word in _FOREIGN)


def check_unique(columns: list[str]) -> None:
    """Refuse a result with two columns of one name.

    Args:
        columns: the names of the result's columns.

    Raises:
        UserError: naming the columns.
    """
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise UserError(
            f"the statement returns more than one column named {', '.join(twice)}; name them apart with AS"
        )


@contextmanager
def time_limit(interrupt: Callable[[], object], seconds: float) -> Iterator[threading.Event]:
    """Interrupt the block's statement when it takes too long.

    Args:
        interrupt: called from another thread after the time has passed.
        seconds: how long the block may take.

    Yields:
        An event that is set once the time has passed.
    """
    passed = threading.Event()

    def stop() -> None:
        passed.set()
        interrupt()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield passed
    finally:
        timer.cancel()


def run_select(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> pl.DataFrame:
    """Run a user's SELECT on a connection that was opened with `GUARDED`.

    Args:
        connection: the connection.
        sql: the statement.
        where: what the statement runs on, for messages.

    Returns:
        Its rows.

    Raises:
        UserError: when it fails or takes longer than `QUERY_SECONDS`.
    """
    with time_limit(connection.interrupt, QUERY_SECONDS) as passed:
        try:
            return fetch(connection.sql(sql))
        except duckdb.Error as error:
            cause = f"took longer than {QUERY_SECONDS:g} s" if passed.is_set() else short_message(error)
            raise UserError(f"the query on {where} failed: {cause}") from None


def run_over_frames(sql: str, frames: Mapping[str, pl.DataFrame], where: str) -> pl.DataFrame:
    """Run a user's SELECT over frames, in a DuckDB that can see nothing else.

    Args:
        sql: the statement, in DuckDB's dialect.
        frames: the tables, by the names in the statement.
        where: what the statement runs on, for messages.

    Returns:
        Its rows.

    Raises:
        UserError: when it fails or takes longer than `QUERY_SECONDS`.
    """
    with connect(":memory:", config=GUARDED) as connection:
        for name, frame in frames.items():
            connection.register(name, plain(frame).to_arrow())
        return run_select(connection, sql, where)
