"""The fingerprint of a local knowledge base: its documents and the settings that shape its results."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from kbeval_pipeline.project import LocalKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.embeddings import public_arguments

# Raise it when stored indexes of an older release give other results or cannot be read.
_FORMAT_VERSION = 1


def fingerprint(pairs: Iterable[tuple[str, str]], settings: LocalKnowledgeBase) -> str:
    """Hash documents and settings; where the documents come from and when they changed has no part in it.

    Args:
        pairs: id and content hash of every document, sorted by id.
        settings: chunking and search count, as far as the mode of search uses them.

    Returns:
        SHA-256 as hexadecimal text.
    """
    search = settings.search
    stated: dict[str, Any] = {
        "version": _FORMAT_VERSION,
        "chunking": settings.chunking.model_dump() if settings.chunking.size else {"size": 0},
        "mode": search.mode,
    }
    if search.mode != "vector":
        stated["language"] = search.language
    if search.mode != "lexical":
        stated["embeddings"] = [search.embeddings.model, public_arguments(search.embeddings)]
    if search.mode == "hybrid":
        stated["weights"] = [search.lexical_weight, search.vector_weight]
    digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode())
    for doc_id, content_hash in pairs:
        # The length tells where an id ends, whatever characters it holds.
        digest.update(f"\n{len(doc_id)}:{doc_id}:{content_hash}".encode())
    return digest.hexdigest()
