"""What a warehouse table is declared by: one declaration serves storage, checks and the Dagster UI."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

TIMESTAMP = pl.Datetime("us", "UTC")

_DUCKDB_TYPES: dict[pl.DataType, str] = {
    pl.String(): "VARCHAR",
    pl.Int64(): "BIGINT",
    pl.Float64(): "DOUBLE",
    pl.Boolean(): "BOOLEAN",
    TIMESTAMP: "TIMESTAMPTZ",
}


@dataclass(frozen=True)
class Column:
    """A column: its type, its contract and where its values come from.

    Attributes:
        name: column name.
        dtype: Polars type; one of text, 64-bit integer, 64-bit float, boolean and UTC timestamp.
        description: one sentence, with the unit where there is one.
        nullable: whether null is allowed.
        minimum: smallest allowed value.
        maximum: largest allowed value.
        values: the allowed values, where they are few.
        sources: upstream columns as `table.column`, for column lineage.
    """

    name: str
    dtype: pl.DataType
    description: str
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    values: tuple[str, ...] | None = None
    sources: tuple[str, ...] = ()

    @property
    def duckdb_type(self) -> str:
        """The DuckDB type of the column."""
        return _DUCKDB_TYPES[self.dtype]


@dataclass(frozen=True)
class Table:
    """A table: its columns and the columns that identify a row within one run of one evaluation.

    Attributes:
        name: table name, equal to the name of the asset that writes it.
        description: what one row is.
        columns: the asset's own columns.
        key: columns whose values together are unique within a run.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = field(default=())

    @property
    def schema(self) -> pl.Schema:
        """The Polars schema of a frame of this table."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns as stored: the table's own after the stamp of the run."""
        return (*RUN_STAMP, *self.columns)

    def frame(self, rows: Sequence[dict[str, object]] = ()) -> pl.DataFrame:
        """Make a typed frame from row mappings; none of them makes an empty typed frame."""
        return pl.DataFrame(list(rows), schema=self.schema, orient="row")

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Bring a frame to the declared columns, order and types.

        Args:
            frame: any frame that has at least the nullable-free columns.

        Returns:
            The frame with exactly the declared columns; absent nullable ones are filled with null.

        Raises:
            ValueError: naming undeclared or absent columns.
        """
        undeclared = [name for name in frame.columns if name not in self.schema]
        absent = [c.name for c in self.columns if c.name not in frame.columns and not c.nullable]
        if undeclared or absent:
            raise ValueError(f"{self.name}: undeclared columns {undeclared}, absent columns {absent}")
        return frame.select(
            (pl.col(c.name) if c.name in frame.columns else pl.lit(None).alias(c.name)).cast(c.dtype)
            for c in self.columns
        )


RUN_STAMP = (
    Column("evaluation", pl.String(), "Name of the evaluation (the partition)."),
    Column("run_id", pl.String(), "Dagster's id of the run that wrote the row."),
    Column("created_at", TIMESTAMP, "When the row was written, UTC."),
)
