"""Indexes in folders named by fingerprint: whole or absent, several processes at once."""

import contextlib
import json
import os
import re
import shutil
import socket
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

from kbeval_pipeline.errors import UserError

_MANIFEST = "manifest.json"
_BUILDING = ".building-"
_KEPT = 3
_ABANDONED_SECONDS = 24 * 3600


class IndexStore:
    """The stored indexes of one knowledge base.

    A folder is built beside its place, described by a manifest of sizes and checksums, and renamed. So a
    folder with a fingerprint's name is whole, unless it was damaged later, which the manifest tells.

    Args:
        folder: holds a folder for each fingerprint.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, fingerprint: str) -> Path | None:
        """Look an index up.

        Args:
            fingerprint: what it was built from.

        Returns:
            Its folder, None when it is absent or damaged.
        """
        folder = self._folder / fingerprint
        if not _is_whole(folder):
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return folder

    def build(self, build: Callable[[Path], str]) -> tuple[str, Path]:
        """Build an index and put it in its place.

        Args:
            build: fills an empty folder and returns the fingerprint of what it indexed.

        Returns:
            The fingerprint and the folder, which is another process's if that was first.
        """
        temporary = self._folder / _building_name()
        try:
            temporary.mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f'the index folder "{self._folder}" cannot be written: {error.strerror}; '
                "check its permissions, or set `data_dir`"
            ) from error
        self._clean()
        try:
            fingerprint = build(temporary)
            _write_manifest(temporary)
            place = self._folder / fingerprint
            self._move(temporary, place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._prune(fingerprint)
        return fingerprint, place

    def discard(self, fingerprint: str) -> None:
        """Remove an index that cannot be opened."""
        _remove(self._folder / fingerprint)

    def _move(self, temporary: Path, place: Path) -> None:
        for _ in range(5):
            try:
                temporary.rename(place)
            except OSError:
                if _is_whole(place):
                    return
                _remove(place)
            else:
                return
        temporary.rename(place)

    def _prune(self, current: str) -> None:
        stored = [
            path
            for path in self._folder.iterdir()
            if re.fullmatch(r"[0-9a-f]{64}", path.name) and path.name != current
        ]
        for path in sorted(stored, key=_modified, reverse=True)[_KEPT - 1 :]:
            _remove(path)

    def _clean(self) -> None:
        for path in self._folder.glob(f"{_BUILDING}*"):
            host, _, rest = path.name.removeprefix(_BUILDING).rpartition("-")[0].rpartition("-")
            ended = host == socket.gethostname() and rest.isdigit() and not _is_running(int(rest))
            if ended or time.time() - _modified(path) > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _building_name() -> str:
    return f"{_BUILDING}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> None:
    """Remove a folder such that no other process ever sees a part of it under its name."""
    doomed = path.with_name(_building_name())
    with contextlib.suppress(FileNotFoundError):
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _checksum(path: Path) -> list[int]:
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
            size += len(block)
    return [size, checksum]


def _write_manifest(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    manifest = {path.relative_to(folder).as_posix(): _checksum(path) for path in files}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _is_whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(_checksum(folder / name) == stated for name, stated in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False
