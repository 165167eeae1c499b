"""Frames from untyped values, and whether a frame's columns fit a table's."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import canonical_id, canonical_ids
from kbeval_pipeline.settings import TableName

UTC_TIME = pl.Datetime("us", "UTC")

_MOST_EXACT = 2**53
_INT64 = range(-(2**63), 2**63)
_DTYPES: dict[type, pl.DataType] = {
    str: pl.String(),
    bool: pl.Boolean(),
    date: pl.Date(),
    time: pl.Time(),
    timedelta: pl.Duration("us"),
    bytes: pl.Binary(),
}
_WIDENS = {("integer", "float"), ("integer", "decimal"), ("decimal", "float"), ("date", "timestamp")}


def text_of(value: Any) -> str | None:
    """Write any value as text: numbers in canonical form, nested values as JSON.

    Args:
        value: a value that a driver or a JSON file gave.

    Returns:
        Its text, or None for None.
    """
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "nan" if value != value else canonical_id(value)  # noqa: PLR0124


def column(name: str, values: Sequence[Any]) -> pl.Series:
    """Make a column of values as a driver or a JSON file gave them.

    Args:
        name: the column's name.
        values: its values, of any mixture of types.

    Returns:
        A typed column where the values are of one type, of dtype Null where all are None, else a text
        column as `text_of` writes them. Nested values become JSON text.
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pl.Series(name, values, dtype=pl.Null)
    made = None
    if kinds <= {int, float}:
        made = _numbers(name, values, kinds)
    elif kinds == {Decimal}:
        made = _decimals(name, values)
    elif kinds == {datetime}:
        made = _moments(name, values)
    elif len(kinds) == 1:
        dtype = _DTYPES.get(next(iter(kinds)))
        made = pl.Series(name, values, dtype=dtype) if dtype is not None else None
    return (
        made if made is not None else pl.Series(name, [text_of(value) for value in values], dtype=pl.String)
    )


def _numbers(name: str, values: Sequence[Any], kinds: set[type]) -> pl.Series | None:
    whole = [value for value in values if type(value) is int]
    if kinds == {int}:
        fits = min(whole) in _INT64 and max(whole) in _INT64
        return pl.Series(name, values, dtype=pl.Int64) if fits else None
    fits = all(-_MOST_EXACT <= value <= _MOST_EXACT for value in whole)
    return pl.Series(name, values, dtype=pl.Float64) if fits else None


def _moments(name: str, values: Sequence[Any]) -> pl.Series | None:
    aware = {value.tzinfo is not None for value in values if value is not None}
    if len(aware) > 1:
        return None
    if aware == {False}:
        return pl.Series(name, values, dtype=pl.Datetime("us"))
    return pl.Series(name, [value and value.astimezone(UTC) for value in values], dtype=UTC_TIME)


def _decimals(name: str, values: Sequence[Any]) -> pl.Series | None:
    if not all(value is None or value.is_finite() for value in values):
        return None
    try:
        return pl.Series(name, values, dtype=None)
    except (pl.exceptions.PolarsError, RuntimeError, TypeError):
        return None


