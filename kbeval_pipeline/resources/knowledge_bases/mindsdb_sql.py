"""Texts and names as MindsDB's own SQL parser reads them, and the order of a document's chunks."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kbeval_pipeline.errors import UserError

_ESCAPED_QUOTES = re.compile(r"""(\\*)('+)|(\\+)(?="|\Z)""")
_NAME_PART = re.compile(r"`([^`]+)`|([^.`]+)")


def text_literal(text: str) -> str | None:
    r"""Write a text as a literal.

    MindsDB's parser is not MySQL's: it turns `\'`, `\"` and `''` into quotes but leaves `\\` as it is, and
    strips quotes from both ends of the text.

    Args:
        text: any text.

    Returns:
        The literal, None where the parser would not give the text back: it starts or ends with a single
        quote, and also with a double one.
    """
    if not text.startswith("'") and not text.endswith("'"):
        return f"'{_ESCAPED_QUOTES.sub(_escape, text)}'"
    if not text.startswith('"') and not text.endswith('"'):
        swapped = text.translate(_SWAP)
        return f"'{_ESCAPED_QUOTES.sub(_escape, swapped)}'".translate(_SWAP)
    return None


_SWAP = str.maketrans("'\"", "\"'")


def _escape(match: re.Match[str]) -> str:
    slashes, quotes, before_other = match.groups()
    if before_other is not None:
        # At the end the literal's own quote would be hidden by an odd number; quotes there are stripped.
        at_end = match.end() == len(match.string) and len(before_other) % 2 == 0
        return f"{before_other}\\'" if at_end else f"{before_other}\\"
    doubled = "'" * (2 * len(quotes))
    if not slashes:
        return doubled
    # One more backslash is taken away with the quote behind it. Where their number is odd the last one also
    # hides that quote from the lexer, so the next one is hidden too, and an even number is left.
    hidden = r"\'" if len(slashes) % 2 == 0 else "'"
    return f"{slashes}\\'{hidden}{doubled[2:]}"


def question_literal(question: str) -> str:
    """Write a question as a literal, with a blank around it where it could not be written otherwise.

    Args:
        question: any text.

    Returns:
        The literal.
    """
    return text_literal(question) or text_literal(f" {question} ") or "''"


def quoted_name(name: str) -> str:
    """Quote a name such as `project.kb`.

    Args:
        name: parts with dots between, each as it is or in back-ticks.

    Returns:
        The name with each part in back-ticks.

    Raises:
        UserError: when it is no name.
    """
    parts = []
    position = 0
    while match := _NAME_PART.match(name, position):
        parts.append(f"`{match[1] or match[2].strip()}`")
        position = match.end() + 1
        if name[match.end() : position] != ".":
            break
    if not parts or position <= len(name) or "``" in parts:
        raise UserError(f'knowledge_base "{name}" is no name; expected one such as `kb` or `project.kb`')
    return ".".join(parts)


class ServerChunk(NamedTuple):
    """A chunk as the server stores it."""

    chunk_id: str
    content: str
    metadata: Mapping[str, Any]


def metadata_of(value: Any) -> Mapping[str, Any]:
    """Read the metadata column, which servers send as an object or as JSON text.

    Args:
        value: the cell.

    Returns:
        The metadata, empty where it cannot be read.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def join_chunks(chunks: Iterable[ServerChunk]) -> str:
    """Put a document together again.

    Chunks are ordered by the positions in their metadata, else by the numbers in their ids. What two
    neighbours share by their positions is kept once; others are joined by a line break, as the server does
    not keep what was between them.

    Args:
        chunks: the chunks of one document.

    Returns:
        The text, without what the server cut away between chunks.
    """
    text = ""
    end: tuple[Any, int] | None = None
    for chunk in sorted(chunks, key=_place):
        column, start = chunk.metadata.get("_content_column"), _number(chunk, "_start_char")
        content = chunk.content
        shared = end[1] - start if end is not None and start is not None and end[0] == column else -1
        if text and 0 <= shared <= len(content) and text.endswith(content[:shared]):
            text += content[shared:]
        else:
            text += f"\n{content}" if text else content
        stop = _number(chunk, "_end_char")
        end = (column, stop) if start is not None and stop == start + len(content) else None
    return text


def _place(chunk: ServerChunk) -> tuple[str, float, list[tuple[int, int | str]]]:
    found = (_number(chunk, key) for key in ("_start_char", "_chunk_index", "chunk_index"))
    position = next((number for number in found if number is not None), -1)
    # Numbers sort as numbers, and before texts.
    parts: list[tuple[int, int | str]] = [
        (0, int(part)) if part.isdecimal() else (1, part)
        for part in re.split(r"(\d+)", chunk.chunk_id)
        if part
    ]
    return str(chunk.metadata.get("_content_column", "")), position, parts


def _number(chunk: ServerChunk, key: str) -> int | None:
    value = chunk.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
