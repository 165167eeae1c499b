"""EVALUATE KNOWLEDGE_BASE statements: text becomes the same model as an evaluation of the project file."""

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import Evaluation, Project
from kbeval_pipeline.project_file import Problem, substitute
from kbeval_pipeline.settings import TableName, nearest

_FOLDER = "statements"


@dataclass(frozen=True)
class Statement:
    """A parsed statement.

    Attributes:
        name: name of its evaluation: the knowledge base and a hash of the parameters.
        parameters: the evaluation as a mapping, as it could stand in the project file; a key is not in
            it, but named as an environment variable.
        evaluation: the checked evaluation.
    """

    name: str
    parameters: dict[str, Any]
    evaluation: Evaluation


def is_statement(text: str) -> bool:
    """Tell a statement from the name of an evaluation."""
    return text.strip().upper().startswith("EVALUATE ") or " " in text.strip()


def parse_statement(text: str, project: Project) -> Statement:
    """Read an EVALUATE KNOWLEDGE_BASE statement.

    Args:
        text: the SQL statement.
        project: where knowledge bases and data sources are looked up.

    Returns:
        The evaluation and the name under which it runs. The same statement has the same name.

    Raises:
        UserError: naming the syntax error, or the unknown knowledge base, data source or parameter.
    """
    base, parameters = _parse(text)
    if base[0] == project.name and len(base) == 2:
        base = base[1:]
    name = ".".join(base)
    if name not in project.knowledge_bases:
        raise UserError(f'unknown knowledge base "{name}", {nearest(name, project.knowledge_bases)}')
    values = {key: value for key, value in parameters.items() if value is not None and value != ""}
    mapping = {"knowledge_base": name, **values}
    mapping, digest = _without_key(mapping)
    try:
        evaluation = _checked(mapping)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise UserError("\n".join(["the statement has mistakes:", *problems])) from None
    for key in ("test_table", "save_to"):
        table = getattr(evaluation, key)
        source = TableName.parse(table).data_source if table else None
        if source is not None and source not in project.data_sources:
            raise UserError(f'{key}: unknown data source "{source}", {nearest(source, project.data_sources)}')
    return Statement(f"{name}-{digest}", mapping, evaluation)


def save_statement(statement: Statement, project: Project) -> None:
    """Keep the evaluation of a statement, so that Dagster knows its partition.

    Args:
        statement: the parsed statement.
        project: whose data folder is written to.
    """
    folder = project.data_dir / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{statement.name}.yaml"
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(yaml.safe_dump(statement.parameters, allow_unicode=True), encoding="utf-8")
    unfinished.replace(file)


def saved_evaluations(project: Project) -> dict[str, Evaluation]:
    """Read the evaluations of earlier statements; those that no longer fit the project are left out."""
    found: dict[str, Evaluation] = {}
    for file in sorted((project.data_dir / _FOLDER).glob("*.yaml")):
        try:
            evaluation = _checked(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (UserError, ValidationError, yaml.YAMLError, OSError):
            continue
        if evaluation.knowledge_base in project.knowledge_bases:
            found[file.stem] = evaluation
    return found


def _without_key(mapping: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Put a key that was written out into this process's environment, so that it is stored nowhere."""
    llm = mapping.get("llm")
    key = llm.get("api_key") if isinstance(llm, dict) else None
    unkeyed = {**mapping, "llm": {**llm, "api_key": None}} if isinstance(llm, dict) else mapping
    digest = hashlib.sha256(json.dumps(unkeyed, sort_keys=True, default=str).encode()).hexdigest()[:8]
    if isinstance(llm, dict) and isinstance(key, str) and key and not key.startswith("${"):
        variable = f"KBEVAL_STATEMENT_KEY_{digest.upper()}"
        os.environ[variable] = key
        mapping = {**mapping, "llm": {**llm, "api_key": f"${{{variable}}}"}}
    return mapping, digest


def _checked(mapping: Any) -> Evaluation:
    problems: list[Problem] = []
    replaced = substitute(mapping, (), os.environ, problems)
    # Without its variable a statement's LLM is left to the provider's own way of finding a key.
    lacking = {problem.path for problem in problems}
    if ("llm", "api_key") in lacking:
        replaced["llm"].pop("api_key")
        lacking.discard(("llm", "api_key"))
    if lacking:
        raise UserError("\n".join(["the statement has mistakes:", *map(str, problems)]))
    return Evaluation.model_validate(replaced)


def _parse(text: str) -> tuple[list[str], dict[str, Any]]:
    from mindsdb_sql_parser import parse_sql  # noqa: PLC0415 - costs half a second of start-up
    from mindsdb_sql_parser.ast.mindsdb.knowledge_base import EvaluateKnowledgeBase  # noqa: PLC0415
    from mindsdb_sql_parser.ast.select.identifier import Identifier  # noqa: PLC0415
    from mindsdb_sql_parser.exceptions import ParsingException  # noqa: PLC0415

    try:
        tree = parse_sql(text.strip())
    except ParsingException as error:
        raise UserError(f"the statement cannot be read: {error}") from None
    except Exception as error:
        raise UserError(f"the statement cannot be read: {error}") from None
    if not isinstance(tree, EvaluateKnowledgeBase):
        raise UserError(
            "expected EVALUATE KNOWLEDGE_BASE name USING test_table = datasource.table, ..., "
            f"found a statement of another kind ({type(tree).__name__})"
        )

    def plain(value: Any) -> Any:
        if isinstance(value, Identifier):
            return ".".join(_quoted_part(part) for part in value.parts)
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value

    return list(tree.name.parts), {key.lower(): plain(value) for key, value in tree.params.items()}


def _quoted_part(part: str) -> str:
    plain = all(character.isalnum() or character in "_-" for character in part)
    return part if plain else '"' + part.replace('"', '""') + '"'
