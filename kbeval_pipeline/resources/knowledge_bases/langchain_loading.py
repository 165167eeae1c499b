"""Loads stores and embedding models of LangChain by their import paths."""

import importlib
import inspect
from collections.abc import Collection
from typing import Any

from langchain_core.embeddings import Embeddings

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import EmbeddingsSettings
from kbeval_pipeline.resources.data_sources.base import shortlist
from kbeval_pipeline.resources.knowledge_bases.embeddings import load_embeddings
from kbeval_pipeline.settings import nearest

_EMBEDDING_PARAMETERS = ("embedding", "embeddings", "embedding_function")


def load_langchain_embeddings(name: str, settings: EmbeddingsSettings) -> Embeddings:
    """Make an embedding model for a store.

    Args:
        name: the knowledge base's name, for messages.
        settings: the model and its arguments.

    Returns:
        The model as its own package makes it, as the lengths of vectors count in stores that do not compare
        by cosine.

    Raises:
        UserError: when it cannot be made.
    """
    if settings.model == "minilm":
        return _MiniLMEmbeddings(settings)
    where = f'knowledge base "{name}": embeddings.model "{settings.model}"'
    model = make_object(load_path(settings.model, where), settings.arguments, where)
    if not isinstance(model, Embeddings):
        raise UserError(f"{where} is no LangChain Embeddings class")
    return model


def load_path(path: str, where: str) -> Any:
    """Import a class or function.

    Args:
        path: `module:name`, or `module:Class.method`.
        where: names the setting, for messages.

    Returns:
        What the path names.

    Raises:
        UserError: when it cannot be imported; the message says which part of the path is wrong.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UserError(f"{where}: expected `module:Class` or `module:function`")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        package = (error.name or module_name).partition(".")[0].replace("_", "-")
        raise UserError(
            f'{where}: module "{error.name or module_name}" is not installed; pip install {package}'
        ) from None
    except ImportError as error:
        raise UserError(f"{where} cannot be imported: {error}") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = shortlist(part, [name for name in dir(found) if not name.startswith("_")])
            holder = getattr(found, "__name__", module_name)
            raise UserError(f'{where}: "{holder}" has no "{part}", {nearest(part, known)}')
        found = getattr(found, part)
    if not callable(found):
        raise UserError(f"{where} is neither a class nor a function")
    return found


def make_object(factory: Any, arguments: dict[str, Any], where: str) -> Any:
    """Call a class or function; no value of its arguments gets into a message.

    Args:
        factory: the class or function.
        arguments: its arguments.
        where: names the setting, for messages.

    Returns:
        What it returns.

    Raises:
        UserError: when it fails.
    """
    try:
        return factory(**arguments)
    except Exception as error:
        # The error's own text may repeat the arguments, and with them a key.
        kind = type(error).__name__
        if isinstance(error, ModuleNotFoundError):
            kind += f" ({error.name} is not installed)"
    names = ", ".join(sorted(arguments)) or "none"
    raise UserError(
        f"{where} cannot be made from its arguments ({names}): {kind}; compare them with its documentation, "
        "and check that its server answers"
    )


def embedding_parameter(factory: Any, given: Collection[str], where: str) -> str:
    """Find the parameter that takes an embedding model.

    Args:
        factory: a store's class, or a function that makes one.
        given: names of the arguments that are given anyway.
        where: names the setting, for messages.

    Returns:
        The parameter's name.

    Raises:
        UserError: when there is none, or it is given already.
    """
    try:
        parameters = set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        parameters = set()
    name = next((name for name in _EMBEDDING_PARAMETERS if name in parameters), None)
    if name is None:
        raise UserError(
            f"{where} has no parameter named {' or '.join(_EMBEDDING_PARAMETERS)}, so it takes no "
            "embedding model; remove `embeddings`"
        )
    if name in given:
        raise UserError(
            f'{where}: the embedding model is given twice, by `embeddings` and arguments "{name}"'
        )
    return name


class _MiniLMEmbeddings(Embeddings):
    """Our offline model as a LangChain one."""

    def __init__(self, settings: EmbeddingsSettings) -> None:
        self._model = load_embeddings(settings)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._model.embed(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        row: list[float] = self._model.embed_question([text])[0].tolist()
        return row
