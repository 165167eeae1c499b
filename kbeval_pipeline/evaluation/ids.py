"""Canonical text of ids, so that an id is the same id whatever type a table or a store gave it."""

import math
from decimal import Decimal

import numpy as np
import polars as pl

# Below it Python writes a float with an exponent ("1e-05") and Polars in its own way ("1e-5").
_SMALLEST_FIXED = 1e-4


def canonical_id(value: object) -> str | None:
    """Canonical text of one id.

    Numbers are compared by value and text as it is: 2, 2.0 and "2" are the same id, "02" and the text
    "2.0" are two others.

    Args:
        value: any value that a table or a knowledge base uses as an id.

    Returns:
        Text is kept exactly; an integer gives its decimal digits, as does a float or decimal with an
        integral value (exactly, however large); another float gives its shortest text (`repr`), and another
        decimal the same where that is exact; a boolean gives `true` or `false`; anything else (date, UUID)
        its `str`. None and NaN give None.
    """
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None:
            return None
        case str():
            return str.__str__(value)
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float() | Decimal():
            return _float_text(value) if isinstance(value, float) else _decimal_text(value)
        case _:
            return str(value)


def canonical_ids(series: pl.Series) -> pl.Series:
    """Canonical text of a column of ids; each value as `canonical_id` gives it.

    Text, integers, booleans, dates, floats and decimals are converted by Polars; only numbers next to zero,
    floats above 10^38 and types without a common text form go through Python.

    Args:
        series: ids of any type.

    Returns:
        A text series of the same name and length; null where the id is null or NaN.
    """
    dtype = series.dtype
    if dtype == pl.String:
        return series
    if dtype.is_float():
        return _float_ids(series.cast(pl.Float64))
    if dtype.is_decimal():
        return _decimal_ids(series)
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Date, pl.Null, pl.Categorical, pl.Enum):
        return series.cast(pl.String)
    return _by_python(series)


def with_canonical_ids(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Replace id columns by their canonical text.

    Args:
        frame: any frame.
        columns: names of its id columns.

    Returns:
        The frame with these columns as `canonical_ids` gives them; other columns and the order are kept.
    """
    return frame.with_columns(canonical_ids(frame[column]) for column in columns)


def _float_text(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else float.__repr__(value)


def _decimal_text(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    if not value.is_finite():
        return repr(float(value))
    if value != value.to_integral_value():
        shortest = repr(float(value))
        return shortest if Decimal(shortest) == value else _fixed_text(value)
    digits = _fixed_text(value)
    return "0" if digits == "-0" else digits


def _fixed_text(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _float_ids(series: pl.Series) -> pl.Series:
    value = pl.col("value")
    fixed = value.abs() >= _SMALLEST_FIXED
    texts = (
        series.rename("value")
        .to_frame()
        .lazy()
        .with_columns(value.fill_nan(None))
        .select(
            value,
            text=pl.when(value == value.floor())
            # Exact; null beyond 128 bits.
            .then(value.cast(pl.Int128, strict=False).cast(pl.String))
            .when(fixed)
            .then(value.cast(pl.String)),
        )
        .collect()
    )
    return _completed(texts, series.name)


def _decimal_ids(series: pl.Series) -> pl.Series:
    value = pl.col("value")
    text = value.cast(pl.String)
    plain = pl.when(text.str.contains(".", literal=True)).then(
        text.str.strip_chars_end("0").str.strip_chars_end(".")
    )
    near_zero = (value.cast(pl.Float64).abs() < _SMALLEST_FIXED) & (value != 0)
    texts = (
        series.rename("value")
        .to_frame()
        .lazy()
        .select(value, text=pl.when(~near_zero).then(plain.otherwise(text)))
        .collect()
    )
    return _completed(texts, series.name)


def _completed(texts: pl.DataFrame, name: str) -> pl.Series:
    """Fill the texts that Polars could not write from `canonical_id`."""
    missing = texts["text"].is_null() & texts["value"].is_not_null()
    if not missing.any():
        return texts["text"].alias(name)
    rest = _by_python(texts["value"].filter(missing))
    return texts["text"].scatter(missing.arg_true(), rest).alias(name)


def _by_python(series: pl.Series) -> pl.Series:
    return pl.Series(series.name, [canonical_id(value) for value in series.to_list()], dtype=pl.String)
