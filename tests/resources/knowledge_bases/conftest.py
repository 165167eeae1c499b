"""Knowledge bases over small real folders and tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kbeval_pipeline.project import LocalKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases import LocalKnowledgeBaseAdapter
from kbeval_pipeline.resources.knowledge_bases import file_cache as file_cache_module
from kbeval_pipeline.settings import TableName

MakeKnowledgeBase = Callable[..., LocalKnowledgeBaseAdapter]


@dataclass
class Tables:
    """A data source in memory."""

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)

    def read_table(self, table: TableName) -> pl.DataFrame:
        return self.frames[str(table)]

    def query(self, sql: str) -> pl.DataFrame:
        return pl.SQLContext(self.frames).execute(sql, eager=True)


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "docs"
    path.mkdir()
    return path


@pytest.fixture
def write(folder: Path) -> Callable[[Mapping[str, str | bytes]], None]:
    def write_files(files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write_files


@pytest.fixture
def make(tmp_path: Path, folder: Path, tables: Tables) -> MakeKnowledgeBase:
    """Make an adapter: on the folder, or on the documents, chunking and search given."""

    def make_adapter(
        documents: dict[str, Any] | None = None,
        *,
        name: str = "kb",
        max_concurrency: int | None = None,
        chunking: dict[str, Any] | None = None,
        search: dict[str, Any] | None = None,
    ) -> LocalKnowledgeBaseAdapter:
        settings = LocalKnowledgeBase.model_validate(
            {
                "documents": {"files": folder} if documents is None else documents,
                "max_concurrency": max_concurrency,
                "chunking": chunking or {},
                "search": search or {},
            }
        )
        return LocalKnowledgeBaseAdapter(name, settings, tables, tmp_path / "index")

    return make_adapter


@pytest.fixture
def trust_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache of files keep files that were just written."""
    monkeypatch.setattr(file_cache_module, "RECENT_SECONDS", -3600.0)
