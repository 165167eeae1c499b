"""What every knowledge base offers, whatever stands behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved chunk.

    Attributes:
        rank: place in the result, from 1.
        chunk_id: id of the chunk.
        doc_id: id of the chunk's document, as canonical text.
        content: text of the chunk.
        score: the store's own score; higher is better.
    """

    rank: int
    chunk_id: str
    doc_id: str
    content: str
    score: float


@dataclass(frozen=True, slots=True)
class Document:
    """One source document.

    Attributes:
        id: the document's id, as canonical text.
        content: its whole text.
    """

    id: str
    content: str


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A document that was left out.

    Attributes:
        where: a path below the folder, or a row number.
        cause: why, and what to do about it.
    """

    where: str
    cause: str


@runtime_checkable
class KnowledgeBase(Protocol):
    """A knowledge base that is searched by a blocking call.

    An object lives for one run; its `search` is called from several threads at once.
    """

    name: str
    max_concurrency: int

    def search(self, question: str, k: int) -> list[Hit]:
        """Return the `k` best chunks, best first."""
        ...

    def documents(self) -> Iterator[Document]:
        """Stream the documents."""
        ...

    def fingerprint(self) -> str:
        """Return a text that changes with the content and what is searched for, and only with them."""
        ...

    def prepare(self) -> str:
        """Get ready to search, and return the fingerprint of what searches will see."""
        ...

    def skipped_documents(self) -> list[SkippedDocument]:
        """List the documents that were left out, with the cause of each."""
        ...


@runtime_checkable
class AsyncKnowledgeBase(Protocol):
    """A knowledge base whose search is a coroutine; otherwise a `KnowledgeBase`."""

    name: str
    max_concurrency: int

    async def search(self, question: str, k: int) -> list[Hit]:
        """Return the `k` best chunks, best first."""
        ...

    def documents(self) -> Iterator[Document]:
        """Stream the documents."""
        ...

    def fingerprint(self) -> str:
        """Return a text that changes with the content and what is searched for, and only with them."""
        ...

    def prepare(self) -> str:
        """Get ready to search, and return the fingerprint of what searches will see."""
        ...

    def skipped_documents(self) -> list[SkippedDocument]:
        """List the documents that were left out, with the cause of each."""
        ...
