"""Documents from a folder of text, Markdown and HTML files."""

import codecs
import hashlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.knowledge_bases.file_cache import FileCache, FileState
from kbeval_pipeline.resources.knowledge_bases.file_listing import ListedFile, list_files, printable
from kbeval_pipeline.resources.knowledge_bases.html_text import html_to_text
from kbeval_pipeline.resources.knowledge_bases.local_documents import HASHES_SCHEMA, Scan, SourceDocument
from kbeval_pipeline.resources.knowledge_bases.protocol import SkippedDocument

_EXTRACTION_VERSION = 1
_HTML = (".html", ".htm", ".xhtml")


class FileDocuments:
    """The files of a folder; a document's id is its posix path below the folder.

    Args:
        root: the folder.
        include: glob patterns below it.
        encoding: encoding of every file.
        max_file_mb: larger files are left out.
        cache_folder: where the files' hashes are remembered.
    """

    def __init__(
        self, root: Path, include: tuple[str, ...], encoding: str, max_file_mb: float, cache_folder: Path
    ) -> None:
        self._root = root
        self._include = include
        self._encoding = codecs.lookup(encoding).name
        self._max_file_mb = max_file_mb
        key = f"{_EXTRACTION_VERSION}\0{root}\0{self._encoding}".encode("utf-8", "surrogateescape")
        self._cache_path = cache_folder / f"files-{hashlib.sha256(key).hexdigest()[:16]}.parquet"

    def describe(self) -> str:
        """Name the folder and what is looked for."""
        return f'folder "{self._root}" ({", ".join(self._include)})'

    def scan(self) -> Scan:
        """Hash every file's text; files unchanged since the last scan are not opened."""
        skipped: list[SkippedDocument] = []
        cache = FileCache(self._cache_path)
        rows = []
        for file in self._list(skipped):
            state = cache.get(file.name, file.status)
            if state is None:
                try:
                    state = FileState(_hash(self._read(file)), None)
                except _UnreadableError as error:
                    skipped.append(SkippedDocument(file.name, str(error)))
                    continue
                except _LeftOutError as error:
                    state = FileState(None, str(error))
                cache.put(file.name, file.status, state)
            if state.content_hash is None:
                skipped.append(SkippedDocument(file.name, state.cause or "cannot be read"))
            else:
                rows.append((file.name, state.content_hash))
        cache.save()
        return Scan(pl.DataFrame(rows, schema=HASHES_SCHEMA, orient="row"), skipped)

    def read(self) -> Iterator[SourceDocument]:
        """Read the files that hold text, in the order of their ids."""
        for file in self._list([]):
            try:
                text = self._read(file)
            except _LeftOutError:
                continue
            yield SourceDocument(file.name, text, _hash(text))

    def _list(self, skipped: list[SkippedDocument]) -> Iterator[ListedFile]:
        if not self._root.is_dir():
            problem = "is not a folder" if self._root.exists() else "does not exist"
            raise UserError(f'documents.files: "{self._root}" {problem}; name a folder of text files')
        for file in list_files(self._root, self._include, skipped):
            size = file.status.st_size / 1e6
            if size > self._max_file_mb:
                cause = (
                    f"{size:.1f} MB, over max_file_mb ({self._max_file_mb:g}); raise it to take this file in"
                )
                skipped.append(SkippedDocument(file.name, cause))
            else:
                yield file

    def _read(self, file: ListedFile) -> str:
        """Read a file's text.

        Raises:
            _LeftOutError: with the cause why there is none.
        """
        try:
            data = file.path.read_bytes()
        except OSError as error:
            raise _UnreadableError(f"cannot be read: {error.strerror or error}") from error
        text = self._decode(data).removeprefix("\ufeff").replace("\r\n", "\n")
        if file.path.suffix.lower() in _HTML:
            try:
                text = html_to_text(text)
            except Exception as error:
                # One page must not stop the others, whatever the parser raises.
                raise _LeftOutError(f"HTML cannot be read: {printable(str(error))[:200]}") from error
        if not text.strip():
            raise _LeftOutError("blank: holds no text" if data else "empty")
        return text

    def _decode(self, data: bytes) -> str:
        wide = self._encoding.startswith(("utf-16", "utf-32"))
        if b"\0" in data and not wide:
            looks_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            raise _LeftOutError(
                "UTF-16; set `encoding: utf-16`" if looks_utf16 else "binary: holds NUL bytes"
            )
        try:
            text = data.decode(self._encoding)
            text.encode()
        except UnicodeDecodeError as error:
            found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
            raise _LeftOutError(
                f"not {self._encoding}: {found}; set `encoding` to that of the files"
            ) from error
        except UnicodeError as error:
            raise _LeftOutError(
                f"not {self._encoding}: {error}; set `encoding` to that of the files"
            ) from error
        if "\0" in text:
            raise _LeftOutError("binary: holds NUL characters")
        return text


class _LeftOutError(Exception):
    """Why a file is left out."""


class _UnreadableError(_LeftOutError):
    """A cause that may go away without a change of the file."""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
