"""Knowledge bases: one adapter per store behind one protocol."""

from pathlib import Path

from kbeval_pipeline.project import KnowledgeBaseSettings, LangChainKnowledgeBase, MindsDBKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases.local import LocalKnowledgeBaseAdapter
from kbeval_pipeline.resources.knowledge_bases.local_tables import TableReader
from kbeval_pipeline.resources.knowledge_bases.protocol import (
    AsyncKnowledgeBase,
    Document,
    Hit,
    KnowledgeBase,
    SkippedDocument,
)

__all__ = [
    "AsyncKnowledgeBase",
    "Document",
    "Hit",
    "KnowledgeBase",
    "LocalKnowledgeBaseAdapter",
    "SkippedDocument",
    "TableReader",
    "build_knowledge_base",
]


def build_knowledge_base(
    name: str, settings: KnowledgeBaseSettings, data_sources: TableReader, index_folder: Path
) -> KnowledgeBase | AsyncKnowledgeBase:
    """Make the adapter that fits the settings; nothing is read or connected to yet.

    Args:
        name: the knowledge base's name.
        settings: its settings, with absolute paths.
        data_sources: reads tables and queries.
        index_folder: holds the indexes of all local knowledge bases.

    Returns:
        A knowledge base for one run.
    """
    # Imported when needed, as an HTTP client and LangChain's stores take most of a second.
    if isinstance(settings, LangChainKnowledgeBase):
        from kbeval_pipeline.resources.knowledge_bases.langchain import (  # noqa: PLC0415
            LangChainKnowledgeBaseAdapter,
        )

        return LangChainKnowledgeBaseAdapter(name, settings, data_sources, index_folder)
    if isinstance(settings, MindsDBKnowledgeBase):
        from kbeval_pipeline.resources.knowledge_bases.mindsdb import (  # noqa: PLC0415
            MindsDBKnowledgeBaseAdapter,
        )

        return MindsDBKnowledgeBaseAdapter(name, settings)
    return LocalKnowledgeBaseAdapter(name, settings, data_sources, index_folder)
