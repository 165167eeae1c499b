"""The project file: what is accepted, and how each mistake is told."""

from pathlib import Path

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.settings import TableName

VALID = """
data_sources:
  demo: {type: folder, path: tables}
knowledge_bases:
  docs: {documents: {files: docs}}
llms: {offline: {provider: offline}}
evaluations:
  nightly: {knowledge_base: docs, test_table: demo.questions}
"""


def _mistakes(tmp_path: Path, text: str, **environment: str) -> list[str]:
    file = tmp_path / "kbeval.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        read_project(file, environment)
    first, *rest = str(raised.value).splitlines()
    assert str(file) in first
    return [line.strip() for line in rest]


def test_defaults_and_paths(tmp_path: Path) -> None:
    file = tmp_path / "kbeval.yaml"
    file.write_text(VALID, encoding="utf-8")
    project = read_project(file)
    evaluation = project.evaluations["nightly"]
    assert evaluation.version == ("doc_id",)
    assert evaluation.retrieval_depth == 20
    assert evaluation.generate_data is None
    assert project.schedule.cron == "0 2 * * *"
    assert project.data_dir == tmp_path / ".kbeval"
    assert project.data_sources["demo"].path == tmp_path / "tables"
    assert project.knowledge_bases["docs"].documents.files == tmp_path / "docs"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("type: folder", "type: foldr", "line 3: data_sources.demo: "),
        ("path: tables", "pth: tables", 'data_sources.demo.pth: unknown key, did you mean "path"?'),
        ("path: tables", "pth: tables", "data_sources.demo.path: is missing"),
        ("knowledge_base: docs", "knowledge_base: dogs",
         'line 8: evaluations.nightly.knowledge_base: unknown knowledge base "dogs", did you mean "docs"?'),
        ("demo.questions", "dmo.questions",
         'evaluations.nightly.test_table: unknown data source "dmo", did you mean "demo"?'),
        ("demo.questions", "questions", 'test_table: "questions" lacks the data source'),
        ("demo.questions", "demo.a.b.c", "has too many parts"),
        ("demo.questions}", "demo.questions, evaluate: 'false'}", "evaluations.nightly.evaluate: "),
        ("demo.questions}", "demo.questions, top_k: '5'}", "evaluations.nightly.top_k: "),
        ("demo.questions}", "demo.questions, top_k: 0}", "evaluations.nightly.top_k: "),
        ("demo.questions}", "demo.questions, version: docid}", "'doc_id' or 'llm_relevancy'"),
        ("demo.questions}", "demo.questions, version: []}", "name at least one of"),
        ("demo.questions}", "demo.questions, llm: ofline}",
         'evaluations.nightly.llm: unknown LLM "ofline", did you mean "offline"?'),
        ("demo.questions}", "demo.questions, save_to: demo.questions}", "save elsewhere"),
        ("demo.questions}", "demo.questions, generate_data: {cont: 3}}",
         'generate_data.cont: unknown key, did you mean "count"?'),
        ("demo.questions}", "demo.questions, generate_data: 'true'}", "expected true, false or a mapping"),
        ("demo.questions}", "demo.questions, schedule: {cron: '99 2 * * *'}}", "is not a cron expression"),
        ("demo.questions}", "demo.questions, schedule: {timezone: Mars}}", 'unknown time zone "Mars"'),
        ("files: docs", "files: docs, table: demo.t", "give exactly one of files, table and sql"),
        ("files: docs", "table: nope.t", 'documents.table: unknown data source "nope"'),
        ("nightly:", "'night ly':", "evaluations.night ly: "),
    ],
)  # fmt: skip
def test_each_mistake_names_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in VALID
    mistakes = _mistakes(tmp_path, VALID.replace(old, new))
    assert any(expected in mistake for mistake in mistakes), mistakes


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    broken = VALID.replace("path: tables", 'path: "${MISSING}"').replace("docs,", "dogs,") + "extra: 1\n"
    mistakes = _mistakes(tmp_path, broken)
    assert len(mistakes) == 3, mistakes
    assert "line 3: data_sources.demo.path: the environment variable MISSING is not set" in mistakes


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    repeated = VALID + "  nightly: {knowledge_base: docs, test_table: demo.other}\n"
    (mistake,) = _mistakes(tmp_path, repeated)
    assert mistake == "line 9: evaluations.nightly: given twice, first in line 8"


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "a: b: c"])
def test_no_mapping_or_no_yaml(tmp_path: Path, text: str) -> None:
    assert len(_mistakes(tmp_path, text)) == 1


def test_missing_file_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="KBEVAL_PROJECT"):
        read_project(tmp_path / "none.yaml")


def test_secrets_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "kbeval.yaml"
    url = "postgresql://user:${PG_PASSWORD}@host/db?options=$${literal}"
    file.write_text(f"data_sources:\n  pg: {{type: sql, url: '{url}'}}\n", encoding="utf-8")
    project = read_project(file, {"PG_PASSWORD": "hunter2"})
    source = project.data_sources["pg"]
    assert source.url.get_secret_value() == "postgresql://user:hunter2@host/db?options=${literal}"
    assert "hunter2" not in repr(project)
    assert "hunter2" not in str(project.model_dump())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.b", ("a", None, "b")),
        ("a.b.c", ("a", "b", "c")),
        ('a."b.c"', ("a", None, "b.c")),
        ("`a b`.`c d`", ("a b", None, "c d")),
        ('a."say ""hi"""', ("a", None, 'say "hi"')),
    ],
)
def test_table_names(text: str, parts: tuple[str, str | None, str]) -> None:
    name = TableName.parse(text)
    assert (name.data_source, name.schema_name, name.table) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".b", "a..b", 'a."b', "a.b.c.d", "a"])
def test_incomplete_table_names(text: str) -> None:
    with pytest.raises(ValueError, match="datasource|lacks|too many"):
        TableName.parse(text)
