"""All data sources of a project by name, and SELECTs over any of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import DataSourceSettings, DuckDBSource, FolderSource, Project
from kbeval_pipeline.resources.data_sources.base import DataSource
from kbeval_pipeline.resources.data_sources.duckdb_engine import run_over_frames
from kbeval_pipeline.resources.data_sources.duckdb_file import DuckDBFile
from kbeval_pipeline.resources.data_sources.folder import Folder
from kbeval_pipeline.resources.data_sources.selects import (
    TableReference,
    parse_select,
    rename_tables,
    strip_data_source,
    table_references,
)
from kbeval_pipeline.settings import TableName, nearest

if TYPE_CHECKING:
    from sqlglot import exp

_LOCAL_DIALECT = "duckdb"


class DataSources:
    """The project's data sources.

    Args:
        sources: settings by name. Nothing is opened before it is used.
    """

    def __init__(self, sources: Mapping[str, DataSourceSettings]) -> None:
        self._settings = dict(sources)
        self._opened: dict[str, DataSource] = {}

    @classmethod
    def from_project(cls, project: Project) -> "DataSources":
        """Take the data sources of a project.

        Args:
            project: the project as read from its file.

        Returns:
            Its data sources.
        """
        return cls(project.data_sources)

    @property
    def names(self) -> list[str]:
        """Names of the data sources."""
        return list(self._settings)

    def get(self, name: str) -> DataSource:
        """Get one data source.

        Args:
            name: its name.

        Returns:
            The data source.

        Raises:
            UserError: when there is none of that name; the nearest one is named.
        """
        if name not in self._settings:
            raise UserError(f'unknown data source "{name}", {nearest(name, self._settings)}')
        if name not in self._opened:
            self._opened[name] = _open(name, self._settings[name])
        return self._opened[name]

    def read_table(self, table: TableName) -> pl.DataFrame:
        """Read a whole table; see `DataSource.read_table`.

        Args:
            table: its name.

        Returns:
            Its rows.

        Raises:
            UserError: when there is no such table or it cannot be read.
        """
        return self.get(table.data_source).read_table(table)

    def replace_table(self, table: TableName, frame: pl.DataFrame) -> None:
        """Write a table in place of the old one; see `DataSource.replace_table`.

        Args:
            table: its name.
            frame: its rows.

        Raises:
            UserError: when it cannot be written; the old one is whole then.
        """
        self.get(table.data_source).replace_table(table, frame)

    def append(self, table: TableName, frame: pl.DataFrame) -> None:
        """Add rows to a table, all or none; see `DataSource.append`.

        Args:
            table: its name.
            frame: the rows.

        Raises:
            UserError: when a column does not fit or nothing can be written.
        """
        self.get(table.data_source).append(table, frame)

    def check_append(self, table: TableName, frame: pl.DataFrame) -> None:
        """Check that `append` would work; see `DataSource.check_append`.

        Args:
            table: the table's name.
            frame: a frame with the columns of the rows to come.

        Raises:
            UserError: as `append` would.
        """
        self.get(table.data_source).check_append(table, frame)

    def query(self, sql: str) -> pl.DataFrame:
        """Run one SELECT over any of the data sources, read-only.

        Tables are written `datasource.table` or `datasource.schema.table`. A statement over one database
        runs in that database, in its dialect. Any other statement is DuckDB's dialect and runs here, over
        copies of the tables that it names.

        Args:
            sql: the statement. Joins, subselects, common table expressions and UNION are welcome.

        Returns:
            Its rows.

        Raises:
            UserError: when the statement is anything but one SELECT, reads from outside the data sources,
                names an unknown data source or table, or fails.
        """
        dialect, tree, references = self._parse(sql)
        tables = [self._table(reference) for reference in references]
        sources = {table.data_source for table in tables}
        if len(sources) == 1:
            source = self.get(sources.pop())
            strip_data_source(tree, references)
            return source.query(tree.sql(dialect=dialect, comments=False))
        frames = {table: self.read_table(table) for table in dict.fromkeys(tables)}
        names = {table: f"table_{number}" for number, table in enumerate(frames)}
        rename_tables(tree, references, [names[table] for table in tables])
        return run_over_frames(
            tree.sql(dialect=_LOCAL_DIALECT, comments=False),
            {names[table]: frame for table, frame in frames.items()},
            " and ".join(f'"{name}"' for name in sorted(sources)) or "no table",
        )

    def _parse(self, sql: str) -> "tuple[str | None, exp.Query, Sequence[TableReference]]":
        """Parse in the dialect of the one database that the statement names, else in DuckDB's."""
        refusal = None
        for name in (None, *self._settings):
            if name is not None and name not in sql:
                continue
            try:
                dialect = self._dialect(name) if name else _LOCAL_DIALECT
                tree = parse_select(sql, dialect)
                references = list(table_references(tree))
            except UserError as error:
                refusal = refusal or error
                continue
            sources = {reference.parts[0] for reference in references}
            wanted = self._dialect(next(iter(sources))) if len(sources) == 1 else _LOCAL_DIALECT
            if wanted == dialect:
                return dialect, tree, references
        if refusal is None:
            refusal = UserError("the statement cannot be parsed")
        raise refusal

    def _dialect(self, name: str) -> str | None:
        settings = self._settings.get(name)
        if settings is None or isinstance(settings, DuckDBSource | FolderSource):
            return _LOCAL_DIALECT
        from kbeval_pipeline.resources.data_sources.sql import SqlDatabase  # noqa: PLC0415

        source = self.get(name)
        return source.dialect if isinstance(source, SqlDatabase) else _LOCAL_DIALECT

    def _table(self, reference: TableReference) -> TableName:
        source, *schema, table = reference.parts if len(reference.parts) > 1 else ("", *reference.parts)
        if not source:
            raise UserError(
                f'the table "{table}" lacks its data source, write datasource.{table} '
                f"({nearest(table, self._settings)})"
            )
        self.get(source)
        return TableName(data_source=source, schema_name=schema[0] if schema else None, table=table)


def _open(name: str, settings: DataSourceSettings) -> DataSource:
    if isinstance(settings, DuckDBSource):
        return DuckDBFile(name, settings.path)
    if isinstance(settings, FolderSource):
        return Folder(name, settings.path, write_format=settings.write_format)
    # SQLAlchemy takes a while to import.
    from kbeval_pipeline.resources.data_sources.sql import SqlDatabase  # noqa: PLC0415

    return SqlDatabase(name, settings.url)
