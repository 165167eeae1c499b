"""The embedded knowledge base: documents are chunked, indexed and searched on this machine."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LocalKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.document_source import (
    knowledge_base_folder,
    make_document_source,
    no_documents,
)
from kbeval_pipeline.resources.knowledge_bases.embeddings import EmbeddingModel, load_embeddings
from kbeval_pipeline.resources.knowledge_bases.fingerprint import fingerprint
from kbeval_pipeline.resources.knowledge_bases.index_store import IndexStore
from kbeval_pipeline.resources.knowledge_bases.local_documents import Scan, SourceDocument
from kbeval_pipeline.resources.knowledge_bases.local_index import LocalIndex, build_local_index
from kbeval_pipeline.resources.knowledge_bases.local_tables import TableReader
from kbeval_pipeline.resources.knowledge_bases.protocol import Document, Hit, SkippedDocument


class LocalKnowledgeBaseAdapter:
    """A knowledge base from files, a table or a query; an object lives for one run.

    Its index is built when it is first searched, stored by fingerprint and reused while nothing changes.
    The object keeps to the state it opened.

    Args:
        name: the knowledge base's name.
        settings: its settings, with absolute paths.
        data_sources: reads tables and queries.
        index_folder: holds the indexes of all local knowledge bases.
    """

    def __init__(
        self, name: str, settings: LocalKnowledgeBase, data_sources: TableReader, index_folder: Path
    ) -> None:
        self.name = name
        self.max_concurrency = settings.max_concurrency or os.cpu_count() or 1
        self._settings = settings
        self._folder = knowledge_base_folder(name, index_folder)
        self._vectors_folder = index_folder / "vectors"
        self._source = make_document_source(name, settings.documents, data_sources, index_folder)
        self._skipped: list[SkippedDocument] | None = None
        self._index: LocalIndex | None = None
        self._lock = threading.Lock()

    def documents(self) -> Iterator[Document]:
        """Stream the documents in the order of their ids.

        Raises:
            UserError: when there is none.
        """
        none = True
        for document in self._source.read():
            none = False
            yield Document(document.id, document.content)
        if none:
            self._scan()
            raise self._no_documents()

    def fingerprint(self) -> str:
        """Fingerprint the documents as they are now, and the settings.

        The same content gives the same fingerprint, wherever it is and whenever it was written.

        Raises:
            UserError: when there is no document.
        """
        return fingerprint(self._scan().hashes.iter_rows(), self._settings)

    def prepare(self) -> str:
        """Open the index, building it where the documents are new, and return its fingerprint."""
        return self._opened().fingerprint

    def skipped_documents(self) -> list[SkippedDocument]:
        """List the documents that were left out when they were last scanned."""
        if self._skipped is None:
            self._skipped = self._source.scan().skipped
        return list(self._skipped)

    def search(self, question: str, k: int) -> list[Hit]:
        """Search the documents as they were at the first search.

        Args:
            question: any text; it has no query syntax.
            k: the most chunks to return, at least 1.

        Returns:
            The hits, best first, equal scores in the order of document and chunk.
        """
        if k < 1:
            raise ValueError(f"k is {k}, expected at least 1")
        return self._opened().search(question, k)

    def _scan(self) -> Scan:
        scan = self._source.scan()
        self._skipped = scan.skipped
        if scan.hashes.is_empty():
            raise self._no_documents()
        return scan

    def _no_documents(self) -> UserError:
        return no_documents(self.name, self._source, self._skipped or [])

    def _opened(self) -> LocalIndex:
        if self._index is None:
            with self._lock:
                if self._index is None:
                    self._index = self._open_or_build()
        return self._index

    def _open_or_build(self) -> LocalIndex:
        search = self._settings.search
        model = None if search.mode == "lexical" else load_embeddings(search.embeddings)
        store = IndexStore(self._folder)
        current = self.fingerprint()
        folder = store.find(current)
        if folder is not None:
            try:
                return LocalIndex(folder, self._settings, model)
            except (OSError, ValueError):
                store.discard(current)
        _, folder = store.build(lambda temporary: self._build(temporary, model))
        return LocalIndex(folder, self._settings, model)

    def _build(self, folder: Path, model: EmbeddingModel | None) -> str:
        # The index is named by what was read into it, which may have changed since the scan.
        pairs: list[tuple[str, str]] = []

        def recorded() -> Iterator[SourceDocument]:
            for document in self._source.read():
                pairs.append((document.id, document.content_hash))
                yield document
            if not pairs:
                raise self._no_documents()

        build_local_index(folder, recorded(), self._settings, model, self._vectors_folder)
        return fingerprint(pairs, self._settings)
