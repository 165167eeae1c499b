"""The warehouse: one DuckDB file with the history of every table and a view of its latest rows."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from dagster_duckdb import DuckDBResource
from pydantic import Field
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from kbeval_pipeline.duckdb_connection import connect, quoted
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.table_schema import RUN_STAMP, Table

_LEDGER = "materializations"

# DuckDB refuses two connections of one process that differ in read_only.
_PROCESS_LOCK = threading.RLock()


def _is_lock_conflict(error: BaseException) -> bool:
    return isinstance(error, duckdb.IOException) and "lock" in str(error).lower()


class Warehouse(DuckDBResource):
    """The DuckDB file in which every asset's rows are kept, run by run.

    Each table holds the rows of all runs, stamped with `evaluation, run_id, created_at`; the view
    `<table>_latest` shows the rows of each evaluation's latest run. The table `materializations`
    records each write, so that a run that wrote no rows is still the latest.

    A connection is open only while it reads or writes, because DuckDB admits one writing process.
    """

    lock_wait_seconds: float = Field(
        default=30.0, description="How long to wait for another process to let go of the file."
    )

    @contextmanager
    def connect(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file for the duration of the block.

        Args:
            read_only: open for reading, beside other readers.

        Raises:
            UserError: when another process holds the file for longer than `lock_wait_seconds`, or
                the file is no DuckDB database.
        """
        path = Path(self.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        retrying = Retrying(
            retry=retry_if_exception(_is_lock_conflict),
            stop=stop_after_delay(self.lock_wait_seconds),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )
        with _PROCESS_LOCK:
            try:
                connection = retrying(
                    connect, str(path), read_only=read_only, config=dict(self.connection_config)
                )
            except duckdb.IOException as error:
                if _is_lock_conflict(error):
                    raise UserError(
                        f"the warehouse {path} is held by another process, waited "
                        f"{self.lock_wait_seconds:g} s; close the program that has it open. {error}"
                    ) from None
                raise UserError(f"the warehouse {path} cannot be opened: {error}") from None
            try:
                yield connection
            finally:
                connection.close()

    def write(
        self, table: Table, frame: pl.DataFrame, *, evaluation: str, run_id: str, created_at: datetime
    ) -> None:
        """Store the rows of one run in one transaction; a repeated call replaces its own rows.

        Args:
            table: declaration of the table, created where absent.
            frame: rows with the table's declared columns.
            evaluation: name of the evaluation.
            run_id: id of the run.
            created_at: time of the write, UTC.

        Raises:
            UserError: when the file is held by another process.
        """
        stamped = table.conform(frame).select(
            pl.lit(evaluation).alias("evaluation"),
            pl.lit(run_id).alias("run_id"),
            pl.lit(created_at).cast(RUN_STAMP[2].dtype).alias("created_at"),
            pl.all(),
        )
        with self.connect(read_only=False) as connection:
            connection.begin()
            try:
                self._prepare(connection, table)
                for name in (table.name, _LEDGER):
                    connection.execute(
                        f"DELETE FROM {quoted(name)} WHERE evaluation = ? AND run_id = ?"  # noqa: S608
                        + (" AND table_name = ?" if name == _LEDGER else ""),
                        [evaluation, run_id, *([table.name] if name == _LEDGER else [])],
                    )
                connection.register("stamped_rows", stamped.to_arrow())
                connection.execute(
                    f"INSERT INTO {quoted(table.name)} BY NAME SELECT * FROM stamped_rows"  # noqa: S608
                )
                connection.execute(
                    f"INSERT INTO {_LEDGER} VALUES (?, ?, ?, ?, ?)",  # noqa: S608
                    [table.name, evaluation, run_id, created_at, stamped.height],
                )
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def read(self, table: Table, *, evaluation: str, run_id: str | None = None) -> pl.DataFrame:
        """Read the rows of one run of an evaluation.

        Args:
            table: declaration of the table.
            evaluation: name of the evaluation.
            run_id: the run whose rows are preferred; where it wrote none, and by default, the
                latest run's.

        Returns:
            The table's declared columns, in the order in which they were written.

        Raises:
            UserError: when no run of the evaluation has written the table yet.
        """
        missing = UserError(
            f'the table {table.name} has no rows of the evaluation "{evaluation}" yet; '
            f"materialize {table.name} for it first"
        )
        if not Path(self.database).exists():
            raise missing
        with self.connect(read_only=True) as connection:
            if not _has_table(connection, _LEDGER):
                raise missing
            found = connection.execute(
                f"SELECT run_id FROM {_LEDGER} WHERE table_name = ? AND evaluation = ? "  # noqa: S608
                "ORDER BY (run_id = ?) DESC NULLS LAST, created_at DESC LIMIT 1",
                [table.name, evaluation, run_id],
            ).fetchall()
            if not found:
                raise missing
            stored = set(_column_names(connection, table.name))
            columns = ", ".join(quoted(c.name) for c in table.columns if c.name in stored)
            arrow = connection.sql(
                f"SELECT {columns} FROM {quoted(table.name)} "  # noqa: S608
                "WHERE evaluation = ? AND run_id = ? ORDER BY rowid",
                params=[evaluation, found[0][0]],
            ).to_arrow_table()
        return table.conform(pl.DataFrame(pl.from_arrow(arrow)))

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
        """Run one SELECT of our own over the warehouse, read-only.

        Args:
            sql: the statement; values go into `parameters`.
            parameters: values of its `?` placeholders.

        Returns:
            Its rows; none where the warehouse or a table does not exist yet.
        """
        if not Path(self.database).exists():
            return pl.DataFrame()
        with self.connect(read_only=True) as connection:
            try:
                arrow = connection.sql(sql, params=list(parameters)).to_arrow_table()
            except duckdb.CatalogException:
                return pl.DataFrame()
        return pl.DataFrame(pl.from_arrow(arrow))

    @staticmethod
    def _prepare(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_LEDGER} (table_name VARCHAR, evaluation VARCHAR, "
            "run_id VARCHAR, created_at TIMESTAMPTZ, n_rows BIGINT)"
        )
        name = quoted(table.name)
        columns = [f"{quoted(c.name)} {c.duckdb_type}" for c in table.stored_columns]
        if not _has_table(connection, table.name):
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        present = set(_column_names(connection, table.name))
        added = [c for c in table.columns if c.name not in present]
        for column in added:
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {quoted(column.name)} {column.duckdb_type}")
        view = quoted(f"{table.name}_latest")
        if added or not _has_table(connection, f"{table.name}_latest"):
            connection.execute(
                f"CREATE OR REPLACE VIEW {view} AS SELECT t.* FROM {name} t JOIN ("  # noqa: S608
                f"SELECT evaluation, arg_max(run_id, created_at) AS run_id FROM {_LEDGER} "
                f"WHERE table_name = '{table.name}' GROUP BY evaluation) USING (evaluation, run_id)"
            )


def _has_table(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    found = connection.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'main' AND table_name = ?", [name]
    ).fetchall()
    return bool(found)


def _column_names(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'main' AND table_name = ? ORDER BY ordinal_position",
        [table],
    ).fetchall()
    return [row[0] for row in rows]
