"""CSV files: read strictly, typed only where no value's text would be lost."""

import csv
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import duckdb
import polars as pl

from kbeval_pipeline.duckdb_connection import connect
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.duckdb_engine import short_message
from kbeval_pipeline.resources.data_sources.frames import kind, plain, text_of

_DELIMITERS = ",;\t|"
_SAMPLE_RECORDS = 20
_SHORTEST_LINE_LIMIT = 2_000_000
_LONGEST_LINE_LIMIT = 100_000_000

# A float holds fifteen digits; a number with more stays as it is written.
_INTEGER = r"^(0|-?[1-9]\d{0,18})$"
_FLOAT = r"^(-?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]?\d+)?|NaN|-?inf)$"
_LABEL = r"^-?\d+\.\d+0$"
_BOOLEAN = r"^(true|false)$"
_DATE = r"^\d{4}-\d\d-\d\d$"
_MOMENT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?$"
_ZONED_MOMENT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)$"
_MOMENT_FORMAT = "%Y-%m-%d %H:%M:%S%.f"


def _spaced(texts: pl.Series) -> pl.Series:
    return texts.str.replace("T", " ", literal=True).str.replace("Z$", "+0000")


_CONVERSIONS: tuple[tuple[str, Callable[[pl.Series], pl.Series]], ...] = (
    (_INTEGER, lambda texts: texts.cast(pl.Int64)),
    (_FLOAT, lambda texts: texts.cast(pl.Float64)),
    (_BOOLEAN, lambda texts: texts == "true"),
    (_DATE, lambda texts: texts.str.to_date("%Y-%m-%d")),
    (_MOMENT, lambda texts: _spaced(texts).str.to_datetime(_MOMENT_FORMAT, time_unit="us")),
    (
        _ZONED_MOMENT,
        lambda texts: _spaced(texts).str.to_datetime(f"{_MOMENT_FORMAT}%z", time_unit="us", time_zone="UTC"),
    ),
)


def read_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file with a header line.

    Commas, semicolons, tabs and bars are told apart by the first lines. An empty field is null, a quoted
    empty one is empty text. See `infer` for the types.

    Args:
        path: the file, UTF-8.

    Returns:
        Its rows.

    Raises:
        ValueError: when the file is not well formed; the message says where.
    """
    header, delimiter = _header(path)
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(header)))
    limit = min(max(path.stat().st_size, _SHORTEST_LINE_LIMIT), _LONGEST_LINE_LIMIT)
    # DuckDB takes the path for a pattern.
    literal_path = re.sub(r"([*?\[])", r"[\1]", str(path))
    with connect(":memory:") as connection:
        try:
            arrow = connection.sql(
                f"SELECT * FROM read_csv(?, columns={{{columns}}}, auto_detect=false, header=true, "  # noqa: S608
                f"delim='{delimiter}', quote='\"', escape='\"', nullstr='', allow_quoted_nulls=false, "
                f"max_line_size={limit})",
                params=[literal_path],
            ).to_arrow_table()
        except duckdb.Error as error:
            raise ValueError(short_message(error)) from None
    frame = pl.DataFrame(pl.from_arrow(arrow))
    frame.columns = header
    return frame.select(infer(frame[name]) for name in header)


def _header(path: Path) -> tuple[list[str], str]:
    try:
        if not (path.stat().st_size and (sample := _sample(path, ","))):
            raise ValueError("it is empty, expected a header line with the names of the columns")
        delimiter = max(_DELIMITERS, key=lambda mark: _common_width(_sample(path, mark)))
        names = sample[0] if delimiter == "," else _sample(path, delimiter)[0]
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    header = [name.strip() or f"column{position}" for position, name in enumerate(names)]
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ValueError(f'its header names the column "{twice[0]}" twice')
    return header, delimiter


def _sample(path: Path, delimiter: str) -> list[list[str]]:
    records: list[list[str]] = []
    # Python's reader gives up on fields that are long, which by then do not matter.
    with path.open(encoding="utf-8-sig", newline="") as file, suppress(csv.Error):
        records.extend(islice(filter(None, csv.reader(file, delimiter=delimiter)), _SAMPLE_RECORDS))
    return records


def _common_width(records: list[list[str]]) -> float:
    """Number of fields if all records have as many, else less than one: the header alone can mislead."""
    widths = set(map(len, records))
    return len(records[0]) if len(widths) == 1 and widths != {1} else 1 - 1 / len(records[0])


def infer(texts: pl.Series) -> pl.Series:
    """Type a text column where every value says the same thing as its text.

    Ids decide what is left alone: "007", "+1" and numbers of more digits than the type holds keep a
    column text, and so does "1.10" beside "1.9", which are labels such as section numbers, not numbers.

    Args:
        texts: the fields of a column as written.

    Returns:
        A column of integers, floats, booleans, dates or moments, or the texts; dtype Null where there
        is no value at all.
    """
    values = texts.drop_nulls()
    if values.is_empty():
        return texts.cast(pl.Null)
    for pattern, convert in _CONVERSIONS:
        if values.head(100).str.contains(pattern).all() and values.str.contains(pattern).all():
            try:
                return texts if pattern == _FLOAT and _are_labels(values) else convert(texts)
            except pl.exceptions.PolarsError:
                return texts
    return texts


def _are_labels(values: pl.Series) -> bool:
    if not values.str.contains(r"\d").any():
        return True
    if not values.str.contains(_LABEL).any():
        return False
    decimals = values.str.extract(r"\.(\d+)$").str.len_chars()
    return decimals.n_unique() > 1


def write_csv(path: Path, frame: pl.DataFrame) -> None:
    """Write a CSV file with a header line.

    Args:
        path: the file to make.
        frame: the rows; nested values become JSON text.

    Raises:
        UserError: when a column holds bytes.
    """
    writable(frame).write_csv(path)


def append_csv(old: Path, new: Path, frame: pl.DataFrame) -> None:
    """Copy a CSV file and add rows at its end; what was there stays byte for byte.

    Args:
        old: the file to copy.
        new: the file to make.
        frame: the rows; columns they lack become empty fields.
    """
    header, delimiter = _header(old)
    content = old.read_bytes()
    newline = "\r\n" if content.split(b"\n", 1)[0].endswith(b"\r") else "\n"
    texts = writable(frame)
    missing = [pl.lit(None).alias(name) for name in header if name not in texts.columns]
    added = (
        texts.with_columns(missing)
        .select(header)
        .write_csv(separator=delimiter, include_header=False, line_terminator=newline)
    )
    ending = b"" if content.endswith(b"\n") else newline.encode()
    new.write_bytes(content + ending + added.encode())


def as_read_back(frame: pl.DataFrame) -> pl.DataFrame:
    """Show rows as `read_csv` would read them from a file.

    Args:
        frame: rows to write.

    Returns:
        The rows with the types that their text has.
    """
    texts = writable(frame).select(pl.all().cast(pl.String))
    return texts.select(infer(texts[name]) for name in texts.columns)


def writable(frame: pl.DataFrame) -> pl.DataFrame:
    """Turn what a text file cannot hold into text.

    Args:
        frame: any rows.

    Returns:
        The rows with nested values as JSON text.

    Raises:
        UserError: when a column holds bytes or durations.
    """
    frame = plain(frame)
    for name, dtype in frame.schema.items():
        if kind(dtype) == "binary" or dtype == pl.Duration:
            raise UserError(f'column "{name}" ({dtype}) cannot be written as text; use Parquet')
        if dtype.is_nested():
            texts = [text_of(value) for value in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, texts, dtype=pl.String))
    return frame