def unify(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Join the batches of one column, whose types may differ from batch to batch.

    Args:
        name: the column's name.
        parts: the batches, each made by `column`.

    Returns:
        One column, as `column` would have made it of all values at once.
    """
    if not parts:
        return pl.Series(name, [], dtype=pl.Null)
    dtypes = {part.dtype for part in parts} - {pl.Null()}
    if len(dtypes) > 1:
        if dtypes == {pl.Int64(), pl.Float64()} and all(map(_exact_as_float, parts)):
            target: pl.DataType = pl.Float64()
        elif all(dtype.is_decimal() for dtype in dtypes):
            scale = max(dtype.scale for dtype in dtypes if isinstance(dtype, pl.Decimal))
            target = pl.Decimal(38, scale)
        else:
            parts = [canonical_ids(part) for part in parts]
            target = pl.String()
    else:
        target = dtypes.pop() if dtypes else pl.Null()
    return pl.concat([part.cast(target) for part in parts]).alias(name)


def _exact_as_float(series: pl.Series) -> bool:
    if series.dtype != pl.Int64:
        return True
    return series.is_between(-_MOST_EXACT, _MOST_EXACT).all()


def conform(series: pl.Series, declared: pl.DataType) -> pl.Series:
    """Give a column the type that its table declares, if every value allows it.

    Args:
        series: values as the driver gave them.
        declared: the type of the table's column; SQLite does not hold its values to it.

    Returns:
        The column with the declared type, or unchanged where a value would be lost.
    """
    if series.dtype == pl.Null:
        return series.cast(pl.String() if declared == pl.Object else declared)
    try:
        return _parsed(series, declared) if series.dtype == pl.String else _narrowed(series, declared)
    except pl.exceptions.PolarsError:
        return series


def _parsed(texts: pl.Series, declared: pl.DataType) -> pl.Series:
    if isinstance(declared, pl.Datetime):
        return texts.str.to_datetime(time_unit="us", strict=True)
    if declared == pl.Date:
        return texts.str.to_date("%Y-%m-%d")
    return texts.str.to_time("%H:%M:%S%.f") if declared == pl.Time else texts


def _narrowed(series: pl.Series, declared: pl.DataType) -> pl.Series:
    if series.dtype != pl.Int64:
        return series
    if declared == pl.Boolean and series.is_in([0, 1]).all():
        return series.cast(pl.Boolean)
    return series.cast(pl.Float64) if declared == pl.Float64 and _exact_as_float(series) else series


def kind(dtype: pl.DataType) -> str:
    """Name the family of a type, as error messages show it.

    Args:
        dtype: any Polars type.

    Returns:
        `integer`, `float`, `decimal`, `boolean`, `text`, `date`, `timestamp`, `time`, `binary`,
        `unknown` (no value to tell) or `other`.
    """
    if dtype.is_integer():
        return "integer"
    if dtype.is_float():
        return "float"
    if dtype.is_decimal():
        return "decimal"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    names = {pl.Boolean: "boolean", pl.Date: "date", pl.Time: "time", pl.Binary: "binary", pl.Null: "unknown"}
    return "timestamp" if dtype == pl.Datetime else names.get(type(dtype), "other")


def check_columns(
    source: str,
    table: TableName,
    existing: Mapping[str, pl.DataType],
    *frames: pl.DataFrame,
    required: Collection[str] = (),
    ignore_case: bool = False,
) -> None:
    """Check that rows can be appended to a table.

    Args:
        source: name of the data source, for the message.
        table: name of the table.
        existing: its columns.
        frames: the rows, in each form in which the table could hold them; one that fits is enough.
        required: columns that cannot be null and have no default.
        ignore_case: whether the database takes `ID` for `id`.

    Raises:
        UserError: naming each column that is missing or does not fit, with the types.
    """

    def same(name: str) -> str:
        return name.casefold() if ignore_case else name

    known = {same(name): dtype for name, dtype in existing.items()}
    problems = []
    for name, dtype in frames[0].schema.items():
        if same(name) not in known:
            problems.append(f'it has no column "{name}" ({kind(dtype)})')
        elif not any(_fits(kind(frame.schema[name]), kind(known[same(name)])) for frame in frames):
            problems.append(f'column "{name}" is {kind(known[same(name)])} in it, but {kind(dtype)} here')
    given = {same(name) for name in frames[0].columns}
    problems += [f'its column "{name}" must be given' for name in required if same(name) not in given]
    if problems:
        columns = ", ".join(f"{name} {kind(dtype)}" for name, dtype in existing.items())
        raise UserError(
            f'cannot append to table "{table.local_name}" of data source "{source}": {"; ".join(problems)}. '
            f"Its columns: {columns}. Change the table, or name another one."
        )


def _fits(new: str, old: str) -> bool:
    return new == old or "unknown" in (new, old) or old == "other" or (new, old) in _WIDENS


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Replace the types that exist only in Polars.

    Args:
        frame: any frame.

    Returns:
        The frame with categories and untyped nulls as text, and moments in UTC.
    """
    return frame.with_columns(
        *(pl.col(name).cast(pl.String) for name, dtype in frame.schema.items() if _only_in_polars(dtype)),
        *(
            pl.col(name).dt.convert_time_zone("UTC")
            for name, dtype in frame.schema.items()
            if isinstance(dtype, pl.Datetime) and dtype.time_zone
        ),
    )


def _only_in_polars(dtype: pl.DataType) -> bool:
    return dtype in (pl.Categorical, pl.Enum, pl.Null)
