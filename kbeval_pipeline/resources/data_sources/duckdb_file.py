"""A DuckDB file as a data source."""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from kbeval_pipeline.duckdb_connection import connect, quoted
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.base import DataSource
from kbeval_pipeline.resources.data_sources.duckdb_engine import (
    GUARDED,
    fetch,
    run_select,
    short_message,
)
from kbeval_pipeline.resources.data_sources.frames import check_columns, plain
from kbeval_pipeline.settings import TableName

_DEFAULT_SCHEMA = "main"

# DuckDB refuses two connections of one process to one file that differ in read_only.
_FILE_LOCKS: defaultdict[Path, threading.RLock] = defaultdict(threading.RLock)


def _is_conflict(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, duckdb.Error) and ("lock" in text or "different configuration" in text)


class DuckDBFile(DataSource):
    """A DuckDB file; it is open only while a call reads or writes it.

    Args:
        name: name of the data source.
        path: the database file; the first write makes it.
        lock_wait_seconds: how long to wait for another process to let go of the file.
    """

    def __init__(self, name: str, path: Path, *, lock_wait_seconds: float = 5.0) -> None:
        self.name = name
        self._path = path
        self._lock_wait_seconds = lock_wait_seconds

    def tables(self) -> list[str]:
        """See `DataSource.tables`."""
        with self._connect() as connection:
            return _tables(connection)

    def read_table(self, table: TableName) -> pl.DataFrame:
        """See `DataSource.read_table`."""
        with self._connect() as connection:
            known = _tables(connection)
            if not _exists(connection, table):
                raise self.missing_table(table, known)
            return fetch(connection.sql(f"SELECT * FROM {_qualified(table)}"))  # noqa: S608

    def query(self, sql: str) -> pl.DataFrame:
        """See `DataSource.query`; the statement can read nothing but this file."""
        with self._connect() as connection:
            return run_select(connection, sql, self._described)

    def replace_table(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.replace_table`."""
        with self._write() as connection:
            connection.register("new_rows", plain(frame).to_arrow())
            _create_schema(connection, table)
            connection.execute(
                f"CREATE OR REPLACE TABLE {_qualified(table)} AS SELECT * FROM new_rows"  # noqa: S608
            )

    def append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.append`."""
        with self._write() as connection:
            connection.register("new_rows", plain(frame).to_arrow())
            if not _exists(connection, table):
                _create_schema(connection, table)
                connection.execute(
                    f"CREATE TABLE {_qualified(table)} AS SELECT * FROM new_rows LIMIT 0"  # noqa: S608
                )
            else:
                self._check(connection, table, frame)
            connection.execute(
                f"INSERT INTO {_qualified(table)} BY NAME SELECT * FROM new_rows"  # noqa: S608
            )

    def check_append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.check_append`."""
        folder = next(parent for parent in self._path.absolute().parents if parent.exists())
        target = self._path if self._path.exists() else folder
        if not os.access(target, os.W_OK):
            raise UserError(f"{self._described} cannot be written: no permission to write {target}")
        if self._path.exists():
            # Opened for writing, because only that shows whether the file can be had.
            with self._connect(read_only=False) as connection:
                if _exists(connection, table):
                    self._check(connection, table, frame)

    @property
    def _described(self) -> str:
        return f'data source "{self.name}" (DuckDB file {self._path})'

    def _check(self, connection: duckdb.DuckDBPyConnection, table: TableName, frame: pl.DataFrame) -> None:
        existing = fetch(connection.sql(f"SELECT * FROM {_qualified(table)} LIMIT 0")).schema  # noqa: S608
        required = connection.execute(
            "SELECT column_name FROM duckdb_columns() WHERE schema_name = ? AND table_name = ? "
            "AND NOT is_nullable AND column_default IS NULL",
            [table.schema_name or _DEFAULT_SCHEMA, table.table],
        ).fetchall()
        check_columns(
            self.name, table, existing, frame, required=[row[0] for row in required], ignore_case=True
        )

    @contextmanager
    def _write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._connect(read_only=False) as connection:
            connection.begin()
            try:
                yield connection
                connection.commit()
            except duckdb.Error as error:
                raise UserError(f"{self._described} cannot be written: {short_message(error)}") from None

    @contextmanager
    def _connect(self, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        if read_only and not self._path.exists():
            raise UserError(f"{self._described}: there is no such file; correct its path, or write it first")
        retrying = Retrying(
            retry=retry_if_exception(_is_conflict),
            stop=stop_after_delay(self._lock_wait_seconds),
            wait=wait_random_exponential(multiplier=0.05, max=0.5),
            reraise=True,
        )
        with _FILE_LOCKS[self._path.resolve()]:
            try:
                if not read_only:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                connection = retrying(
                    connect, str(self._path), read_only=read_only, config=GUARDED if read_only else {}
                )
            except (duckdb.Error, OSError) as error:
                if _is_conflict(error):
                    raise UserError(
                        f"{self._described} is in use by another program, waited "
                        f"{self._lock_wait_seconds:g} s; close that program: {short_message(error)}"
                    ) from None
                raise UserError(f"{self._described} cannot be opened: {short_message(error)}") from None
            # Closing rolls back what was not committed.
            with connection:
                try:
                    yield connection
                except duckdb.Error as error:
                    raise UserError(f"{self._described} cannot be read: {short_message(error)}") from None


def _qualified(table: TableName) -> str:
    return f"{quoted(table.schema_name or _DEFAULT_SCHEMA)}.{quoted(table.table)}"


def _create_schema(connection: duckdb.DuckDBPyConnection, table: TableName) -> None:
    if table.schema_name:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema_name)}")


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    rows = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_catalog = current_database() ORDER BY ALL"
    ).fetchall()
    return [name if schema == _DEFAULT_SCHEMA else f"{schema}.{name}" for schema, name in rows]


def _exists(connection: duckdb.DuckDBPyConnection, table: TableName) -> bool:
    # fetchone would leave the result unfinished, after which DuckDB 2 refuses the next statement.
    found = connection.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_catalog = current_database() "
        "AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?)",
        [table.schema_name or _DEFAULT_SCHEMA, table.table],
    ).fetchall()
    return bool(found)
