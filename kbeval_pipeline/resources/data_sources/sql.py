"""Any database that SQLAlchemy reaches as a data source."""

import os
import secrets
from typing import TYPE_CHECKING, Any

import polars as pl
import sqlalchemy as sa
from pydantic import SecretStr

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.base import QUERY_SECONDS, DataSource
from kbeval_pipeline.resources.data_sources.duckdb_engine import check_unique, time_limit
from kbeval_pipeline.resources.data_sources.frames import check_columns, conform, kind
from kbeval_pipeline.resources.data_sources.selects import parse_select
from kbeval_pipeline.resources.data_sources.sql_connection import Database, parse_url
from kbeval_pipeline.resources.data_sources.sql_tables import (
    BATCH_ROWS,
    arrives_as,
    describe,
    exactly,
    fetch_frame,
    insert,
    list_tables,
    rename,
    same_columns,
    settled,
)
from kbeval_pipeline.resources.data_sources.sql_types import storable
from kbeval_pipeline.settings import TableName

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ReflectedColumn

_TRANSACTIONAL_DDL = ("postgresql", "sqlite", "mssql")
_DIALECTS = {
    "postgresql": "postgres",
    "mariadb": "mysql",
    "mssql": "tsql",
    "clickhousedb": "clickhouse",
    "awsathena": "athena",
}


