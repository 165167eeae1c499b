"""Generating a test set: draw documents by seed, write a question for each, keep the usable ones."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.hashing import content_hashes
from kbeval_pipeline.evaluation.ids import canonical_ids
from kbeval_pipeline.settings import nearest

WriteQuestions = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class GenerationCounts:
    """What became of the source rows and the questions written from them.

    Attributes:
        source_rows: rows of the source.
        blank: rows left out for null or blank content.
        duplicates: rows left out because their content came before.
        unusable: drawn documents for which no question could be written; another was drawn.
        repeated: drawn documents whose question had been asked already; another was drawn.
        quoting: drawn documents whose question quotes nearly the whole text; another was drawn.
        requested: questions asked for.
        written: questions in the test set.
    """

    source_rows: int
    blank: int
    duplicates: int
    unusable: int
    repeated: int
    quoting: int
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
    """

    rows: pl.DataFrame
    counts: GenerationCounts


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


def generate_test_set(
    documents: pl.DataFrame, write_questions: WriteQuestions, *, count: int, seed: int
) -> GeneratedTestSet:
    """Draw documents and write a question for each, until there are enough.

    Args:
        documents: `doc_id, content`; one row for each document, null or blank content allowed.
        write_questions: takes the whole corpus and the drawn documents, returns
            `doc_id, question, answer` with null where no question could be written.
        count: number of questions wanted.
        seed: seed of the draw.

    Returns:
        The test table and its account.

    Raises:
        UserError: when the source holds no usable document or gives no question at all.
    """
    filled = documents.filter(pl.col("content").str.strip_chars().fill_null("") != "").drop_nulls("doc_id")
    distinct = filled.sort("doc_id").unique("content", keep="first", maintain_order=True)
    distinct = distinct.unique("doc_id", keep="first", maintain_order=True)
    waiting = draw_order(distinct, seed)
    kept = pl.DataFrame(schema=dict.fromkeys(("text", "question", "answer", "doc_id"), pl.String))
    dropped = {"unusable": 0, "repeated": 0, "quoting": 0}
    while kept.height < count and not waiting.is_empty():
        drawn, waiting = waiting.head(count - kept.height), waiting.slice(count - kept.height)
        written = drawn.join(
            write_questions(distinct, drawn), on="doc_id", how="left", maintain_order="left"
        ).rename({"content": "text"})
        kept, losses = _keep_usable(kept, written)
        for cause, number in losses.items():
            dropped[cause] += number
    if kept.is_empty():
        raise UserError(
            f"no question could be generated: {documents.height} rows, of which "
            f"{distinct.height} hold distinct text"
        )
    return GeneratedTestSet(
        kept,
        GenerationCounts(
            source_rows=documents.height,
            blank=documents.height - filled.height,
            duplicates=filled.height - distinct.height,
            requested=count,
            written=kept.height,
            **dropped,
        ),
    )


def _keep_usable(kept: pl.DataFrame, written: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    usable = written.filter(pl.col("question").str.strip_chars().fill_null("") != "").select(kept.columns)
    quotes = pl.col("text").str.contains(pl.col("question").str.strip_chars("? "), literal=True) & (
        pl.col("question").str.len_chars() >= 0.8 * pl.col("text").str.len_chars()
    )
    original = usable.filter(~quotes)
    asked = pl.concat([kept, original]).with_columns(
        normal=pl.col("question").str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]+", " ")
    )
    unique = asked.unique("normal", keep="first", maintain_order=True).drop("normal")
    return unique, {
        "unusable": written.height - usable.height,
        "quoting": usable.height - original.height,
        "repeated": asked.height - unique.height,
    }
