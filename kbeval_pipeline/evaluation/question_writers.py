"""What a question writer is, and what it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl


@dataclass(frozen=True)
class WrittenQuestion:
    """A question for a document.

    Attributes:
        doc_id: the document.
        question: the question.
        answer: its answer.
    """

    doc_id: str
    question: str
    answer: str


@dataclass(frozen=True)
class SkippedRow:
    """A document for which there is no question.

    Attributes:
        doc_id: the document.
        cause: why.
        failed: whether a call or its replies failed, which counts against `max_failure_rate`; a document
            that is unfit for its writer does not.
    """

    doc_id: str
    cause: str
    failed: bool = True


class QuestionWriter(Protocol):
    """Writes questions for documents."""

    @property
    def name(self) -> str:
        """Names the writer in the test set."""

    async def write(
        self, corpus: pl.DataFrame, drawn: pl.DataFrame, /
    ) -> Sequence[WrittenQuestion | SkippedRow]:
        """Write one question for each drawn document.

        Args:
            corpus: `doc_id, content` of all documents.
            drawn: those to write for.

        Returns:
            One outcome for each drawn document, in their order.
        """
