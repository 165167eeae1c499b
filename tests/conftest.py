"""A small project on real files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.small_project import DOCUMENTS, QUESTIONS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshot", action="store_true", help="write the asset-graph snapshot anew")


@pytest.fixture
def documents_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def write_project(tmp_path: Path, documents_folder: Path) -> Callable[..., Path]:
    """Write a project file whose sections can be changed or extended by keyword."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "questions.csv").write_text(QUESTIONS, encoding="utf-8")

    def write(**sections: object) -> Path:
        project = {
            "name": "small",
            "data_sources": {
                "tables": {"type": "folder", "path": "tables"},
                "store": {"type": "duckdb", "path": "store.duckdb"},
            },
            "knowledge_bases": {"docs": {"type": "local", "documents": {"files": documents_folder.name}}},
            "default_llm": "offline",
            "llms": {"offline": {"provider": "offline"}},
            "evaluations": {"nightly": {"knowledge_base": "docs", "test_table": "tables.questions"}},
            **sections,
        }
        file = tmp_path / "kbeval.yaml"
        file.write_text(yaml.safe_dump(project), encoding="utf-8")
        return file

    return write


@pytest.fixture
def project_file(write_project: Callable[..., Path]) -> Path:
    return write_project()
