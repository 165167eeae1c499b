"""Vectors by content hash, so that a changed document embeds only its own chunks."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kbeval_pipeline.resources.knowledge_bases.embeddings import EmbeddingModel, Vectors

_EMBED_AT_ONCE = 64
_LOOK_UP_AT_ONCE = 500


class VectorCache:
    """The vectors of one model, in a SQLite file; several processes may use it at once.

    Args:
        folder: where the caches of all models are.
        model: the model that embeds what is missing.
    """

    def __init__(self, folder: Path, model: EmbeddingModel) -> None:
        self._path = folder / f"{model.identity}.sqlite"
        self._model = model

    def vectors(self, hashes: Sequence[str], texts: Sequence[str]) -> Vectors:
        """Look vectors up, and embed and store those that are missing.

        What was embedded before an interruption is kept.

        Args:
            hashes: content hashes of the texts.
            texts: the texts.

        Returns:
            One row for each text.
        """
        known = self._load(list(dict.fromkeys(hashes)))
        missing = {h: text for h, text in zip(hashes, texts, strict=True) if h not in known}
        pending = list(missing.items())
        for start in range(0, len(pending), _EMBED_AT_ONCE):
            batch = pending[start : start + _EMBED_AT_ONCE]
            rows = self._model.embed([text for _, text in batch])
            fresh = {h: row for (h, _), row in zip(batch, rows, strict=True)}
            known.update(fresh)
            self._store(fresh)
        lengths = {len(row) for row in known.values()}
        if len(lengths) > 1:
            # The model now gives vectors of another length than it did: the stored ones are worthless.
            self._discard()
            return self.vectors(hashes, texts)
        return np.stack([known[h] for h in hashes]).astype(np.float32, copy=False)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self._path, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors (hash TEXT PRIMARY KEY, vector BLOB) WITHOUT ROWID"
            )
            with connection:
                yield connection

    def _load(self, hashes: list[str]) -> dict[str, Vectors]:
        found: dict[str, Vectors] = {}
        try:
            with self._connect() as connection:
                for start in range(0, len(hashes), _LOOK_UP_AT_ONCE):
                    part = hashes[start : start + _LOOK_UP_AT_ONCE]
                    marks = ",".join("?" * len(part))
                    sql = f"SELECT hash, vector FROM vectors WHERE hash IN ({marks})"  # noqa: S608
                    for content_hash, blob in connection.execute(sql, part):
                        found[content_hash] = np.frombuffer(blob, dtype="<f4")
        except sqlite3.OperationalError:
            raise
        except (sqlite3.DatabaseError, ValueError, TypeError):
            self._discard()
            return {}
        return found

    def _store(self, vectors: dict[str, Vectors]) -> None:
        rows = [(content_hash, row.astype("<f4").tobytes()) for content_hash, row in vectors.items()]
        with self._connect() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
