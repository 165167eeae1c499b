"""Opening DuckDB: no progress bar among the output of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

_LOCK = "lock_configuration"


def connect(
    database: str | Path = ":memory:", *, read_only: bool = False, config: Mapping[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a database like `duckdb.connect`, with its progress bar off.

    After two seconds DuckDB draws a bar on standard output, into whatever a command prints there.

    Args:
        database: path of the file, in memory by default.
        read_only: open for reading.
        config: DuckDB's settings; `lock_configuration` is applied last.

    Returns:
        The connection.
    """
    settings = dict(config or {})
    lock = settings.pop(_LOCK, None)
    connection = duckdb.connect(str(database), read_only=read_only, config=settings)
    connection.execute("SET enable_progress_bar = false")
    if lock is not None:
        connection.execute(f"SET {_LOCK} = {lock}")
    return connection


def quoted(name: str) -> str:
    """Quote an identifier.

    Args:
        name: a table, schema or column name.

    Returns:
        The name in double quotes.
    """
    return '"' + name.replace('"', '""') + '"'
