"""Reading `kbeval.yaml`: environment variables, references, and every mistake at once."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import Project
from kbeval_pipeline.settings import TableName, nearest

KeyPath = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Problem:
    """One mistake in the project file: where it is and what to do."""

    path: KeyPath
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """`line 4: evaluations.nightly.top_k: message`."""
        where = ".".join(str(part) for part in self.path)
        line = f"line {self.line}: " if self.line else ""
        return f"{line}{where}: {self.message}" if where else f"{line}{self.message}"


class ProjectFileError(UserError):
    """All mistakes of a project file."""

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        count = f"{len(problems)} mistake{'s' if len(problems) != 1 else ''}"
        super().__init__("\n".join([f"{file}: {count}", *(f"  {problem}" for problem in problems)]))


def read_project(file: Path, environment: Mapping[str, str] | None = None) -> Project:
    """Read and check a project file.

    Args:
        file: the YAML file.
        environment: where `${NAME}` is looked up; the process environment by default.

    Returns:
        The checked project. Paths in it are absolute: relative ones count from the file's folder.

    Raises:
        ProjectFileError: naming every mistake with line, path and the nearest valid name.
    """
    environment = os.environ if environment is None else environment
    raw, lines, problems = _parse_yaml(file)
    if problems:
        raise ProjectFileError(file, problems)
    data = substitute(raw, (), environment, problems)
    broken = {problem.path for problem in problems}
    project = None
    try:
        project = Project.model_validate(data)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=False, include_input=False):
            path = _shown_path(item["loc"], data)
            if path not in broken:
                problems.append(Problem(path, _shown_message(item["msg"])))
    problems.extend(problem for problem in _reference_problems(data) if problem.path not in broken)
    if problems or project is None:
        located = [Problem(item.path, item.message, _line_of(item.path, lines)) for item in problems]
        raise ProjectFileError(file, sorted(located, key=lambda item: item.line or 0))
    return _with_absolute_paths(project, file.resolve().parent)


def _parse_yaml(file: Path) -> tuple[dict[str, Any], dict[KeyPath, int], list[Problem]]:
    lines: dict[KeyPath, int] = {}
    problems: list[Problem] = []
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{file}: there is no such project file; run in its folder, or name it by --project or "
            "the environment variable KBEVAL_PROJECT"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        raw = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        return {}, {}, [Problem((), f"not valid YAML: {error.problem}", line)]
    except yaml.YAMLError as error:
        return {}, {}, [Problem((), f"not valid YAML: {error}")]
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        return {}, {}, [Problem((), "expected a mapping with keys such as knowledge_bases and evaluations")]
    if node is not None:
        _index_lines(node, (), lines, problems)
    return raw, lines, problems


def _index_lines(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], problems: list[Problem]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key_path = (*path, str(key_node.value))
            line = key_node.start_mark.line + 1
            if key_path in lines:
                message = f"given twice, first in line {lines[key_path]}"
                problems.append(Problem(key_path, message, line))
                continue
            lines[key_path] = line
            _index_lines(value_node, key_path, lines, problems)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _index_lines(item, (*path, index), lines, problems)


def _line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def substitute(value: Any, path: KeyPath, environment: Mapping[str, str], problems: list[Problem]) -> Any:
    """Replace `${NAME}` by the environment variable NAME in every text of a value, and `$$` by `$`.

    Args:
        value: what was read: mappings, lists, texts and others.
        path: where the value stands.
        environment: where names are looked up.
        problems: receives a problem for each name that is not set.

    Returns:
        The value with its texts replaced; a name that is not set becomes empty.
    """
    if isinstance(value, dict):
        return {
            key: substitute(item, (*path, str(key)), environment, problems) for key, item in value.items()
        }
    if isinstance(value, list):
        return [substitute(item, (*path, i), environment, problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        name = match.group(1)
        if not _VARIABLE_NAME.fullmatch(name):
            problems.append(Problem(path, f'"{match.group()}" does not name an environment variable'))
        elif name not in environment:
            problems.append(Problem(path, f"the environment variable {name} is not set"))
        return environment.get(name, "")

    return _VARIABLE.sub(replace, value)


def _shown_path(location: tuple[str | int, ...], data: Any) -> KeyPath:
    """Drop what pydantic adds to a location (tags of unions) but the file does not have."""
    path: list[str | int] = []
    current = data
    for position, part in enumerate(location):
        inside = (isinstance(current, dict) and part in current) or (
            isinstance(current, list) and isinstance(part, int) and part < len(current)
        )
        if inside:
            current = current[part]
        elif position < len(location) - 1 or not isinstance(current, dict) or part == "[key]":
            continue
        path.append(part)
    return tuple(path)


def _shown_message(message: str) -> str:
    message = message.removeprefix("Value error, ")
    if message == "Field required":
        return "is missing"
    return message[:1].lower() + message[1:]


def _reference_problems(data: Any) -> Iterator[Problem]:
    """Find references to names that the file does not define; works on unchecked data."""

    def section(key: str) -> dict[str, Any]:
        value = data.get(key)
        return {str(name): item for name, item in value.items()} if isinstance(value, dict) else {}

    def unknown(path: KeyPath, kind: str, name: object, known: dict[str, Any]) -> Iterator[Problem]:
        if isinstance(name, str) and name not in known:
            yield Problem(path, f'unknown {kind} "{name}", {nearest(name, known)}')

    def table(path: KeyPath, name: object) -> Iterator[Problem]:
        if isinstance(name, str):
            try:
                parsed = TableName.parse(name)
            except ValueError:
                return
            yield from unknown(path, "data source", parsed.data_source, section("data_sources"))

    for name, item in section("knowledge_bases").items():
        model = item.get("reranking_model") if isinstance(item, dict) else None
        yield from unknown(("knowledge_bases", name, "reranking_model"), "LLM", model, section("llms"))
        documents = item.get("documents") if isinstance(item, dict) else None
        if isinstance(documents, dict):
            yield from table(("knowledge_bases", name, "documents", "table"), documents.get("table"))
    for name, item in section("evaluations").items():
        if not isinstance(item, dict):
            continue
        path: KeyPath = ("evaluations", name)
        base = item.get("knowledge_base")
        yield from unknown((*path, "knowledge_base"), "knowledge base", base, section("knowledge_bases"))
        yield from unknown((*path, "llm"), "LLM", item.get("llm"), section("llms"))
        for key in ("test_table", "save_to"):
            yield from table((*path, key), item.get(key))
        calibration = item.get("calibration")
        if isinstance(calibration, dict):
            yield from table((*path, "calibration", "table"), calibration.get("table"))
        panel = item.get("panel")
        for index, judge in enumerate(panel if isinstance(panel, list) else []):
            yield from unknown((*path, "panel", index), "LLM", judge, section("llms"))
    yield from unknown(("default_llm",), "LLM", data.get("default_llm"), section("llms"))


def _with_absolute_paths(project: Project, folder: Path) -> Project:
    sources = {
        name: source.model_copy(update={"path": folder / source.path}) if hasattr(source, "path") else source
        for name, source in project.data_sources.items()
    }
    bases = {}
    for name, base in project.knowledge_bases.items():
        documents = getattr(base, "documents", None)
        files = documents.files if documents is not None else None
        changed = {}
        if documents is not None and files is not None:
            changed["documents"] = documents.model_copy(update={"files": folder / files})
        bases[name] = base.model_copy(update=changed)
    return project.model_copy(
        update={
            "data_dir": folder / project.data_dir,
            "data_sources": sources,
            "knowledge_bases": bases,
        }
    )
