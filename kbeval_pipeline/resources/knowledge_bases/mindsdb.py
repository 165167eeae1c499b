"""A knowledge base of a running MindsDB server, through its HTTP SQL API."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import canonical_id
from kbeval_pipeline.project import MindsDBKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.mindsdb_http import MindsDBError, MindsDBServer
from kbeval_pipeline.resources.knowledge_bases.mindsdb_sql import (
    ServerChunk,
    join_chunks,
    metadata_of,
    question_literal,
    quoted_name,
    text_literal,
)
from kbeval_pipeline.resources.knowledge_bases.protocol import Document, Hit, SkippedDocument

PAGE_DOCUMENTS = 100
"""Documents whose chunks are fetched in one request."""

_NULL_ID = "the id is null; insert the document with an id"


class MindsDBKnowledgeBaseAdapter:
    """A knowledge base on a MindsDB server; an object lives for one run.

    The server never returns more than 100 chunks of a search, and fewer where it reranks and leaves out those
    below its own threshold.

    Args:
        name: the knowledge base's name here.
        settings: the server, and the name there.

    Raises:
        UserError: when the name there is no name.
    """

    def __init__(self, name: str, settings: MindsDBKnowledgeBase) -> None:
        self.name = name
        self.max_concurrency = settings.max_concurrency
        self._settings = settings
        self._table = quoted_name(settings.knowledge_base)
        self._server = MindsDBServer(settings)
        self._skipped: list[SkippedDocument] | None = None

    def search(self, question: str, k: int) -> list[Hit]:
        """Search on the server.

        Args:
            question: any text; it has no query syntax.
            k: the most chunks to return, at least 1.

        Returns:
            The hits by falling relevance.

        Raises:
            MindsDBError: when the server does not answer, or with an error.
        """
        if k < 1:
            raise ValueError(f"k is {k}, expected at least 1")
        rows = self._server.select(
            self._table,
            ("id", "chunk_id", "chunk_content", "metadata", "distance", "relevance"),
            f" WHERE content = {question_literal(question)} LIMIT {k}",
        )[:k]
        scores = [_score(relevance, distance) for *_, distance, relevance in rows]
        if None in scores:
            scores = [1 / rank for rank in range(1, len(rows) + 1)]
        found = sorted(zip(rows, scores, strict=True), key=lambda item: -(item[1] or 0.0))
        return [_hit(rank, row, score or 0.0) for rank, (row, score) in enumerate(found, 1)]

    def documents(self) -> Iterator[Document]:
        """Stream the documents in the order of their ids, each put together from its chunks.

        The ids are listed in one request and the texts follow in pages of documents by id, as the server's
        own OFFSET has no fixed order. What it cut away between chunks is lost.

        Raises:
            UserError: when there is none, the server fails or its documents change meanwhile.
        """
        listed = self._listed()
        for start in range(0, len(listed), PAGE_DOCUMENTS):
            page = listed[start : start + PAGE_DOCUMENTS]
            literals = [self._id_literal(raw) for _, raw, _ in page]
            rows = self._read(
                ("id", "chunk_id", "chunk_content", "metadata"), f" WHERE id IN ({', '.join(literals)})"
            )
            chunks: dict[str, list[ServerChunk]] = defaultdict(list)
            for doc_id, chunk_id, content, metadata in rows:
                chunk = ServerChunk(canonical_id(chunk_id) or "", str(content or ""), metadata_of(metadata))
                chunks[canonical_id(doc_id) or ""].append(chunk)
            for doc_id, _, count in page:
                if len(chunks[doc_id]) != count:
                    raise UserError(
                        f'{self._where()}: document "{doc_id}" was listed with {count} chunks and read with '
                        f"{len(chunks[doc_id])}; run again when nothing is being inserted"
                    )
                yield Document(doc_id, join_chunks(chunks[doc_id]))

    def fingerprint(self) -> str:
        """Hash every chunk with its ids, whatever their order; the server is asked for all of them at once.

        Raises:
            UserError: when there is none, or the server fails.
        """
        lines = []
        skipped = set()
        for doc_id, chunk_id, content in self._read(("id", "chunk_id", "chunk_content")):
            text = hashlib.sha256(str(content or "").encode()).hexdigest()
            identity, chunk = canonical_id(doc_id), canonical_id(chunk_id) or ""
            if identity is None:
                skipped.add(chunk)
            lines.append(f"{len(identity or '')}:{identity or ''}:{len(chunk)}:{chunk}:{text}")
        self._skipped = [SkippedDocument(f"chunk {chunk}", _NULL_ID) for chunk in sorted(skipped)]
        if not lines:
            raise self._no_documents()
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    def prepare(self) -> str:
        """Log in, and return the fingerprint as it is now."""
        return self.fingerprint()

    def skipped_documents(self) -> list[SkippedDocument]:
        """List the chunks without a document id."""
        if self._skipped is None:
            self._listed()
        return list(self._skipped or [])

    def _listed(self) -> list[tuple[str, Any, int]]:
        """List the documents by id: canonical, as the server gives it, and the number of chunks."""
        found: dict[str, tuple[Any, int]] = {}
        skipped = set()
        for raw, chunk_id in self._read(("id", "chunk_id")):
            doc_id = canonical_id(raw)
            if doc_id is None:
                skipped.add(canonical_id(chunk_id) or "")
            else:
                found[doc_id] = (raw, found.get(doc_id, (raw, 0))[1] + 1)
        self._skipped = [SkippedDocument(f"chunk {chunk}", _NULL_ID) for chunk in sorted(skipped)]
        if not found:
            raise self._no_documents()
        return [(doc_id, *found[doc_id]) for doc_id in sorted(found)]

    def _id_literal(self, raw: Any) -> str:
        literal = text_literal(raw) if isinstance(raw, str) else canonical_id(raw)
        if literal is None:
            raise UserError(f"{self._where()}: MindsDB's SQL cannot name the document id {raw}; rename it")
        return literal

    def _no_documents(self) -> UserError:
        return UserError(f"{self._where()} has no document; insert some")

    def _where(self) -> str:
        return f'knowledge base "{self.name}": {self._settings.knowledge_base} on {self._server.url}'

    def _read(self, columns: Sequence[str], rest: str = "") -> list[list[Any]]:
        try:
            return self._server.select(self._table, columns, rest)
        except MindsDBError as error:
            problem = str(error)
        raise UserError(f'knowledge base "{self.name}": {problem}')


def _score(relevance: Any, distance: Any) -> float | None:
    for value in (relevance, None if distance is None else 1 - distance):
        if value is not None and math.isfinite(value):
            return float(value)
    return None


def _hit(rank: int, row: Sequence[Any], score: float) -> Hit:
    doc_id, chunk_id, content = canonical_id(row[0]), canonical_id(row[1]), str(row[2] or "")
    if doc_id is None:
        raise ValueError(f"the chunk at rank {rank} has no document id; insert documents with an id")
    if chunk_id is None:
        chunk_id = f"{doc_id}#{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return Hit(rank, chunk_id, doc_id, content, score)