class SqlDatabase(DataSource):
    """A database behind an SQLAlchemy URL. It is connected to only while a call runs.

    Args:
        name: name of the data source.
        url: its SQLAlchemy URL.

    Raises:
        UserError: when the URL is none.
    """

    def __init__(self, name: str, url: SecretStr) -> None:
        self.name = name
        self._database = Database(name, parse_url(name, url))
        self._transactional_ddl = self._database.backend in _TRANSACTIONAL_DDL

    @property
    def dialect(self) -> str | None:
        """The name that sqlglot has for the database's dialect; None where it has none."""
        from sqlglot.dialects.dialect import Dialect  # noqa: PLC0415

        name = _DIALECTS.get(self._database.backend, self._database.backend)
        return name if Dialect.get(name) else None

    def tables(self) -> list[str]:
        """See `DataSource.tables`."""
        with self._database.begin() as connection:
            return list_tables(connection)

    def read_table(self, table: TableName) -> pl.DataFrame:
        """See `DataSource.read_table`."""
        with self._database.begin() as connection:
            columns = self._columns(connection, table)
            if columns is None:
                raise self.missing_table(table, list_tables(connection))
            # Without types, so that SQLite's stray values arrive as they are.
            selected: list[sa.ColumnElement[Any]] = [sa.column(exactly(item["name"])) for item in columns]
            statement = sa.select(*selected).select_from(
                sa.table(exactly(table.table), schema=exactly(table.schema_name))
            )
            result = connection.execution_options(stream_results=True, yield_per=BATCH_ROWS).execute(
                statement
            )
            frame = fetch_frame([item["name"] for item in columns], result)
        declared = {item["name"]: arrives_as(item) for item in columns}
        return frame.select(settled(conform(frame[name], dtype)) for name, dtype in declared.items())

    def query(self, sql: str) -> pl.DataFrame:
        """See `DataSource.query`; the transaction is read-only where the database has such."""
        statement = parse_select(sql, self.dialect).sql(dialect=self.dialect, comments=False)
        with self._database.begin() as connection:
            driver: Any = connection.connection.dbapi_connection
            if self._database.backend == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(QUERY_SECONDS * 1000)}")
            # Other databases have limits of their own.
            interrupt = driver.interrupt if self._database.backend == "sqlite" else lambda: None
            options = {"stream_results": True, "yield_per": BATCH_ROWS, "no_parameters": True}
            with time_limit(interrupt, QUERY_SECONDS) as passed:
                try:
                    result = connection.exec_driver_sql(statement, execution_options=options)
                    names = list(result.keys())
                    check_unique(names)
                    frame = fetch_frame(names, result)
                except sa.exc.DBAPIError as error:
                    if not passed.is_set() and "statement timeout" not in str(error.orig):
                        raise
                    raise UserError(
                        f"{self._database.described}: the query took longer than {QUERY_SECONDS:g} s"
                    ) from None
        return frame.select(settled(series) for series in frame)

    def replace_table(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.replace_table`.

        Where the columns stay the same the rows are replaced, which keeps grants, indexes and views.
        """
        frame = storable(self.name, frame, self._database.backend)
        with self._database.begin(write=True) as connection:
            existing = self._columns(connection, table)
            if existing is not None and same_columns(existing, frame):
                old = describe(table, frame)
                connection.execute(sa.delete(old))
                insert(connection, old, frame)
                return
            self._create_schema(connection, table)
            staging = describe(table, frame, name=f"kbeval_{secrets.token_hex(8)}")
            if existing is None:
                staging = describe(table, frame)
            elif not self._transactional_ddl:
                self._replace_in_steps(connection, table, staging, frame)
                return
            staging.create(connection)
            insert(connection, staging, frame)
            if existing is not None:
                describe(table, frame).drop(connection)
                rename(connection, staging, table.table)

    def append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.append`."""
        frame = storable(self.name, frame, self._database.backend)
        with self._database.begin(write=True) as connection:
            insert(connection, self._appendable(connection, table, frame), frame)

    def check_append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.check_append`; what `append` does first is done and taken back."""
        frame = storable(self.name, frame, self._database.backend).clear()
        file = self._database.sqlite_file
        if file is not None and not file.exists():
            folder = next(parent for parent in file.absolute().parents if parent.exists())
            if not os.access(folder, os.W_OK):
                raise UserError(f"{self._database.described} cannot be made: no permission in {folder}")
            return
        with self._database.begin(write=True, keep=False) as connection:
            existing = self._columns(connection, table)
            if existing is None and not self._transactional_ddl:
                return
            target = self._appendable(connection, table, frame)
            nothing = sa.select(*(sa.null() for _ in frame.columns)).where(sa.false())
            if frame.width:
                connection.execute(sa.insert(target).from_select(list(target.columns), nothing))

    def _appendable(self, connection: sa.Connection, table: TableName, frame: pl.DataFrame) -> sa.Table:
        """Make the table if it is absent, else check that the frame fits it."""
        existing = self._columns(connection, table)
        if existing is None:
            self._create_schema(connection, table)
            target = describe(table, frame)
            target.create(connection)
            return target
        types = {item["name"]: arrives_as(item) for item in existing}
        required = [
            item["name"]
            for item in existing
            if not item["nullable"]
            and item.get("default") is None
            and item.get("autoincrement") is not True
            and not item.get("identity")
            and not item.get("computed")
        ]
        if self._database.backend == "sqlite":
            # A lone integer key fills itself.
            keys = sa.inspect(connection).get_pk_constraint(table.table, schema=table.schema_name)
            names = keys["constrained_columns"]
            required = [name for name in required if names != [name] or kind(types[name]) != "integer"]
        check_columns(self.name, table, types, frame, required=required)
        return describe(table, frame, untyped=[name for name, dtype in types.items() if dtype == pl.Object])

    def _columns(self, connection: sa.Connection, table: TableName) -> "list[ReflectedColumn] | None":
        inspector = sa.inspect(connection)
        try:
            return inspector.get_columns(exactly(table.table), schema=exactly(table.schema_name))
        except sa.exc.NoSuchTableError:
            return None
        except sa.exc.OperationalError:
            # SQLite, when it has no such schema.
            if table.schema_name and table.schema_name not in inspector.get_schema_names():
                return None
            raise

    def _create_schema(self, connection: sa.Connection, table: TableName) -> None:
        schema = table.schema_name
        if schema is None or schema in sa.inspect(connection).get_schema_names():
            return
        if self._database.backend == "sqlite":
            raise UserError(
                f'data source "{self.name}": SQLite has no schemas, write {self.name}.{table.table} '
                f"instead of {table}"
            )
        connection.execute(sa.schema.CreateSchema(exactly(schema)))

    def _replace_in_steps(
        self, connection: sa.Connection, table: TableName, staging: sa.Table, frame: pl.DataFrame
    ) -> None:
        """Replace a table where each CREATE, DROP and RENAME is final: the old one goes last."""
        set_aside = describe(table, frame, name=f"{staging.name}_old")
        try:
            staging.create(connection)
            insert(connection, staging, frame)
            rename(connection, describe(table, frame), set_aside.name)
        except BaseException:
            staging.drop(connection, checkfirst=True)
            raise
        try:
            rename(connection, staging, table.table)
        except BaseException:
            rename(connection, set_aside, table.table)
            staging.drop(connection, checkfirst=True)
            raise
        set_aside.drop(connection)
