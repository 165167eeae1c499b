"""Replies that were paid for, kept as they arrive: the one mechanism of resume and free re-runs."""

import random
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from langchain_core.caches import BaseCache
from langchain_core.outputs import Generation

from kbeval_pipeline.errors import UserError

_LOOK_UP_AT_ONCE = 500
_VERSION = 1


class Store(Protocol):
    """Texts by key; safe to use from several threads and processes."""

    def get(self, key: str) -> str | None:
        """Look a text up.

        Args:
            key: hexadecimal hash of the request.

        Returns:
            The text, or None.
        """
        ...

    def get_many(self, keys: Iterable[str]) -> dict[str, str]:
        """Look several texts up.

        Args:
            keys: hexadecimal hashes.

        Returns:
            The texts that are known.
        """
        ...

    def put(self, key: str, text: str) -> None:
        """Keep a text; it is safe from a kill of the process once this returns.

        Args:
            key: hexadecimal hash of the request.
            text: the text.
        """
        ...


class ReplyStore:
    """A SQLite file in WAL mode; each reply is committed before it is reported.

    Args:
        path: the file; it and its folder are made when missing.
        lock_wait_seconds: how long to wait for another process that writes.

    Raises:
        UserError: when the file is damaged, locked for long or not writable.
    """

    def __init__(self, path: Path, lock_wait_seconds: float = 30.0) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: a statement is a transaction. WAL with synchronous=NORMAL survives a killed process;
            # a power cut may cost the newest replies, never the file.
            self._connection = sqlite3.connect(
                path, timeout=lock_wait_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare_in_turn(time.monotonic() + lock_wait_seconds)
            except BaseException:
                self._connection.close()
                raise

    def _prepare_in_turn(self, deadline: float) -> None:
        """Prepare the file; SQLite does not wait where two processes switch a new file to WAL at once."""
        while True:
            try:
                return self._prepare()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.01, 0.05))  # noqa: S311

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise UserError(
                f'the reply store "{self._path}" was written by a newer kbeval-pipeline; upgrade this one'
            )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS replies "
            "(key BLOB PRIMARY KEY, reply TEXT NOT NULL, created_at REAL NOT NULL)"
        )
        connection.execute(f"PRAGMA user_version={_VERSION}")

    def __repr__(self) -> str:
        return f"ReplyStore({str(self._path)!r})"

    def get(self, key: str) -> str | None:
        """Look a text up; see `Store`."""
        with self._explained(), self._lock:
            sql = "SELECT reply FROM replies WHERE key = ?"
            row = self._connection.execute(sql, (bytes.fromhex(key),)).fetchone()
        return None if row is None else str(row[0])

    def get_many(self, keys: Iterable[str]) -> dict[str, str]:
        """Look several texts up; see `Store`."""
        wanted = [bytes.fromhex(key) for key in keys]
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _LOOK_UP_AT_ONCE):
            part = wanted[start : start + _LOOK_UP_AT_ONCE]
            marks = ",".join("?" * len(part))
            sql = f"SELECT key, reply FROM replies WHERE key IN ({marks})"  # noqa: S608
            with self._explained(), self._lock:
                found.update((key.hex(), reply) for key, reply in self._connection.execute(sql, part))
        return found

    def put(self, key: str, text: str) -> None:
        """Keep a text; see `Store`."""
        row = (bytes.fromhex(key), text, time.time())
        with self._explained(), self._lock:
            self._connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", row)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            cause = f'the reply store "{self._path}" '
            if "locked" in str(error) or "busy" in str(error):
                cause += "is locked by another process; end it, or wait until it is done, and run again"
            elif isinstance(error, sqlite3.DatabaseError) and type(error) is sqlite3.DatabaseError:
                cause += (
                    f"is damaged ({error}); move it away to begin a new one (its replies are asked again)"
                )
            else:
                cause += f"cannot be used ({error}); check that its folder is writable and has free space"
            raise UserError(cause) from error


class CacheStore:
    """The same on top of any LangChain cache.

    Args:
        cache: a LangChain cache, shared or not.
    """

    _NAMESPACE = "kbeval-pipeline"

    def __init__(self, cache: BaseCache) -> None:
        self._cache = cache

    def get(self, key: str) -> str | None:
        """Look a text up; see `Store`."""
        found = self._cache.lookup(key, self._NAMESPACE)
        return found[0].text if found else None

    def get_many(self, keys: Iterable[str]) -> dict[str, str]:
        """Look several texts up; see `Store`."""
        return {key: text for key in keys if (text := self.get(key)) is not None}

    def put(self, key: str, text: str) -> None:
        """Keep a text; see `Store`."""
        self._cache.update(key, self._NAMESPACE, [Generation(text=text)])
