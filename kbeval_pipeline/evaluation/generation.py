"""Generating a test set: draw documents by seed, have a question written for each, keep the usable ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.hashing import content_hashes
from kbeval_pipeline.evaluation.ids import canonical_ids
from kbeval_pipeline.evaluation.question_filters import QuestionFilters, filter_questions
from kbeval_pipeline.evaluation.question_writers import QuestionWriter, SkippedRow, WrittenQuestion
from kbeval_pipeline.settings import nearest

# With fewer rows a share says little.
LEAST_ASKED = 10
_FIRST_BATCH = 32
_SHOWN_CAUSES = 3
_ALL_FILTERS = QuestionFilters()


@dataclass(frozen=True)
class GenerationCounts:
    """What became of the source rows and the questions written from them.

    Attributes:
        source_rows: rows of the source.
        blank: rows left out for null or blank content.
        duplicates: rows left out because their content came before.
        asked: documents drawn, one after the other, until there were enough questions.
        unusable: of those, documents for which no question could be written.
        quoting: of those, documents whose question quotes nearly the whole text.
        other_language: of those, documents whose question is in another language.
        repeated: of those, documents whose question had nearly been asked already.
        requested: questions asked for.
        written: questions in the test set.
    """

    source_rows: int
    blank: int
    duplicates: int
    asked: int
    unusable: int
    quoting: int
    other_language: int
    repeated: int
    requested: int
    written: int

    @property
    def shortfall(self) -> int:
        """Questions that the source could not give."""
        return self.requested - self.written


@dataclass(frozen=True)
class GeneratedTestSet:
    """A generated test table with its account.

    Attributes:
        rows: `text, question, answer, doc_id`, in the order of the draw.
        counts: what became of the source rows.
        skipped: `doc_id, cause` of the documents for which no question could be written, in that order too.
    """

    rows: pl.DataFrame
    counts: GenerationCounts
    skipped: pl.DataFrame


def source_documents(frame: pl.DataFrame, *, source: str, id_required: bool = True) -> pl.DataFrame:
    """Check the columns of a generation source.

    Args:
        frame: rows with `content` and `id`, matched without regard to case.
        source: what was read, for messages.
        id_required: whether `id` must be there; without one, rows are numbered from 1.

    Returns:
        `doc_id` (canonical text), `content`.

    Raises:
        UserError: naming the missing column and those found.
    """
    by_lower = {name.strip().lower(): name for name in frame.columns}
    for needed in ("content", *(["id"] if id_required else [])):
        if needed not in by_lower:
            raise UserError(f'{source} returns no column "{needed}", {nearest(needed, frame.columns)}')
    ids = (
        canonical_ids(frame[by_lower["id"]])
        if "id" in by_lower
        else pl.Series([str(number) for number in range(1, frame.height + 1)], dtype=pl.String)
    )
    return pl.DataFrame({"doc_id": ids, "content": frame[by_lower["content"]].cast(pl.String)})


def filled_documents(documents: pl.DataFrame) -> pl.DataFrame:
    """Leave out documents without an id or with null or blank content.

    Args:
        documents: `doc_id, content`.
    """
    return documents.filter(pl.col("content").str.strip_chars().fill_null("") != "").drop_nulls("doc_id")


def distinct_documents(filled: pl.DataFrame) -> pl.DataFrame:
    """Keep each content and each id once, the first in the order of ids.

    Args:
        filled: what `filled_documents` returned.
    """
    by_content = filled.sort("doc_id").unique("content", keep="first", maintain_order=True)
    return by_content.unique("doc_id", keep="first", maintain_order=True)


def draw_order(documents: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Put documents into the order in which a seed draws them.

    The place of a document depends only on its id and the seed, so that a document that is added or
    removed does not disturb the draw of the others.

    Args:
        documents: `doc_id, content`.
        seed: seed of the draw.

    Returns:
        The documents, drawn first to last.
    """
    keys = content_hashes(documents.select(pl.format("{}:{}", pl.lit(seed), "doc_id"))["literal"])
    return documents.with_columns(keys.alias("draw")).sort("draw", "doc_id").drop("draw")


