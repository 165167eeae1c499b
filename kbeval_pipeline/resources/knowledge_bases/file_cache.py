"""Remembers the hash of every file, so that an unchanged folder is not read again."""

import contextlib
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import polars as pl

RECENT_SECONDS = 2.0

_SCHEMA = pl.Schema(
    {
        "path": pl.String,
        "size": pl.Int64,
        "mtime_ns": pl.Int64,
        "ctime_ns": pl.Int64,
        "content_hash": pl.String,
        "cause": pl.String,
    }
)


@dataclass(frozen=True, slots=True)
class FileState:
    """What was found in a file: the hash of its text, or the cause why it was left out."""

    content_hash: str | None
    cause: str | None


class FileCache:
    """States of files by path, size and times.

    A file modified within the last two seconds is neither looked up nor kept: a second write within the
    clock's resolution could not be told from the first.

    Args:
        path: where the cache is stored; unreadable content counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now_ns = time.time_ns()
        self._stored = self._load()
        self._current: dict[str, tuple[int, int, int, FileState]] = {}

    def _load(self) -> dict[str, tuple[int, int, int, FileState]]:
        try:
            frame = pl.read_parquet(self._path, memory_map=False)
            if frame.schema != _SCHEMA:
                return {}
            rows = frame.rows()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return {}
        return {row[0]: (row[1], row[2], row[3], FileState(row[4], row[5])) for row in rows}

    def _is_recent(self, status: os.stat_result) -> bool:
        return status.st_mtime_ns > self._now_ns - int(RECENT_SECONDS * 1e9)

    def get(self, path: str, status: os.stat_result) -> FileState | None:
        """Look up a file.

        Args:
            path: its id.
            status: its current status.

        Returns:
            What was found when it was last read, None when it must be read.
        """
        found = self._stored.get(path)
        if found is None or self._is_recent(status):
            return None
        if found[:3] != (status.st_size, status.st_mtime_ns, status.st_ctime_ns):
            return None
        self._current[path] = found
        return found[3]

    def put(self, path: str, status: os.stat_result, state: FileState) -> None:
        """Keep what was found in a file.

        Args:
            path: its id.
            status: its status before it was read.
            state: what was found.
        """
        if not self._is_recent(status):
            self._current[path] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, state)

    def save(self) -> None:
        """Store what is current; files that are gone are forgotten. A failure to store costs only time."""
        if self._current == self._stored:
            return
        rows = [
            (path, size, mtime, ctime, state.content_hash, state.cause)
            for path, (size, mtime, ctime, state) in self._current.items()
        ]
        temporary = self._path.with_name(f".{self._path.name}-{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(temporary)
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)
