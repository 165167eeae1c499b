"""HTML to plain text."""

import re
from typing import Any

_LEFT_OUT = {"script", "style", "template", "noscript"}
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|caption|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|h[1-6r]|header|li|main|nav|ol|option|p|pre|section|summary|table|title|tr|ul"
)
_CELLS = {"td", "th"}


def html_to_text(html: str) -> str:
    """Take the visible text out of a page: one line for a block, none of its scripts and styles.

    Args:
        html: the page; malformed markup is read as far as it goes.

    Returns:
        The text, without leading and trailing blanks.
    """
    from bs4 import BeautifulSoup, ParserRejectedMarkup  # noqa: PLC0415

    try:
        soup = BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup:
        # The parser gives up on marked sections that it does not know, whatever else the page holds.
        soup = BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")
    text = "".join(_visible(soup))
    text = re.sub(r"\n (?=\S)", "\n", re.sub(r"[ \t]+\n", "\n", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _visible(soup: Any) -> list[str]:
    """Walk the tree with a stack of its own, as pages may nest deeper than Python's."""
    from bs4.element import CData, NavigableString, Tag  # noqa: PLC0415

    parts: list[str] = []
    stack: list[tuple[Any, bool]] = [(soup, False)]
    while stack:
        node, preformatted = stack.pop()
        if isinstance(node, Tag):
            if node.name in _LEFT_OUT:
                continue
            if _BLOCK.fullmatch(node.name):
                parts.append("\n")
                stack.append(("\n", False))
            elif node.name in _CELLS:
                stack.append((" ", False))
            inside = preformatted or node.name == "pre"
            stack.extend((child, inside) for child in reversed(node.contents))
        elif type(node) in (NavigableString, CData):
            parts.append(str(node) if preformatted else re.sub(r"\s+", " ", node))
        elif type(node) is str:
            parts.append(node)
    return parts