async def generate_test_set(
    documents: pl.DataFrame,
    writer: QuestionWriter,
    *,
    count: int,
    seed: int,
    filters: QuestionFilters = _ALL_FILTERS,
    max_failure_rate: float = 0.2,
) -> GeneratedTestSet:
    """Draw documents and have a question written for each, until there are enough.

    The same documents, seed and outcomes of the writer give the same rows. Documents are drawn in batches, so
    that a writer that keeps failing is stopped before the whole draw is paid for; the batches change neither
    the rows nor whether the failures are too many, as both go by the order of the draw.

    Args:
        documents: `doc_id, content`; one row for each document, null or blank content allowed.
        writer: writes the questions.
        count: number of questions wanted.
        seed: seed of the draw.
        filters: which questions are left out.
        max_failure_rate: the share of failed documents, among those asked so far in the order of the draw,
            that ends the generation when it is passed; from `LEAST_ASKED` documents on.

    Returns:
        The test table and its account.

    Raises:
        UserError: when too many documents failed, or the source holds no usable document or gives no
            question at all.
    """
    filled = filled_documents(documents)
    distinct = distinct_documents(filled)
    waiting = draw_order(distinct.select("doc_id", "content"), seed)
    account = _Account(filters, max_failure_rate)
    while len(account.kept) < count and not waiting.is_empty():
        # Never more than are missing: no question is paid for that nobody needs.
        size = min(count - len(account.kept), max(_FIRST_BATCH, 2 * account.asked))
        drawn, waiting = waiting.head(size), waiting.slice(size)
        account.add(drawn["content"].to_list(), await writer.write(distinct, drawn))
    if not account.kept:
        raise UserError(
            f"no question could be generated: {documents.height} rows, of which "
            f"{distinct.height} hold distinct text{account.causes()}"
        )
    text_columns = dict.fromkeys(("text", "question", "answer", "doc_id"), pl.String)
    return GeneratedTestSet(
        rows=pl.DataFrame(account.kept, schema=text_columns, orient="row"),
        counts=GenerationCounts(
            source_rows=documents.height,
            blank=documents.height - filled.height,
            duplicates=filled.height - distinct.height,
            asked=account.asked,
            unusable=len(account.skipped),
            quoting=account.dropped["quoting"],
            other_language=account.dropped["other_language"],
            repeated=account.dropped["repeated"],
            requested=count,
            written=len(account.kept),
        ),
        skipped=pl.DataFrame(
            [(row.doc_id, row.cause) for row in account.skipped],
            schema={"doc_id": pl.String, "cause": pl.String},
            orient="row",
        ),
    )


class _Account:
    """What was kept and left out so far, in the order of the draw."""

    def __init__(self, filters: QuestionFilters, max_failure_rate: float) -> None:
        self.kept: list[tuple[str, str, str, str]] = []
        self.skipped: list[SkippedRow] = []
        self.dropped: Counter[str] = Counter()
        self.asked = 0
        self._failed = 0
        self._filters = filters
        self._max_failure_rate = max_failure_rate

    def add(self, texts: Sequence[str], outcomes: Sequence[WrittenQuestion | SkippedRow]) -> None:
        written: list[tuple[str, WrittenQuestion]] = []
        for text, outcome in zip(texts, outcomes, strict=True):
            self.asked += 1
            if isinstance(outcome, WrittenQuestion):
                written.append((text, outcome))
            else:
                self.skipped.append(outcome)
                self._failed += outcome.failed
            self._check_failures()
        verdicts = filter_questions(
            [question for _, question, _, _ in self.kept],
            [(made.question, text) for text, made in written],
            self._filters,
        )
        for (text, made), verdict in zip(written, verdicts, strict=True):
            if verdict is None:
                self.kept.append((text, made.question, made.answer, made.doc_id))
            else:
                self.dropped[verdict] += 1

    def causes(self) -> str:
        common = Counter(row.cause for row in self.skipped).most_common(_SHOWN_CAUSES)
        listed = "; ".join(f"{cause} ({times} times)" for cause, times in common)
        return f"; most frequent causes: {listed}" if listed else ""

    def _check_failures(self) -> None:
        if self.asked >= LEAST_ASKED and self._failed / self.asked > self._max_failure_rate:
            raise UserError(
                f"the question generation was stopped: {self._failed} of the first {self.asked} documents "
                f"failed, more than max_failure_rate {self._max_failure_rate:g} allows{self.causes()}"
            )
