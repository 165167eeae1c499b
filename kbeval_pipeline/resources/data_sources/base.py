"""What every data source can do, whatever holds its tables."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.settings import TableName, nearest

QUERY_SECONDS = 600.0
"""Longest time that a user's SELECT may take, in seconds."""

_MOST_NAMES = 30


class DataSource(ABC):
    """A named place that holds tables: a DuckDB file, a folder of files, or a database.

    Tables are read whole, replaced whole or appended to. Frames are matched to tables by column name.
    Every method raises `UserError` for what the user can put right; its message never holds a password.
    """

    name: str

    @abstractmethod
    def tables(self) -> list[str]:
        """List the tables and views.

        Returns:
            Their names, as `schema.table` where they are not in the default schema.

        Raises:
            UserError: when the data source is missing or cannot be reached.
        """

    @abstractmethod
    def read_table(self, table: TableName) -> pl.DataFrame:
        """Read a whole table.

        Args:
            table: its name; the data source in it is not looked at.

        Returns:
            Its rows. Column types are kept; a column that mixes numbers and text becomes text, each
            number in its canonical form (2 and 2.0 both as `2`).

        Raises:
            UserError: when there is no such table (the nearest one is named) or it cannot be read.
        """

    @abstractmethod
    def query(self, sql: str) -> pl.DataFrame:
        """Run one SELECT, read-only.

        Args:
            sql: a statement that `parse_select` accepts, in the data source's own dialect, with table
                names as `tables` gives them.

        Returns:
            Its rows.

        Raises:
            UserError: when the statement fails or takes longer than `QUERY_SECONDS`.
        """

    @abstractmethod
    def replace_table(self, table: TableName, frame: pl.DataFrame) -> None:
        """Write a table, in place of the one of that name if there is one.

        After a failure or a kill the old table is whole.

        Args:
            table: its name; the schema is created where it is absent.
            frame: its rows.

        Raises:
            UserError: when it cannot be written.
        """

    @abstractmethod
    def append(self, table: TableName, frame: pl.DataFrame) -> None:
        """Add rows to a table: all or none.

        Args:
            table: its name; it is created where it is absent.
            frame: the rows. Columns of the table that the frame lacks become null.

        Raises:
            UserError: when a column does not fit (it is named, with the types) or nothing can be written.
        """

    @abstractmethod
    def check_append(self, table: TableName, frame: pl.DataFrame) -> None:
        """Check, without leaving a trace, that `append` would work.

        Args:
            table: the table's name.
            frame: a frame with the columns of the rows to come; it may be empty.

        Raises:
            UserError: as `append` would, as far as can be known beforehand.
        """

    def missing_table(self, table: TableName, known: Iterable[str]) -> UserError:
        """Make the error for a table that is not there.

        Args:
            table: the name that was asked for.
            known: the tables that are there.

        Returns:
            An error that names the nearest table.
        """
        names = list(known)
        hint = nearest(table.local_name, shortlist(table.local_name, names))
        more = f"; {len(names)} tables in all" if len(names) > _MOST_NAMES else ""
        return UserError(f'data source "{self.name}" has no table "{table.local_name}", {hint}{more}')


def shortlist(word: str, names: Sequence[str]) -> Sequence[str]:
    """Cut a long list of names down to those that an error message can show.

    Args:
        word: the name that was asked for.
        names: all names.

    Returns:
        All of a short list, else those most like the word.
    """
    if len(names) <= _MOST_NAMES:
        return names
    return difflib.get_close_matches(word, names, n=10, cutoff=0.3) or names[:10]
