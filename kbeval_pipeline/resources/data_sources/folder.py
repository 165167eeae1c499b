"""A folder as a data source: each CSV, Parquet, JSON or JSON Lines file is a table."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources import csv_files, json_files
from kbeval_pipeline.resources.data_sources.base import DataSource
from kbeval_pipeline.resources.data_sources.duckdb_engine import run_over_frames
from kbeval_pipeline.resources.data_sources.frames import check_columns, plain
from kbeval_pipeline.resources.data_sources.selects import parse_select, rename_tables, table_references
from kbeval_pipeline.settings import TableName

LOCK_FILE = ".kbeval.lock"


@dataclass(frozen=True)
class _Format:
    read: Callable[[Path], pl.DataFrame]
    write: Callable[[Path, pl.DataFrame], None]
    append: Callable[[Path, Path, pl.DataFrame], None]
    as_read_back: Callable[[pl.DataFrame], pl.DataFrame]


def _read_parquet(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path, glob=False)


def _write_parquet(path: Path, frame: pl.DataFrame) -> None:
    plain(frame).write_parquet(path)


def _append_parquet(old: Path, new: Path, frame: pl.DataFrame) -> None:
    present = _read_parquet(old)
    rows = plain(frame).cast({name: present.schema[name] for name in frame.columns})
    pl.concat([present, rows], how="diagonal").write_parquet(new)


_JSON_LINES = _Format(
    json_files.read_json, json_files.write_json_lines, json_files.append_json, json_files.as_read_back
)
_FORMATS = {
    ".csv": _Format(csv_files.read_csv, csv_files.write_csv, csv_files.append_csv, csv_files.as_read_back),
    ".parquet": _Format(_read_parquet, _write_parquet, _append_parquet, plain),
    ".json": _Format(
        json_files.read_json, json_files.write_json, json_files.append_json, json_files.as_read_back
    ),
    ".jsonl": _JSON_LINES,
    ".ndjson": _JSON_LINES,
}


class Folder(DataSource):
    """A folder in which a file is a table and a subfolder a schema.

    CSV and JSON have no schema of their own: an empty CSV file keeps only its columns' names, an empty
    JSON file not even those.

    Args:
        name: name of the data source.
        path: the folder; the first write makes it.
        write_format: format of tables that do not exist yet.
        lock_wait_seconds: how long to wait for another process that writes to the folder.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        write_format: Literal["csv", "parquet", "jsonl"] = "parquet",
        lock_wait_seconds: float = 5.0,
    ) -> None:
        self.name = name
        self._path = path
        self._write_format = write_format
        self._lock_wait_seconds = lock_wait_seconds

    def tables(self) -> list[str]:
        """See `DataSource.tables`."""
        if not self._path.is_dir():
            raise UserError(
                f'data source "{self.name}": there is no folder {self._path}; correct its path, or make it'
            )
        return sorted(
            {
                file.stem if file.parent == self._path else f"{file.parent.name}.{file.stem}"
                for pattern in ("*", "*/*")
                for file in self._path.glob(pattern)
                if _is_table(file) and not file.parent.name.startswith(".")
            }
        )

    def read_table(self, table: TableName) -> pl.DataFrame:
        """See `DataSource.read_table`."""
        known = self.tables()
        file = self._find(table)
        if file is None:
            raise self.missing_table(table, known)
        return self._read(file).with_columns(pl.col(pl.Null).cast(pl.String))

    def query(self, sql: str) -> pl.DataFrame:
        """See `DataSource.query`; DuckDB runs it over the tables that it names."""
        tree = parse_select(sql, "duckdb")
        references = list(table_references(tree))
        frames: dict[tuple[str, ...], pl.DataFrame] = {}
        for reference in references:
            *schema, table = reference.parts
            if reference.parts not in frames:
                name = TableName(data_source=self.name, schema_name=".".join(schema) or None, table=table)
                frames[reference.parts] = self.read_table(name)
        names = {parts: f"table_{number}" for number, parts in enumerate(frames)}
        rename_tables(tree, references, [names[reference.parts] for reference in references])
        return run_over_frames(
            tree.sql(dialect="duckdb", comments=False),
            {names[parts]: frame for parts, frame in frames.items()},
            f'data source "{self.name}"',
        )

    def replace_table(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.replace_table`; the file's format is kept."""
        target = self._target(table)
        with self._locked(target.parent):
            self._write(target, lambda file: _format(target).write(file, frame))

    def append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.append`; the file is rewritten beside the old one, which it then replaces."""
        target = self._target(table)
        with self._locked(target.parent):
            if not target.exists() or not (present := self._read(target)).width:
                self._write(target, lambda file: _format(target).write(file, frame))
                return
            self._check(table, target, present, frame)
            self._write(target, lambda file: _format(target).append(target, file, frame))

    def check_append(self, table: TableName, frame: pl.DataFrame) -> None:
        """See `DataSource.check_append`."""
        target = self._target(table)
        folder = next(parent for parent in target.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f'data source "{self.name}" cannot be written: no permission in {folder}')
        if target.exists() and (present := self._read(target)).width:
            self._check(table, target, present, frame)

    def _check(self, table: TableName, target: Path, present: pl.DataFrame, frame: pl.DataFrame) -> None:
        check_columns(self.name, table, present.schema, frame, _format(target).as_read_back(frame))

    def _find(self, table: TableName) -> Path | None:
        """Find a table's file; case is ignored where no file has the exact name."""
        folder = self._folder(table)
        files = [file for file in folder.iterdir() if _is_table(file)] if folder.is_dir() else []
        exact = [file for file in files if file.stem == table.table]
        found = exact or [file for file in files if file.stem.lower() == table.table.lower()]
        if len(found) > 1:
            names = " and ".join(sorted(file.name for file in found))
            raise UserError(
                f'data source "{self.name}" has more than one file for the table "{table.local_name}": '
                f"{names} in {folder}; remove or rename one"
            )
        return found[0] if found else None

    def _target(self, table: TableName) -> Path:
        return self._find(table) or self._folder(table) / f"{table.table}.{self._write_format}"

    def _folder(self, table: TableName) -> Path:
        for part in (table.schema_name, table.table):
            if part and (part.startswith(".") or "/" in part or "\\" in part or not part.isprintable()):
                raise UserError(f'data source "{self.name}": "{part}" cannot be the name of a file')
        return self._path / table.schema_name if table.schema_name else self._path

    def _read(self, file: Path) -> pl.DataFrame:
        try:
            return _format(file).read(file)
        except (ValueError, OSError, pl.exceptions.PolarsError) as error:
            cause = str(error).splitlines()[0]
            raise UserError(f'data source "{self.name}": {file} cannot be read: {cause}') from None

    def _write(self, target: Path, write: Callable[[Path], None]) -> None:
        """Write a new file beside the target, make it durable, then put it in the target's place."""
        target = target.resolve()
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            write(temporary)
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            _sync(temporary)
            os.replace(temporary, target)
            with contextlib.suppress(OSError):  # some file systems cannot
                _sync(target.parent)
        except (OSError, pl.exceptions.PolarsError) as error:
            cause = str(error).splitlines()[0]
            raise UserError(f'data source "{self.name}": {target} cannot be written: {cause}') from None
        finally:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Hold the folder's lock, so that no other process's rows are lost."""
        import fcntl  # noqa: PLC0415

        retrying = Retrying(
            retry=retry_if_exception_type(BlockingIOError),
            stop=stop_after_delay(self._lock_wait_seconds),
            wait=wait_random_exponential(multiplier=0.02, max=0.3),
            reraise=True,
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK_FILE).open("ab")
        except OSError as error:
            raise UserError(f'data source "{self.name}": {folder} cannot be written: {error}') from None
        with lock:
            try:
                retrying(fcntl.flock, lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f'data source "{self.name}": another program writes to {folder}, waited '
                    f"{self._lock_wait_seconds:g} s; try again once it has finished"
                ) from None
            yield


def _is_table(file: Path) -> bool:
    return file.suffix.lower() in _FORMATS and not file.name.startswith(".") and file.is_file()


def _format(file: Path) -> _Format:
    return _FORMATS[file.suffix.lower()]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
