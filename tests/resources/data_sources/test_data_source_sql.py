"""SQL databases: atomic replacement, loose types, errors without passwords."""

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from polars.testing import assert_frame_equal
from pydantic import SecretStr

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.sql import SqlDatabase
from kbeval_pipeline.settings import TableName
from tests.postgres import PASSWORD
from tests.resources.data_sources.conftest import Store

DOCS = TableName(data_source="src", table="docs")
OLD = pl.DataFrame({"id": ["a", "b"], "content": ["old", "old"]})
SQL_KINDS = ["sqlite", "postgres"]


def execute(store: Store, *statements: str) -> None:
    assert isinstance(store.source, SqlDatabase)
    with store.source._database.begin(write=True) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.fixture(params=SQL_KINDS)
def database(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    return make_store(request.param)


@pytest.mark.parametrize("shape", ["same columns", "other columns"])
def test_failing_row_leaves_the_old_table(
    database: Store, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    database.source.replace_table(DOCS, OLD)
    execute(database, "CREATE VIEW v AS SELECT count(*) AS n FROM docs")
    new = pl.DataFrame({"id": [str(n) for n in range(25_000)], "content": ["new"] * 25_000})
    if shape == "other columns":
        new = new.with_columns(extra=1)
    calls = []
    whole = sa.Connection.execute

    def fail_in_third_batch(self: sa.Connection, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            calls.append(args)
            if len(calls) == 3:
                raise sa.exc.OperationalError("INSERT", {}, Exception("disk full"))
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(sa.Connection, "execute", fail_in_third_batch)
    with pytest.raises(UserError, match="disk full"):
        database.source.replace_table(DOCS, new)
    monkeypatch.undo()
    assert len(calls) == 3
    assert_frame_equal(database.source.read_table(DOCS), OLD)
    assert database.source.tables() == ["docs", "v"]


def test_refused_row_leaves_the_old_table(database: Store) -> None:
    execute(database, "CREATE TABLE docs (id TEXT PRIMARY KEY, content TEXT)")
    database.source.append(DOCS, OLD)
    twice = pl.DataFrame({"id": ["c", "c"], "content": ["x", "x"]})
    for call in (database.source.append, database.source.replace_table):
        with pytest.raises(UserError, match=r"(?i)unique"):
            call(DOCS, twice)
        assert_frame_equal(database.source.read_table(DOCS), OLD)


def test_same_columns_keep_indexes_and_views(database: Store) -> None:
    execute(
        database,
        "CREATE TABLE docs (id TEXT PRIMARY KEY, content TEXT)",
        "CREATE VIEW v AS SELECT id FROM docs",
    )
    database.source.replace_table(DOCS, OLD)
    database.source.replace_table(DOCS, OLD.select("content", "id").head(1))
    assert database.source.read_table(TableName(data_source="src", table="v"))["id"].to_list() == ["a"]
    with pytest.raises(UserError):
        database.source.append(DOCS, OLD)


@pytest.mark.parametrize("failing", [None, 1, 2])
def test_databases_whose_ddl_is_final(
    make_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch, failing: int | None
) -> None:
    store = make_store("sqlite")
    assert isinstance(store.source, SqlDatabase)
    store.source.replace_table(DOCS, OLD)
    store.source._transactional_ddl = False
    renames = []
    drop = sa.Table.drop

    def final_drop(self: sa.Table, connection: sa.Connection, checkfirst: bool = False) -> None:
        drop(self, connection, checkfirst=checkfirst)
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("BEGIN")

    def rename(connection: sa.Connection, old: sa.Table, new: str) -> None:
        renames.append(new)
        if len(renames) == failing:
            raise sa.exc.OperationalError("RENAME", {}, Exception("no"))
        connection.exec_driver_sql(f'ALTER TABLE "{old.name}" RENAME TO "{new}"')
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("BEGIN")

    monkeypatch.setattr("kbeval_pipeline.resources.data_sources.sql.rename", rename)
    monkeypatch.setattr(sa.Table, "drop", final_drop)
    new = pl.DataFrame({"id": [1]})
    if failing is None:
        store.source.replace_table(DOCS, new)
    else:
        with pytest.raises(UserError, match="no"):
            store.source.replace_table(DOCS, new)
    assert_frame_equal(store.source.read_table(DOCS), new if failing is None else OLD)
    assert store.source.tables() == ["docs"]


def test_sqlite_values_of_any_type(make_store: Callable[[str], Store]) -> None:
    store = make_store("sqlite")
    execute(
        store,
        "CREATE TABLE docs (id, n INTEGER, f REAL, day DATE, at DATETIME, flag BOOLEAN, odd DATE, "
        "none INTEGER)",
        "INSERT INTO docs VALUES (2, 1, 1, '2024-01-02', '2024-01-02 03:04:05', 1, 'soon', NULL)",
        "INSERT INTO docs VALUES ('a', 2, 2.5, NULL, NULL, 0, 7, NULL)",
        "INSERT INTO docs VALUES (2.0, 'x', NULL, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO docs VALUES ('02', 2.5, NULL, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO docs VALUES (x'6162', NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    got = store.source.read_table(DOCS)
    assert got["id"].to_list() == ["2", "a", "2", "02", "ab"]
    assert got["n"].to_list() == ["1", "2", "x", "2.5", None]
    assert got["f"].to_list() == [1.0, 2.5, None, None, None]
    assert got["odd"].to_list() == ["soon", "7", None, None, None]
    assert [got[name].dtype for name in ("day", "at", "flag", "none")] == [
        pl.Date,
        pl.Datetime("us"),
        pl.Boolean,
        pl.Int64,
    ]
    assert store.source.query("SELECT id FROM docs")["id"].to_list() == ["2", "a", "2", "02", "ab"]


def test_sqlite_types_differ_between_batches(make_store: Callable[[str], Store]) -> None:
    store = make_store("sqlite")
    execute(
        store,
        "CREATE TABLE docs (id)",
        "INSERT INTO docs WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10000) "
        "SELECT n FROM r",
        "INSERT INTO docs VALUES ('007'), (2.0)",
    )
    assert store.source.read_table(DOCS)["id"].to_list() == [*map(str, range(1, 10_001)), "007", "2"]


def test_sqlite_missing_file_is_not_made_by_reading(tmp_path: Path) -> None:
    source = SqlDatabase("src", SecretStr(f"sqlite:///{tmp_path}/new/t.db"))
    with pytest.raises(UserError, match="there is no such file"):
        source.read_table(DOCS)
    source.check_append(DOCS, OLD)
    assert not (tmp_path / "new").exists()
    source.append(DOCS, OLD)
    assert source.read_table(DOCS).height == 2
    (tmp_path / "text.db").write_text("this is no database at all, but a text" * 100)
    with pytest.raises(UserError, match="not a database"):
        SqlDatabase("src", SecretStr(f"sqlite:///{tmp_path}/text.db")).tables()


def test_sqlite_locked(
    make_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbeval_pipeline.resources.data_sources.sql_connection.CONNECT_SECONDS", 0.1)
    store = make_store("sqlite")
    store.source.replace_table(DOCS, OLD)
    holder = sqlite3.connect(tmp_path / "tables.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert store.source.read_table(DOCS).height == 2
    with pytest.raises(UserError, match="database is locked"):
        store.source.append(DOCS, OLD)
    holder.close()


def test_postgres_own_types(make_store: Callable[[str], Store]) -> None:
    store = make_store("postgres")
    execute(
        store,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE docs (id uuid, meta jsonb, tags text[], price numeric(10, 2), mood mood, "
        "serial serial, at timestamptz, raw bytea, span interval)",
        "INSERT INTO docs VALUES ('6f1c2d3e-0000-4000-8000-000000000001', '{\"a\": [1, \"ü\"]}', "
        "'{x,y}', 1.50, 'good', DEFAULT, '2024-01-02 03:00+09', 'ab', '1 day')",
    )
    row = store.source.read_table(DOCS).to_dicts()[0]
    assert row["id"] == "6f1c2d3e-0000-4000-8000-000000000001"
    assert (row["meta"], row["tags"]) == ('{"a": [1, "ü"]}', '["x", "y"]')
    assert (str(row["price"]), row["mood"], row["raw"]) == ("1.50", "good", b"ab")
    assert row["at"].isoformat() == "2024-01-01T18:00:00+00:00"
    store.source.append(
        DOCS, pl.DataFrame({"id": [row["id"]], "meta": ["[1]"], "mood": ["bad"], "price": [2]})
    )
    again = store.source.read_table(DOCS).to_dicts()[1]
    assert (again["id"], again["meta"], again["mood"]) == (row["id"], "[1]", "bad")
    with pytest.raises(UserError, match="invalid input value for enum"):
        store.source.append(DOCS, pl.DataFrame({"mood": ["so so"]}))


def test_postgres_rights_are_checked_beforehand(make_store: Callable[[str], Store]) -> None:
    store = make_store("postgres")
    assert isinstance(store.source, SqlDatabase)
    store.source.replace_table(DOCS, OLD)
    execute(
        store,
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'x'",
        "GRANT SELECT ON docs TO reader",
    )
    url = store.source._database.url.set(username="reader")
    try:
        reader = SqlDatabase("src", SecretStr(url.render_as_string(hide_password=False)))
        assert reader.read_table(DOCS).height == 2
        for table in (DOCS, TableName(data_source="src", schema_name="other", table="t")):
            with pytest.raises(UserError, match="permission denied"):
                reader.check_append(table, OLD)
    finally:
        execute(store, "DROP OWNED BY reader", "DROP ROLE reader")


def test_postgres_query_is_read_only(make_store: Callable[[str], Store]) -> None:
    store = make_store("postgres")
    store.source.replace_table(DOCS, OLD)
    execute(store, "CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS 'DELETE FROM docs RETURNING 1'")
    with pytest.raises(UserError, match="read-only transaction"):
        store.source.query("SELECT wipe()")
    assert store.source.read_table(DOCS).height == 2
    execute(store, "DROP FUNCTION wipe()")


def test_time_limit(make_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sql", "duckdb_engine"):
        monkeypatch.setattr(f"kbeval_pipeline.resources.data_sources.{module}.QUERY_SECONDS", 0.2)
    for kind, slow in {
        "postgres": "SELECT pg_sleep(20)",
        "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "csv": "SELECT count(*) FROM range(100000000) a(x), range(100000000) b(y) WHERE x + y = 7",
    }.items():
        with pytest.raises(UserError, match=r"longer than 0\.2 s"):
            make_store(kind).source.query(slow)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:{}@localhost:1/db",
        "postgresql+psycopg://me:{}@no-such-host.invalid/db",
        "postgres://me@localhost:1/db?password={}",
        "mysql+pymysql://me:{}@localhost:1/db",
        "nosuchdb://me:{}@localhost/db",
        "postgresql://me:{}@localhost:port/db",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3D{}",
        "{}",
        "",
    ],
)
def test_password_is_in_no_error(url: str) -> None:
    with pytest.raises(UserError) as caught:
        SqlDatabase("src", SecretStr(url.format("pg-s3cret%2Fword"))).tables()
    shown = str(caught.value) + repr(caught.value)
    assert 'data source "src"' in shown
    assert "s3cret" not in shown
    assert len(shown) < 1500


def test_drivers_that_repeat_the_password(make_store: Callable[[str], Store]) -> None:
    source = make_store("postgres").source
    assert isinstance(source, SqlDatabase)
    assert PASSWORD not in repr(source._database.url)
    for text in (PASSWORD, "pg-s3cret%2Fword", "x password=hunter2 y"):
        scrubbed = source._database.scrub(f"cannot connect with {text}")
        assert "s3cret" not in scrubbed
        assert "hunter2" not in scrubbed


def test_missing_driver_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r'pip install "kbeval-pipeline\[postgres\]"'):
        SqlDatabase("src", SecretStr("postgresql://localhost/db")).tables()
    with pytest.raises(UserError, match='pip install "snowflake-sqlalchemy"'):
        SqlDatabase("src", SecretStr("snowflake://localhost/db")).tables()
    with pytest.raises(UserError, match='pip install "mysqlclient"'):
        SqlDatabase("src", SecretStr("mysql://localhost/db")).tables()


def test_memory_databases_are_refused() -> None:
    for url in ("sqlite://", "sqlite:///:memory:"):
        with pytest.raises(UserError, match="names no SQLite file"):
            SqlDatabase("src", SecretStr(url))
