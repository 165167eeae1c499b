"""The index of one state of a local knowledge base: chunk texts, BM25 and vectors."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from kbeval_pipeline.project import LocalKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.chunk_store import Chunk, ChunkStore, write_chunks
from kbeval_pipeline.resources.knowledge_bases.chunking import make_chunker
from kbeval_pipeline.resources.knowledge_bases.embeddings import EmbeddingModel
from kbeval_pipeline.resources.knowledge_bases.fusion import fuse
from kbeval_pipeline.resources.knowledge_bases.lexical_index import LexicalIndex, build_lexical_index
from kbeval_pipeline.resources.knowledge_bases.local_documents import SourceDocument
from kbeval_pipeline.resources.knowledge_bases.protocol import Hit
from kbeval_pipeline.resources.knowledge_bases.vector_cache import VectorCache
from kbeval_pipeline.resources.knowledge_bases.vector_index import VectorIndex

_CHUNKS = "chunks.arrow"
_LEXICAL = "lexical"
_VECTORS = "vectors.npy"
_FUSED_DEPTH = 100


def build_local_index(
    folder: Path,
    documents: Iterable[SourceDocument],
    settings: LocalKnowledgeBase,
    model: EmbeddingModel | None,
    vectors_folder: Path,
) -> None:
    """Build everything that a search needs.

    Args:
        folder: an empty folder.
        documents: in the order of their ids.
        settings: chunking and search.
        model: embeds the chunks; None for lexical search.
        vectors_folder: where vectors are remembered across indexes.
    """
    write_chunks(folder / _CHUNKS, _chunks(documents, settings))
    chunks = ChunkStore(folder / _CHUNKS)
    if settings.search.mode != "vector":
        build_lexical_index(folder / _LEXICAL, chunks.column("content"), settings.search.language)
    if model is not None:
        cache = VectorCache(vectors_folder, model)
        hashes, texts = list(chunks.column("content_hash")), list(chunks.column("content"))
        np.save(folder / _VECTORS, cache.vectors(hashes, texts))


def _chunks(documents: Iterable[SourceDocument], settings: LocalKnowledgeBase) -> Iterator[Chunk]:
    chunker = make_chunker(settings.chunking)
    for document in documents:
        for place, text in enumerate(chunker(document.content)):
            whole = text == document.content
            content_hash = document.content_hash if whole else hashlib.sha256(text.encode()).hexdigest()
            yield Chunk(f"{document.id}#{place}", document.id, text, content_hash)


class LocalIndex:
    """An opened index; safe to use from several threads.

    Args:
        folder: where it was built; named by the fingerprint of what is in it.
        settings: as it was built.
        model: embeds the questions; None for lexical search.

    Raises:
        ValueError, OSError: when the files are damaged.
    """

    def __init__(self, folder: Path, settings: LocalKnowledgeBase, model: EmbeddingModel | None) -> None:
        search = settings.search
        self.fingerprint = folder.name
        self._weights = (search.lexical_weight, search.vector_weight)
        self._chunks = ChunkStore(folder / _CHUNKS)
        self._lexical = None
        self._vectors = None
        if search.mode != "vector":
            self._lexical = LexicalIndex(folder / _LEXICAL, search.language)
        if search.mode != "lexical":
            self._vectors = VectorIndex(folder / _VECTORS)
        self._model = model

    def search(self, question: str, k: int) -> list[Hit]:
        """Rank chunks.

        Args:
            question: any text; a blank one finds nothing.
            k: the most chunks to return.

        Returns:
            The hits, best first.
        """
        if not question.strip():
            return []
        return [
            Hit(rank, chunk.chunk_id, chunk.doc_id, chunk.content, score)
            for rank, (row, score) in enumerate(self._ranked(question, k), start=1)
            for chunk in [self._chunks.get(row)]
        ]

    def _ranked(self, question: str, k: int) -> list[tuple[int, float]]:
        if self._vectors is None:
            return self._by_words(question, k)
        if self._lexical is None:
            return self._by_vectors(question, k)
        depth = max(k, _FUSED_DEPTH)
        lexical_weight, vector_weight = self._weights
        rankings = []
        if lexical_weight:
            rankings.append((lexical_weight, [row for row, _ in self._by_words(question, depth)]))
        if vector_weight:
            rankings.append((vector_weight, [row for row, _ in self._by_vectors(question, depth)]))
        return fuse(rankings)[:k]

    def _by_words(self, question: str, k: int) -> list[tuple[int, float]]:
        return self._lexical.search(question, k) if self._lexical else []

    def _by_vectors(self, question: str, k: int) -> list[tuple[int, float]]:
        if self._vectors is None or self._model is None:
            return []
        return self._vectors.search(self._model.embed_question([question])[0], k)
