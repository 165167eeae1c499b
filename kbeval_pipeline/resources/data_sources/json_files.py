"""JSON and JSON Lines files: each object is a row."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from kbeval_pipeline.resources.data_sources.csv_files import writable
from kbeval_pipeline.resources.data_sources.frames import column, kind, plain, unify

_BATCH_ROWS = 10_000


def read_json(path: Path) -> pl.DataFrame:
    """Read an array of objects, or one object a line.

    Args:
        path: the file, UTF-8.

    Returns:
        Its rows; a key that an object lacks is null, text stays text, nested values become JSON text.

    Raises:
        ValueError: when the file is not well formed; the message says where.
    """
    try:
        if not _is_array(path):
            return _frame(_lines(path))
        with path.open(encoding="utf-8-sig") as file:
            rows = json.load(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error.msg}, line {error.lineno}") from None
    return _frame(_object(row, f"row {number}") for number, row in enumerate(rows, 1))


def _is_array(path: Path) -> bool:
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                return line.lstrip().startswith("[")
    return False


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        text = file.readline()
        number = 1
        while text:
            if text.strip():
                try:
                    yield _object(json.loads(text), f"line {number}")
                except json.JSONDecodeError as error:
                    raise ValueError(
                        f"line {number} is not valid JSON: {error.msg}; expected one object a line, "
                        "or an array of objects"
                    ) from None
            text = file.readline()
            number += 1


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not an object")
    return row


def _frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Convert rows batch by batch, since Python's objects take many times a column's memory."""
    parts: dict[str, list[pl.Series]] = {}
    remaining = iter(rows)
    height = 0
    while batch := list(islice(remaining, _BATCH_ROWS)):
        for name in dict.fromkeys(name for row in batch for name in row):
            parts.setdefault(name, [pl.Series(name, [None] * height, dtype=pl.Null)])
        for name, found in parts.items():
            found.append(column(name, [row.get(name) for row in batch]))
        height += len(batch)
    return pl.DataFrame([unify(name, found) for name, found in parts.items()])


def write_json_lines(path: Path, frame: pl.DataFrame) -> None:
    """Write one object a line.

    Args:
        path: the file to make.
        frame: the rows.

    Raises:
        UserError: when a column holds bytes.
    """
    _writable(frame).write_ndjson(path)


def write_json(path: Path, frame: pl.DataFrame) -> None:
    """Write an array of objects.

    Args:
        path: the file to make.
        frame: the rows.

    Raises:
        UserError: when a column holds bytes.
    """
    _writable(frame).write_json(path)


def append_json(old: Path, new: Path, frame: pl.DataFrame) -> None:
    """Copy a JSON or JSON Lines file and add rows at its end.

    Args:
        old: the file to copy; its lines stay byte for byte, an array is written anew.
        new: the file to make.
        frame: the rows.
    """
    if _is_array(old):
        with old.open(encoding="utf-8-sig") as file:
            rows = json.load(file)
        rows += json.loads(_writable(frame).write_json())
        new.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        return
    content = old.read_bytes()
    ending = b"" if not content or content.endswith(b"\n") else b"\n"
    new.write_bytes(content + ending + _writable(frame).write_ndjson().encode())


def as_read_back(frame: pl.DataFrame) -> pl.DataFrame:
    """Show rows as `read_json` would read them from a file.

    Args:
        frame: rows to write.

    Returns:
        The rows with dates, moments and decimals as text.
    """
    return writable(frame).with_columns(
        pl.col(name).cast(pl.String)
        for name, dtype in frame.schema.items()
        if kind(dtype) in ("date", "timestamp", "time", "decimal")
    )


def _writable(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep nested values nested; refuse what JSON has no form for."""
    writable(frame.select(name for name, dtype in frame.schema.items() if not dtype.is_nested()))
    return plain(frame)
