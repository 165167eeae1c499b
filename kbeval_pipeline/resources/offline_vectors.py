"""Vectors of the offline judge: the embedded model, remembered by content hash."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbeval_pipeline.project import EmbeddingsSettings
from kbeval_pipeline.resources.knowledge_bases.embeddings import load_embeddings
from kbeval_pipeline.resources.knowledge_bases.vector_cache import VectorCache


class OfflineVectors:
    """Unit vectors of questions and passages by the offline embedding model.

    Args:
        folder: where vectors are remembered, shared with the knowledge bases.

    Raises:
        UserError: when the extra `vectors` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._model = load_embeddings(EmbeddingsSettings())
        self._cache = VectorCache(folder, self._model)

    def questions(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed questions."""
        return self._model.embed_question(texts)

    def passages(self, hashes: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed passages, those that are new only."""
        return self._cache.vectors(hashes, texts)
