"""Chunk texts in an Arrow file that is mapped, not loaded."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

_ROWS_IN_BATCH = 4096


class Chunk(NamedTuple):
    """A part of a document.

    Attributes:
        chunk_id: `<doc_id>#<n>`, n from 0.
        doc_id: the document.
        content: the text.
        content_hash: SHA-256 of the text.
    """

    chunk_id: str
    doc_id: str
    content: str
    content_hash: str


def write_chunks(path: Path, chunks: Iterable[Chunk]) -> int:
    """Write chunks as they come.

    Args:
        path: the file.
        chunks: in the order of their rows.

    Returns:
        How many there were.
    """
    import pyarrow as pa  # noqa: PLC0415

    schema = pa.schema([(name, pa.large_string()) for name in Chunk._fields])
    count = 0
    iterator = iter(chunks)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        while rows := list(islice(iterator, _ROWS_IN_BATCH)):
            columns = [pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            count += len(rows)
    return count


class ChunkStore:
    """Chunks by row; safe to use from several threads.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415

        self._table: Any = pa.ipc.open_file(pa.memory_map(str(path))).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def get(self, row: int) -> Chunk:
        """Read one chunk."""
        return Chunk(*(column[row].as_py() for column in self._table.columns))

    def column(self, name: str) -> Iterator[str]:
        """Stream a column in the order of rows."""
        for part in self._table[name].chunks:
            yield from part.to_pylist()
