"""Documents from a table or a query of a data source."""

from collections.abc import Iterator
from typing import Protocol

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.hashing import content_hashes
from kbeval_pipeline.evaluation.ids import canonical_ids
from kbeval_pipeline.project import DocumentsSettings
from kbeval_pipeline.resources.knowledge_bases.local_documents import Scan, SourceDocument
from kbeval_pipeline.resources.knowledge_bases.protocol import SkippedDocument
from kbeval_pipeline.settings import TableName


class TableReader(Protocol):
    """The part of the data sources that a knowledge base reads from."""

    def read_table(self, table: TableName) -> pl.DataFrame:
        """Read a whole table."""
        ...

    def query(self, sql: str) -> pl.DataFrame:
        """Run one SELECT over the data sources."""
        ...


class TableDocuments:
    """The rows of a table or query; row numbers in messages count from 1, as read.

    Args:
        settings: `table` or `sql`, and the two columns.
        reader: reads them.
    """

    def __init__(self, settings: DocumentsSettings, reader: TableReader) -> None:
        self._settings = settings
        self._reader = reader

    def describe(self) -> str:
        """Name the table or query."""
        return f"table {self._settings.table}" if self._settings.table else f"query {self._settings.sql}"

    def scan(self) -> Scan:
        """Read and hash the rows."""
        frame, skipped = self._load()
        return Scan(frame.select("id", "content_hash"), skipped)

    def read(self) -> Iterator[SourceDocument]:
        """Read the rows that hold a document, in the order of their ids."""
        frame, _ = self._load()
        for row in frame.select("id", "content", "content_hash").iter_rows():
            yield SourceDocument(*row)

    def _load(self) -> tuple[pl.DataFrame, list[SkippedDocument]]:
        settings = self._settings
        if settings.table is not None:
            frame = self._reader.read_table(TableName.parse(settings.table))
        else:
            frame = self._reader.query(settings.sql or "")
        ids = frame[self._column(frame, settings.id_column, "id_column")]
        texts = frame[self._column(frame, settings.content_column, "content_column")]
        if texts.dtype.is_nested() or texts.dtype == pl.Binary:
            raise UserError(
                f'column "{texts.name}" of {self.describe()} holds {texts.dtype}, not text; '
                "cast it in a query given as `documents.sql`"
            )
        # Not strict, as one value that cannot be text must not hide the other rows: it counts as null.
        rows = pl.DataFrame(
            {
                "id": canonical_ids(ids).rename("id"),
                "content": texts.cast(pl.String, strict=False).rename("content"),
            }
        ).with_row_index("row", offset=1)
        cause = (
            pl.when(pl.col("id").is_null())
            .then(pl.lit("the id is null"))
            .when(~pl.col("id").str.contains(r"\S"))
            .then(pl.lit("the id is blank"))
            .when(pl.col("content").is_null())
            .then(pl.lit("the content is null"))
            .when(~pl.col("content").str.contains(r"\S"))
            .then(pl.lit("the content is empty or blank"))
            .alias("cause")
        )
        rows = rows.with_columns(cause)
        skipped = rows.filter(pl.col("cause").is_not_null()).select("row", "cause")
        kept = rows.filter(pl.col("cause").is_null()).drop("cause")
        # A database returns rows in any order, so which duplicate is kept must not depend on it.
        kept = kept.with_columns(content_hashes(kept["content"]).alias("content_hash")).sort(
            "id", "content_hash", "row"
        )
        repeated = pl.col("id").is_first_distinct().not_()
        doubles = kept.filter(repeated).select(
            "row",
            pl.format(
                'the id "{}" is taken by another row; kept is the one whose content hash sorts first', "id"
            ).alias("cause"),
        )
        left_out = pl.concat([skipped, doubles]).sort("row")
        return kept.filter(repeated.not_()), [
            SkippedDocument(f"row {row}", cause) for row, cause in left_out.iter_rows()
        ]

    def _column(self, frame: pl.DataFrame, wanted: str, setting: str) -> str:
        if wanted in frame.columns:
            return wanted
        found = [name for name in frame.columns if name.lower() == wanted.lower()]
        if len(found) == 1:
            return found[0]
        problem = f"has several: {', '.join(found)}" if found else "is missing"
        raise UserError(
            f'documents: column "{wanted}" ({setting}) {problem} in {self.describe()}; '
            f"columns found: {', '.join(frame.columns) or 'none'}"
        )
