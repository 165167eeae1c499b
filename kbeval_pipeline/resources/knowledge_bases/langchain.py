"""Any LangChain retriever or vector store, by its import path."""

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document as Chunk
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.ids import canonical_id
from kbeval_pipeline.project import LangChainKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.document_source import make_document_source, no_documents
from kbeval_pipeline.resources.knowledge_bases.embeddings import public_arguments
from kbeval_pipeline.resources.knowledge_bases.langchain_loading import (
    embedding_parameter,
    load_langchain_embeddings,
    load_path,
    make_object,
)
from kbeval_pipeline.resources.knowledge_bases.langchain_scores import gives_scores, scores_fall, stored_score
from kbeval_pipeline.resources.knowledge_bases.local_documents import DocumentSource
from kbeval_pipeline.resources.knowledge_bases.local_tables import TableReader
from kbeval_pipeline.resources.knowledge_bases.protocol import Document, Hit, SkippedDocument


class LangChainKnowledgeBaseAdapter:
    """A retriever or vector store that someone else fills; an object lives for one run.

    The store is made when it is first searched. It cannot list its documents, so they come from the setting
    `documents`, and the fingerprint from `fingerprint_sql` or those documents.

    Args:
        name: the knowledge base's name.
        settings: its settings, with absolute paths.
        data_sources: reads tables and queries.
        index_folder: holds a folder for each knowledge base.
    """

    def __init__(
        self, name: str, settings: LangChainKnowledgeBase, data_sources: TableReader, index_folder: Path
    ) -> None:
        self.name = name
        self.max_concurrency = settings.max_concurrency
        self._settings = settings
        self._data_sources = data_sources
        self._source = (
            make_document_source(name, settings.documents, data_sources, index_folder)
            if settings.documents
            else None
        )
        self._skipped: list[SkippedDocument] | None = None
        self._store: VectorStore | BaseRetriever | None = None
        self._has_scores = False
        self._retrievers: dict[int, BaseRetriever] = {}
        self._lock = threading.Lock()

    def documents(self) -> Iterator[Document]:
        """Stream the documents that the setting `documents` names, in the order of their ids.

        Raises:
            UserError: when the setting is missing or there is no document.
        """
        source = self._listed("its documents are needed")
        none = True
        for document in source.read():
            none = False
            yield Document(document.id, document.content)
        if none:
            raise no_documents(self.name, source, self.skipped_documents())

    def fingerprint(self) -> str:
        """Hash the result of `fingerprint_sql`, or else the listed documents, and what is searched.

        Raises:
            UserError: when neither is set, or there is nothing to hash.
        """
        settings = self._settings
        digest = hashlib.sha256(_stated(settings).encode())
        if settings.fingerprint_sql is not None:
            frame = self._data_sources.query(settings.fingerprint_sql)
            if frame.is_empty():
                raise UserError(f'knowledge base "{self.name}": fingerprint_sql returned no row')
            # A database returns rows in any order.
            for row in sorted(json.dumps(row, default=str) for row in frame.iter_rows()):
                digest.update(f"\n{row}".encode())
            return digest.hexdigest()
        source = self._listed("it cannot tell whether its documents changed", "`fingerprint_sql` or ")
        scan = source.scan()
        self._skipped = scan.skipped
        if scan.hashes.is_empty():
            raise no_documents(self.name, source, scan.skipped)
        for doc_id, content_hash in scan.hashes.iter_rows():
            digest.update(f"\n{len(doc_id)}:{doc_id}:{content_hash}".encode())
        return digest.hexdigest()

    def prepare(self) -> str:
        """Make the store, and return the fingerprint as it is now."""
        self._opened()
        return self.fingerprint()

    def skipped_documents(self) -> list[SkippedDocument]:
        """List the documents that were left out; none where no documents are listed."""
        if self._source is None:
            return []
        if self._skipped is None:
            self._skipped = self._source.scan().skipped
        return list(self._skipped)

    def search(self, question: str, k: int) -> list[Hit]:
        """Search the store.

        A score is the store's relevance score, or a retriever's number in the metadata (`score` or
        `relevance_score`), as long as these do not rise down the list; else it is 1 / rank.

        Args:
            question: any text.
            k: the most chunks to return, at least 1.

        Returns:
            The hits in the store's order.

        Raises:
            ValueError: when a chunk does not name its document.
        """
        if k < 1:
            raise ValueError(f"k is {k}, expected at least 1")
        store = self._opened()
        if isinstance(store, VectorStore):
            chunks, scores = self._search_vectors(store, question, k)
        else:
            retriever, arguments = self._retriever(store, k)
            chunks = retriever.invoke(question, **arguments)[:k]
            scores = [stored_score(chunk) for chunk in chunks]
        usable = scores_fall(scores)
        return [
            self._hit(rank, chunk, score if usable and score is not None else 1 / rank)
            for rank, (chunk, score) in enumerate(zip(chunks, scores, strict=True), 1)
        ]

    def _search_vectors(
        self, store: VectorStore, question: str, k: int
    ) -> tuple[list[Chunk], list[float | None]]:
        arguments = self._settings.search_arguments
        if self._has_scores:
            try:
                found = store.similarity_search_with_relevance_scores(question, k=k, **arguments)[:k]
                return [chunk for chunk, _ in found], [float(score) for _, score in found]
            except NotImplementedError:
                self._has_scores = False
        chunks = store.similarity_search(question, k=k, **arguments)[:k]
        return chunks, [None] * len(chunks)

    def _retriever(self, store: BaseRetriever, k: int) -> tuple[BaseRetriever, dict[str, Any]]:
        """Get a copy that returns `k` chunks, where that can be set, and the arguments of a call."""
        arguments = self._settings.search_arguments
        settable = "search_kwargs" in type(store).model_fields
        with self._lock:
            if k not in self._retrievers:
                changes: dict[str, Any] = {}
                if settable:
                    changes = {"search_kwargs": {**store.search_kwargs, **arguments, "k": k}}  # type: ignore[attr-defined]
                elif "k" in type(store).model_fields:
                    changes = {"k": k}
                self._retrievers[k] = store.model_copy(update=changes)
            return self._retrievers[k], {} if settable else arguments

    def _hit(self, rank: int, chunk: Chunk, score: float) -> Hit:
        key = self._settings.doc_id_key
        doc_id = canonical_id(chunk.metadata.get(key))
        if doc_id is None:
            found = ", ".join(sorted(map(str, chunk.metadata))) or "none"
            raise ValueError(
                f'the chunk at rank {rank} has no document id in its metadata under "{key}" (doc_id_key); '
                f"keys found: {found}"
            )
        # Qdrant keeps its ids in the metadata.
        chunk_id = canonical_id(chunk.id if chunk.id is not None else chunk.metadata.get("_id"))
        if chunk_id is None:
            chunk_id = f"{doc_id}#{hashlib.sha256(chunk.page_content.encode()).hexdigest()[:16]}"
        return Hit(rank, chunk_id, doc_id, chunk.page_content, score)

    def _listed(self, reason: str, other: str = "") -> DocumentSource:
        if self._source is None:
            raise UserError(
                f'knowledge base "{self.name}": {reason}, and a LangChain store cannot list them; '
                f"set {other}`documents`"
            )
        return self._source

    def _opened(self) -> VectorStore | BaseRetriever:
        if self._store is None:
            with self._lock:
                if self._store is None:
                    store = self._make_store()
                    self._has_scores = isinstance(store, VectorStore) and gives_scores(store)
                    self._store = store
        return self._store

    def _make_store(self) -> VectorStore | BaseRetriever:
        settings = self._settings
        where = f'knowledge base "{self.name}": class_path "{settings.class_path}"'
        factory = load_path(settings.class_path, where)
        arguments = dict(settings.arguments)
        if settings.embeddings is not None:
            arguments |= {
                embedding_parameter(factory, arguments, where): load_langchain_embeddings(
                    self.name, settings.embeddings
                )
            }
        store = make_object(factory, arguments, where)
        if not isinstance(store, VectorStore | BaseRetriever):
            raise UserError(
                f"{where} gave a {type(store).__name__}, neither a VectorStore nor a BaseRetriever"
            )
        return store


def _stated(settings: LangChainKnowledgeBase) -> str:
    embeddings = settings.embeddings
    return json.dumps(
        {
            "class_path": settings.class_path,
            "search_arguments": settings.search_arguments,
            "embeddings": embeddings and [embeddings.model, public_arguments(embeddings)],
        },
        sort_keys=True,
        default=str,
    )
