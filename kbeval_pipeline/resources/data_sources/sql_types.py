"""Polars types and SQLAlchemy types, in both directions."""

from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.frames import UTC_TIME, kind, plain, text_of

# MySQL's plain types hold 64 KB of text, whole seconds and seven digits.
_TEXT = sa.UnicodeText().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_BINARY = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_SIMPLE: dict[str, sa.types.TypeEngine[Any]] = {
    "integer": sa.BigInteger(),
    "float": sa.Double(),
    "boolean": sa.Boolean(),
    "text": _TEXT,
    "date": sa.Date(),
    "time": sa.Time(),
    "binary": _BINARY,
}


def storable(source: str, frame: pl.DataFrame, dialect: str) -> pl.DataFrame:
    """Turn what a database cannot hold into what it can.

    Args:
        source: name of the data source, for the message.
        frame: any rows.
        dialect: SQLAlchemy's name of the dialect.

    Returns:
        The rows with nested values as JSON text; for SQLite, with decimals as floats.

    Raises:
        UserError: when a column has a type that no table holds.
    """
    frame = plain(frame)
    for name, dtype in frame.schema.items():
        if dtype.is_nested():
            texts = [text_of(value) for value in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, texts, dtype=pl.String))
        elif kind(dtype) == "other":
            raise UserError(
                f'data source "{source}" cannot hold the column "{name}" of type {dtype}; cast it to text'
            )
        elif dtype.is_decimal() and dialect == "sqlite":
            frame = frame.with_columns(pl.col(name).cast(pl.Float64))
    return frame


def sql_type(dtype: pl.DataType) -> sa.types.TypeEngine[Any]:
    """Choose the type of a new table's column.

    Args:
        dtype: a type of a frame that `storable` returned.

    Returns:
        The SQLAlchemy type that holds every value of it.
    """
    if dtype == pl.UInt64:
        return sa.Numeric(20, 0)
    if isinstance(dtype, pl.Decimal):
        return sa.Numeric(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return _MOMENT if dtype.time_zone else _TIMESTAMP
    return _SIMPLE[kind(dtype)]


def polars_type(declared: sa.types.TypeEngine[Any]) -> pl.DataType:
    """Tell how a column of a table arrives as a frame's column.

    Args:
        declared: the type that the database reports.

    Returns:
        The Polars type; Null where the database declares no type, Object for types of its own.
    """
    simple: list[tuple[type[sa.types.TypeEngine[Any]], pl.DataType]] = [
        (sa.types.NullType, pl.Null()),
        (sa.Boolean, pl.Boolean()),
        (sa.Integer, pl.Int64()),
        (sa.Float, pl.Float64()),
        (sa.Enum, pl.Object()),
        (sa.String, pl.String()),
        (sa.Date, pl.Date()),
        (sa.Time, pl.Time()),
        (sa.LargeBinary, pl.Binary()),
    ]
    if isinstance(declared, sa.DateTime):
        return UTC_TIME if declared.timezone else pl.Datetime("us")
    if isinstance(declared, sa.Numeric) and not isinstance(declared, sa.Float):
        return pl.Decimal(declared.precision or 38, declared.scale or 0)
    return next((dtype for generic, dtype in simple if isinstance(declared, generic)), pl.Object())
