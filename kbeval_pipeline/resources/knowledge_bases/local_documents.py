"""Where the documents of a local knowledge base come from: the common part of files and tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import polars as pl

from kbeval_pipeline.resources.knowledge_bases.protocol import SkippedDocument


class SourceDocument(NamedTuple):
    """A document with the hash of its text.

    Attributes:
        id: canonical id.
        content: the text.
        content_hash: SHA-256 of the text.
    """

    id: str
    content: str
    content_hash: str


@dataclass(frozen=True)
class Scan:
    """What a source holds, without the texts.

    Attributes:
        hashes: columns `id` and `content_hash`, one row for each document, in the order of ids.
        skipped: what was left out.
    """

    hashes: pl.DataFrame
    skipped: list[SkippedDocument]


class DocumentSource(Protocol):
    """Documents that can be scanned cheaply and read in the order of their ids."""

    def scan(self) -> Scan:
        """Hash every document, reading as little as possible."""
        ...

    def read(self) -> Iterator[SourceDocument]:
        """Read the documents in the order of their ids."""
        ...

    def describe(self) -> str:
        """Name the source, for messages."""
        ...


HASHES_SCHEMA = pl.Schema({"id": pl.String, "content_hash": pl.String})
