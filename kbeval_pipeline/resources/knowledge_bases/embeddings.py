"""Embedding models: the offline one, or any LangChain `Embeddings` class."""

import hashlib
import importlib
import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import EmbeddingsSettings

Vectors = npt.NDArray[np.float32]
_SECRET = re.compile(
    r"apikey|(^|_)(key|token|secret|password|passwd|credentials?|headers?|auth)(_|$)", re.IGNORECASE
)


class EmbeddingModel(Protocol):
    """A model that turns texts into vectors of length 1; safe to use from several threads."""

    identity: str

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed chunks, a row for each."""
        ...

    def embed_question(self, texts: Sequence[str]) -> Vectors:
        """Embed questions, a row for each."""
        ...


def public_arguments(settings: EmbeddingsSettings) -> dict[str, str]:
    """Take the arguments that tell models apart, which credentials do not.

    Args:
        settings: the model and its arguments.

    Returns:
        The arguments as text, without those named like a secret.
    """
    return {
        name: json.dumps(value, sort_keys=True, default=str)
        for name, value in sorted(settings.arguments.items())
        if not _SECRET.search(name)
    }


def load_embeddings(settings: EmbeddingsSettings) -> EmbeddingModel:
    """Load the model.

    Args:
        settings: `minilm` or an import path with arguments.

    Returns:
        The model.

    Raises:
        UserError: when it cannot be loaded.
    """
    if settings.model == "minilm":
        if settings.arguments:
            raise UserError('search.embeddings: "minilm" takes no arguments; remove them')
        from kbeval_pipeline.resources.knowledge_bases.minilm import MiniLM  # noqa: PLC0415

        return MiniLM()
    return LangChainEmbeddings(settings)


class LangChainEmbeddings:
    """A LangChain `Embeddings` class by its import path.

    Args:
        settings: import path and arguments.

    Raises:
        UserError: when the class cannot be imported or made.
    """

    def __init__(self, settings: EmbeddingsSettings) -> None:
        from langchain_core.embeddings import Embeddings  # noqa: PLC0415

        self._name = settings.model
        where = f'search.embeddings.model "{settings.model}"'
        module_name, _, class_name = settings.model.partition(":")
        if not module_name or not class_name:
            raise UserError(
                f"{where}: expected `minilm` or `module:Class`, such as `langchain_openai:OpenAIEmbeddings`"
            )
        try:
            made_by = getattr(importlib.import_module(module_name), class_name)
        except ImportError as error:
            raise UserError(f"{where} cannot be imported: {error}; install its package") from error
        except AttributeError as error:
            raise UserError(f'{where}: module "{module_name}" has no "{class_name}"') from error
        try:
            model = made_by(**settings.arguments)
        except Exception as error:
            # The error's own text may repeat the arguments, and with them a key.
            names = ", ".join(sorted(settings.arguments)) or "none"
            raise UserError(
                f"{where} cannot be made from its arguments ({names}): {type(error).__name__}; compare them "
                "with the class's documentation"
            ) from None
        if not isinstance(model, Embeddings):
            raise UserError(f"{where} is no LangChain Embeddings class")
        self._model: Any = model
        stated = json.dumps([settings.model, public_arguments(settings)])
        self.identity = f"{class_name}-{hashlib.sha256(stated.encode()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed chunks, a row for each."""
        return self._unit(self._model.embed_documents(list(texts)), len(texts))

    def embed_question(self, texts: Sequence[str]) -> Vectors:
        """Embed questions, a row for each."""
        return self._unit([self._model.embed_query(text) for text in texts], len(texts))

    def _unit(self, rows: Any, expected: int) -> Vectors:
        try:
            vectors = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError):
            vectors = np.empty(0, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != expected or not np.isfinite(vectors).all():
            raise UserError(
                f'search.embeddings.model "{self._name}" did not return one finite vector of equal length '
                f"for each of {expected} texts; try another model"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)
