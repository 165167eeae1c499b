"""Cuts documents into chunks."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from kbeval_pipeline.project import ChunkingSettings

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

# Chinese and Japanese sentences end without a blank, so their full stops, marks and commas are places to cut.
_SENTENCE = r"(?<=[\u3002\uff01\uff1f])|(?<=[.!?])(?=\s)"
_CLAUSE = r"(?<=[\uff0c\u3001\uff1b\uff1a])"
_TEXT = [r"\n\n", r"\n", _SENTENCE, _CLAUSE, " ", ""]
_MARKDOWN = [r"\n#{1,6} ", r"```\n", r"\n\*\*\*+\n", r"\n---+\n", r"\n___+\n", *_TEXT]


def make_chunker(settings: ChunkingSettings) -> Callable[[str], list[str]]:
    """Build the function that cuts a document.

    `MarkdownTextSplitter` is not used, as it searches for its patterns literally and so never cuts at a
    heading; the same patterns are given to the recursive splitter, as patterns.

    Args:
        settings: size, overlap and where to prefer to cut; a size of 0 keeps a document whole.

    Returns:
        A function from text to at least one chunk.
    """
    if settings.size == 0:
        return lambda text: [text]
    size = settings.size

    @cache
    def splitter() -> "RecursiveCharacterTextSplitter":
        # Imported when the first long document comes, as it takes most of a second.
        from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415

        return RecursiveCharacterTextSplitter(
            separators=_MARKDOWN if settings.splitter == "markdown" else _TEXT,
            is_separator_regex=True,
            chunk_size=size,
            chunk_overlap=settings.overlap,
        )

    def chunk(text: str) -> list[str]:
        return [text] if len(text) <= size else splitter().split_text(text) or [text]

    return chunk
