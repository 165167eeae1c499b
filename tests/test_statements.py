"""EVALUATE KNOWLEDGE_BASE as text."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import Project
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.statements import is_statement, parse_statement, save_statement, saved_evaluations


@pytest.fixture
def project(write_project: Callable[..., Path]) -> Project:
    return read_project(write_project())


def test_the_documented_statement(project: Project) -> None:
    statement = parse_statement(
        "EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions, version = 'doc_id', "
        "generate_data = {'from_sql': 'SELECT id, content FROM store.pages', 'count': 3}, evaluate = true, "
        "save_to = store.results, top_k = 5;",
        project,
    )
    evaluation = statement.evaluation
    assert evaluation.test_table == "tables.questions"
    assert evaluation.generate_data is not None
    assert evaluation.generate_data.count == 3
    assert evaluation.save_to == "store.results"
    assert evaluation.retrieval_depth == 5


def test_project_prefix_case_and_quotes(project: Project) -> None:
    statement = parse_statement(
        "evaluate knowledge_base small.docs using TEST_TABLE = tables.`my questions`", project
    )
    assert statement.evaluation.knowledge_base == "docs"
    assert statement.evaluation.test_table == 'tables."my questions"'


def test_empty_and_null_mean_unset(project: Project) -> None:
    text = "EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions, llm = null, save_to = ''"
    evaluation = parse_statement(text, project).evaluation
    assert evaluation.llm is None
    assert evaluation.save_to is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EVALUATE KNOWLEDGE_BASE dogs USING test_table = tables.q", 'did you mean "docs"'),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = tabels.q", 'did you mean "tables"'),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = q", "lacks the data source"),
        ("EVALUATE KNOWLEDGE_BASE docs USING version = 'doc_id'", "test_table: Field required"),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.q, evaluate = 'false'", "evaluate: "),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.q, generat_data = true",
         'generat_data: unknown key, did you mean "generate_data"'),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.q, save_to = tables.q", "save elsewhere"),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.q, save_to = nope.q", "save_to: unknown data"),
        ("EVALUATE KNOWLEDGE_BASE docs", "cannot be read"),
        ("EVALUATE KNOWLEDGE_BASE docs USING test_table = ", "cannot be read"),
        ("SELECT 1 FROM docs", "a statement of another kind"),
        ("EVALUATE \x00 ??", "cannot be read"),
    ],
)  # fmt: skip
def test_mistakes(project: Project, text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_statement(text, project)
    assert message in str(raised.value)


def test_the_same_statement_has_the_same_name(project: Project) -> None:
    first = parse_statement("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions;", project)
    again = parse_statement("evaluate knowledge_base docs  using test_table=tables.questions", project)
    other = parse_statement(
        "EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions, top_k = 3", project
    )
    assert first.name == again.name
    assert first.name != other.name


def test_saved_statements_come_back_and_broken_ones_are_left_out(project: Project) -> None:
    statement = parse_statement("EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions", project)
    save_statement(statement, project)
    folder = project.data_dir / "statements"
    (folder / "broken.yaml").write_text("knowledge_base: [", encoding="utf-8")
    (folder / "gone.yaml").write_text("{knowledge_base: gone, test_table: tables.q}", encoding="utf-8")
    assert saved_evaluations(project) == {statement.name: statement.evaluation}


def test_a_key_in_a_statement_is_used_and_stored_nowhere(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions, version = 'llm_relevancy', "
        "llm = {'provider': 'openai', 'model_name': 'm', 'api_key': 'sk-secret-123'}"
    )
    statement = parse_statement(text, project)
    llm = statement.evaluation.llm
    assert not isinstance(llm, str)
    assert llm is not None
    assert llm.api_key is not None
    assert llm.api_key.get_secret_value() == "sk-secret-123"
    save_statement(statement, project)
    (stored,) = (project.data_dir / "statements").iterdir()
    assert "sk-secret-123" not in stored.read_text(encoding="utf-8")
    assert saved_evaluations(project)[statement.name] == statement.evaluation
    assert parse_statement(text.replace("123", "456"), project).name == statement.name
    for variable in [name for name in os.environ if name.startswith("KBEVAL_STATEMENT_KEY_")]:
        monkeypatch.delenv(variable)
    later = saved_evaluations(project)[statement.name].llm
    assert not isinstance(later, str)
    assert later is not None
    assert later.api_key is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nightly", False),
        ("EVALUATE KNOWLEDGE_BASE x USING a = 1", True),
        ("SELECT 1", True),
        ("evaluate", False),
    ],
)
def test_telling_names_from_statements(text: str, expected: bool) -> None:
    assert is_statement(text) is expected
