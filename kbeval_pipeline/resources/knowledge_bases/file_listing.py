"""Lists the files of a folder that match glob patterns, without following links out of it."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbeval_pipeline.resources.knowledge_bases.protocol import SkippedDocument


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file.

    Attributes:
        name: posix path below the folder.
        path: where it is.
        status: its status, links followed.
    """

    name: str
    path: Path
    status: os.stat_result


def glob_to_regex(pattern: str) -> re.Pattern[str]:
    """Translate a glob pattern over posix paths; `**/` stands for any folders, or none.

    Args:
        pattern: such as `**/*.md`.

    Returns:
        A pattern for `fullmatch`.
    """
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|.", pattern.removeprefix("./"), re.DOTALL)
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated = []
    for token in tokens:
        if token in parts:
            translated.append(parts[token])
        elif len(token) > 2 and token[0] == "[":
            negated = token[1] in "!^"
            inside = token[1 + negated : -1].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            translated.append(f"(?!/)[{'^' if negated else ''}{inside}]")
        else:
            translated.append(re.escape(token))
    return re.compile("".join(translated), re.DOTALL)


def list_files(root: Path, patterns: Sequence[str], skipped: list[SkippedDocument]) -> Iterator[ListedFile]:
    """Walk a folder.

    Args:
        root: the folder.
        patterns: glob patterns below it; a file that matches one is listed.
        skipped: receives what cannot be listed, with the cause.

    Yields:
        The files, in the order of their paths.
    """
    matchers = [glob_to_regex(pattern) for pattern in patterns]
    real_root = os.path.realpath(root)

    def unreadable(error: OSError) -> None:
        where = os.path.relpath(error.filename, root)
        skipped.append(SkippedDocument(printable(where), f"folder cannot be read: {error.strerror}"))

    names: list[str] = []
    for folder, subfolders, files in os.walk(root, onerror=unreadable):
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else below.replace(os.sep, "/") + "/"
        for subfolder in subfolders:
            if os.path.islink(os.path.join(folder, subfolder)):
                cause = "a link to a folder, not followed; copy the folder or name it in `files`"
                skipped.append(SkippedDocument(printable(prefix + subfolder), cause))
        names += [prefix + file for file in files]
    for name in sorted(names):
        if not any(matcher.fullmatch(name) for matcher in matchers):
            continue
        path = root / name
        listed = _status(name, path, real_root)
        if isinstance(listed, str):
            skipped.append(SkippedDocument(printable(name), listed))
        else:
            yield ListedFile(name, path, listed)


def _status(name: str, path: Path, real_root: str) -> os.stat_result | str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "the file's name is not valid UTF-8; rename it"
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.path.realpath(path)
            if os.path.commonpath([target, real_root]) != real_root:
                return "a link that leaves the folder, not followed; copy the file into the folder"
            status = path.stat()
    except FileNotFoundError:
        return "a link to a file that does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return status


def printable(name: str) -> str:
    """Make a file name safe to print and store.

    Args:
        name: a name that may hold undecodable bytes.

    Returns:
        The name with these bytes escaped.
    """
    return name.encode("utf-8", "backslashreplace").decode()
