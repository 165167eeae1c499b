"""One data source of every kind, all of which keep the same contract."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from kbeval_pipeline.resources.data_sources import DataSource
from kbeval_pipeline.resources.data_sources.duckdb_file import DuckDBFile
from kbeval_pipeline.resources.data_sources.folder import Folder
from kbeval_pipeline.resources.data_sources.sql import SqlDatabase
from tests.postgres import postgres_url  # noqa: F401

KINDS = ["duckdb", "csv", "parquet", "jsonl", "sqlite", "postgres"]


@dataclass(frozen=True)
class Store:
    kind: str
    source: DataSource

    @property
    def typed(self) -> bool:
        """Whether the store itself knows the types of its columns."""
        return self.kind not in ("csv", "jsonl")


@pytest.fixture
def clean_postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    url: str = request.getfixturevalue("postgres_url")
    yield url
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        for name in ("public", "other", "x"):
            connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
        connection.execute(sa.text("GRANT USAGE ON SCHEMA public TO PUBLIC"))


@pytest.fixture
def make_store(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Store]:
    def make(kind: str) -> Store:
        if kind == "duckdb":
            return Store(kind, DuckDBFile("src", tmp_path / "tables.duckdb", lock_wait_seconds=0.3))
        if kind == "sqlite":
            file = tmp_path / "tables.db"
            sqlite3.connect(file).close()
            return Store(kind, SqlDatabase("src", SecretStr(f"sqlite:///{file}")))
        if kind == "postgres":
            return Store(kind, SqlDatabase("src", SecretStr(request.getfixturevalue("clean_postgres_url"))))
        folder = tmp_path / "tables"
        folder.mkdir()
        return Store(kind, Folder("src", folder, write_format=kind, lock_wait_seconds=0.3))

    return make


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    if request.param == "duckdb":
        made = make_store("duckdb")
        duckdb.connect(str(made.source._path)).close()
        return made
    return make_store(request.param)
