"""Describing, filling and reading the tables of a database."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import sqlalchemy as sa

from kbeval_pipeline.resources.data_sources.frames import column, kind, unify
from kbeval_pipeline.resources.data_sources.sql_types import polars_type, sql_type
from kbeval_pipeline.settings import TableName

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ReflectedColumn

BATCH_ROWS = 10_000


def exactly(name: str | None) -> Any:
    """Have SQLAlchemy quote a name whatever it looks like.

    Args:
        name: the name of a table, schema or column, or None.

    Returns:
        The same name, marked; None for None.
    """
    return None if name is None else sa.sql.quoted_name(name, quote=True)


def describe(
    table: TableName, frame: pl.DataFrame, *, name: str | None = None, untyped: Sequence[str] = ()
) -> sa.Table:
    """Describe a table with a frame's columns.

    Keys stand in for the columns' names, of which some databases cannot make parameters.

    Args:
        table: its name.
        frame: rows that `storable` returned.
        name: another name in the same schema.
        untyped: columns of a type of the database's own, whose values it is to convert itself.

    Returns:
        The description.
    """
    columns = (
        sa.Column(
            exactly(column_name),
            None if column_name in untyped else sql_type(dtype),
            key=f"c{position}",
            primary_key=False,
        )
        for position, (column_name, dtype) in enumerate(frame.schema.items())
    )
    return sa.Table(exactly(name or table.table), sa.MetaData(), *columns, schema=exactly(table.schema_name))


def insert(connection: sa.Connection, target: sa.Table, frame: pl.DataFrame) -> None:
    """Insert rows in batches.

    Args:
        connection: a connection in a transaction.
        target: what `describe` returned for the frame.
        frame: the rows.
    """
    keyed = frame.rename({name: f"c{position}" for position, name in enumerate(frame.columns)})
    for batch in keyed.iter_slices(BATCH_ROWS):
        if batch.height:
            connection.execute(sa.insert(target), batch.to_dicts())


def rename(connection: sa.Connection, old: sa.Table, new: str) -> None:
    """Rename a table within its schema.

    Args:
        connection: a connection in a transaction.
        old: the table.
        new: its new name.
    """
    prepare = connection.dialect.identifier_preparer
    if connection.dialect.name == "mssql":
        connection.execute(
            sa.text("EXEC sp_rename :old, :new"), {"old": prepare.format_table(old), "new": new}
        )
        return
    connection.exec_driver_sql(
        f"ALTER TABLE {prepare.format_table(old)} RENAME TO {prepare.quote(exactly(new))}"
    )


def same_columns(existing: "list[ReflectedColumn]", frame: pl.DataFrame) -> bool:
    """Tell whether a frame's rows could stand in a table in place of its own.

    Args:
        existing: the table's columns.
        frame: the rows.

    Returns:
        Whether names and families of types are the same.
    """
    kinds = {item["name"]: kind(arrives_as(item)) for item in existing}
    return kinds == {name: kind(dtype) for name, dtype in frame.schema.items()}


def arrives_as(item: "ReflectedColumn") -> pl.DataType:
    """Tell how a column of a table arrives in a frame.

    Args:
        item: the column as the database describes it.

    Returns:
        Its Polars type.
    """
    return polars_type(item["type"])


def list_tables(connection: sa.Connection) -> list[str]:
    """List tables and views, PostgreSQL's in all schemas.

    Args:
        connection: a connection in a transaction.

    Returns:
        Their names, as `schema.table` outside the default schema.
    """
    inspector = sa.inspect(connection)
    default = inspector.default_schema_name
    schemas = [default]
    if connection.dialect.name == "postgresql":
        schemas = [name for name in inspector.get_schema_names() if name != "information_schema"]
    return sorted(
        name if schema == default else f"{schema}.{name}"
        for schema in schemas
        for name in {*inspector.get_table_names(schema=schema), *inspector.get_view_names(schema=schema)}
    )


def fetch_frame(names: Sequence[str], result: sa.CursorResult[Any]) -> pl.DataFrame:
    """Fetch rows batch by batch, since Python's objects take many times a column's memory.

    Args:
        names: names of the columns.
        result: the running result.

    Returns:
        All rows.
    """
    parts: list[list[pl.Series]] = [[] for _ in names]
    for rows in _batches(result):
        for name, found, values in zip(names, parts, zip(*rows, strict=True), strict=True):
            found.append(column(name, values))
    return pl.DataFrame([unify(name, found) for name, found in zip(names, parts, strict=True)])


def _batches(result: sa.CursorResult[Any]) -> Iterator[Sequence[Any]]:
    while rows := result.fetchmany(BATCH_ROWS):
        yield rows


def settled(series: pl.Series) -> pl.Series:
    """Take a column without any value for text, for want of anything to tell its type.

    Args:
        series: any column.

    Returns:
        The column, as text if its dtype was Null.
    """
    return series.cast(pl.String) if series.dtype == pl.Null else series
