"""How texts and questions become terms: words by tantivy, Chinese, Japanese and Korean by character pairs."""

import itertools
import re
import threading
import unicodedata
from typing import Any

from kbeval_pipeline.project import Language

_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
# Words as tantivy's simple tokenizer finds them, and in addition combining marks, which stand within words of
# Tamil and other Indian scripts. It is slower, so only those languages take it that need it.
_WORD = r"[\w--_]+"
_WITH_MARKS = ("none", "tamil")
_LONGEST_TERM_BYTES = 120
_WITHOUT_STOP_WORDS = ("arabic", "greek", "romanian", "tamil", "turkish")


def _pairs(match: re.Match[str]) -> str:
    run = match.group()
    return f" {run} " if len(run) == 1 else f" {' '.join(map(''.join, itertools.pairwise(run)))} "


def prepare(text: str) -> str:
    """Normalise a text and cut its runs of Chinese, Japanese or Korean characters into pairs.

    Args:
        text: any text.

    Returns:
        The text to hand to the word analyzer.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
        text = _CJK_RUN.sub(_pairs, unicodedata.normalize("NFKC", text))
    return text


class Analyzer:
    """The one way from text to terms, for chunks and questions alike; safe to use from several threads.

    Args:
        language: whose stop words and stemmer to use; `none` only lower-cases. Tantivy has no stop words
            for Arabic, Greek, Romanian, Tamil and Turkish: these are only stemmed.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._analyzer = self.build()
        self._lock = threading.Lock()

    def build(self) -> Any:
        """Build the tantivy analyzer, to be registered with an index."""
        from tantivy import Filter, TextAnalyzerBuilder, Tokenizer  # noqa: PLC0415

        words = Tokenizer.regex(_WORD) if self._language in _WITH_MARKS else Tokenizer.simple()
        builder = TextAnalyzerBuilder(words).filter(Filter.remove_long(_LONGEST_TERM_BYTES))
        builder = builder.filter(Filter.lowercase())
        if self._language != "none":
            if self._language not in _WITHOUT_STOP_WORDS:
                builder = builder.filter(Filter.stopword(self._language))
            builder = builder.filter(Filter.stemmer(self._language))
        return builder.build()

    def terms(self, question: str) -> list[str]:
        """Take the distinct terms out of a question, in order.

        Args:
            question: any text; it has no query syntax.

        Returns:
            The terms, none for a question of blanks and stop words.
        """
        with self._lock:
            return list(dict.fromkeys(self._analyzer.analyze(prepare(question))))
