"""SELECTs over one or several data sources, and what is refused."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pydantic import SecretStr

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import DuckDBSource, FolderSource, Project, SqlSource
from kbeval_pipeline.resources.data_sources import DataSources
from kbeval_pipeline.settings import TableName


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> DataSources:
    tmp_path = tmp_path_factory.mktemp("federation")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "docs.csv").write_text("id,content\n007,from a file\n8,another\n")
    made = DataSources(
        {
            "files": FolderSource(type="folder", path=tmp_path / "files"),
            "duck": DuckDBSource(type="duckdb", path=tmp_path / "t.duckdb"),
            "lite": SqlSource(type="sql", url=SecretStr(f"sqlite:///{tmp_path}/t.db")),
        }
    )
    for name in ("duck", "lite"):
        frame = pl.DataFrame({"id": ["007", "x"], "content": [f"from {name}", "only here"], "lang": "en"})
        made.replace_table(TableName(data_source=name, table="docs"), frame)
    made.replace_table(
        TableName(data_source="duck", schema_name="meta", table="tags"),
        pl.DataFrame({"id": ["007"], "tag": ["t"]}),
    )
    return made


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT content FROM files.docs WHERE id = '007'", ["from a file"]),
        ("select files.docs.content from files.docs order by files.docs.id desc limit 1", ["another"]),
        ("SELECT content FROM duck.docs d WHERE d.id = '007'", ["from duck"]),
        ("SELECT duck.docs.content FROM duck.docs WHERE duck.docs.id = '007'", ["from duck"]),
        ("SELECT duck.meta.tags.tag FROM duck.meta.tags", ["t"]),
        ('SELECT "tag" FROM "duck"."meta"."tags"', ["t"]),
        ("SELECT d.tag FROM duck.docs JOIN duck.meta.tags AS d ON d.id = docs.id", ["t"]),
        ("SELECT content FROM lite.docs WHERE id GLOB '0*'", ["from lite"]),
        ("SELECT [content] FROM [lite].[docs] WHERE id = '007'", ["from lite"]),
        ("SELECT lite.docs.content FROM lite.docs WHERE id = '007' AND content LIKE '%lite'", ["from lite"]),
        ("SELECT l.content FROM files.docs f JOIN lite.docs l USING (id)", ["from lite"]),
        (
            "SELECT files.docs.content || duck.docs.content FROM files.docs, duck.docs "
            "WHERE files.docs.id = duck.docs.id",
            ["from a filefrom duck"],
        ),
        ("SELECT docs.content FROM files.docs JOIN duck.meta.tags ON docs.id = tags.id", ["from a file"]),
        (
            "WITH docs AS (SELECT * FROM duck.docs), more AS (SELECT id FROM docs) "
            "SELECT content FROM docs WHERE id IN (SELECT id FROM more) "
            "AND id IN (SELECT id FROM files.docs)",
            ["from duck"],
        ),
        (
            "SELECT content FROM duck.docs WHERE id = 'x' UNION SELECT content FROM lite.docs WHERE id = 'x'",
            ["only here"],
        ),
        ("SELECT (SELECT max(content) FROM lite.docs) AS m FROM files.docs LIMIT 1", ["only here"]),
        ("SELECT x FROM duck.docs AS t(x, y, z) WHERE x IN (SELECT id FROM files.docs)", ["007"]),
        ("(SELECT 'a' AS content)", ["a"]),
        ("FROM files.docs SELECT content LIMIT 1", ["from a file"]),
        ("-- why\n/* not */ SELECT content FROM files.docs LIMIT 1;", ["from a file"]),
        ("SELECT count(*) FROM generate_series(1, 3)", [3]),
        ("SELECT f.id FROM FILES_ALIAS f", None),
    ],
)
def test_select(sources: DataSources, sql: str, expected: list[object] | None) -> None:
    if expected is None:
        with pytest.raises(UserError, match="lacks its data source"):
            sources.query(sql)
        return
    assert sources.query(sql).to_series(0).to_list() == expected


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM duck.docs", "starts with DELETE"),
        ("DROP TABLE duck.docs", "starts with DROP"),
        ("INSERT INTO duck.docs SELECT * FROM files.docs", "starts with INSERT"),
        ("/* SELECT */ UPDATE duck.docs SET id = 1", "starts with UPDATE"),
        ("COPY (SELECT 1) TO '/tmp/x'", "starts with COPY"),
        ("ATTACH '/tmp/x.db'", "starts with ATTACH"),
        ("INSTALL httpfs", "starts with INSTALL"),
        ("SET memory_limit = '1TB'", "starts with SET"),
        ("PRAGMA database_list", "starts with PRAGMA"),
        ("EXPLAIN ANALYZE DELETE FROM duck.docs", "starts with EXPLAIN"),
        ("CREATE TABLE duck.x AS SELECT 1", "starts with CREATE"),
        ("SELECT 1; DROP TABLE duck.docs", "found 2 statements"),
        ("WITH x AS (SELECT 1) DELETE FROM duck.docs", "is a DELETE"),
        ("WITH x AS (DELETE FROM duck.docs RETURNING *) SELECT * FROM x", "holds a DELETE"),
        ("WITH x AS (INSERT INTO duck.docs SELECT 1 RETURNING *) SELECT * FROM x", "holds an INSERT"),
        ("SELECT * INTO duck.x FROM duck.docs", "INTO makes a table"),
        ("", "is empty"),
        (" -- nothing\n", "is empty"),
        ("SELEC 1", "starts with SELEC"),
        ("SELECT FROM WHERE", "cannot be parsed"),
        ("SELECT * FROM docs", '"docs" lacks its data source.*known: duck, files, lite'),
        ("SELECT * FROM '/etc/passwd'", "lacks its data source"),
        ("SELECT * FROM file.docs", 'unknown data source "file", did you mean "files"'),
        ("SELECT * FROM files.dcos", 'has no table "dcos", did you mean "docs"'),
        ("SELECT * FROM files.a.b.c", "too many parts"),
        ("SELECT * FROM read_csv('/etc/passwd')", "read_csv reads from outside"),
        ("SELECT * FROM read_text('/etc/passwd'), duck.docs", "read_text reads from outside"),
        ("SELECT * FROM duck.docs, glob('/etc/*')", "glob reads from outside"),
        ("SELECT * FROM parquet_scan('x'), lite.docs", "reads from outside"),
        ("SELECT * FROM main.read_json_auto('x')", "reads from outside"),
        ("SELECT * FROM query('SELECT 1')", "query reads from outside"),
        ("SELECT (SELECT max(content) FROM read_blob('/etc/passwd'))", "reads from outside"),
        ("SELECT pg_read_file('/etc/passwd') FROM lite.docs", "pg_read_file reads from outside"),
        ("SELECT load_extension('x') FROM lite.docs", "load_extension reads from outside"),
        ("SELECT nonsense FROM files.docs, duck.docs", "nonsense"),
    ],
)
def test_refused(sources: DataSources, sql: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sources.query(sql)
    assert sources.query("SELECT count(*) AS n FROM duck.docs").to_dicts() == [{"n": 2}]


def test_unknown_data_source(sources: DataSources) -> None:
    with pytest.raises(UserError, match='unknown data source "fiels", did you mean "files"'):
        sources.get("fiels")
    with pytest.raises(UserError, match="unknown data source"):
        sources.append(TableName(data_source="nope", table="t"), pl.DataFrame({"a": [1]}))


def test_postgres_dialect(clean_postgres_url: str, tmp_path: Path) -> None:
    project = Project.model_validate(
        {
            "data_sources": {
                "pg": {"type": "sql", "url": clean_postgres_url},
                "files": {"type": "folder", "path": str(tmp_path)},
            }
        }
    )
    sources = DataSources.from_project(project)
    frame = pl.DataFrame({"id": [1, 2], "content": ["ein Text", "zwei"]})
    for name in ("pg", "files"):
        sources.replace_table(TableName(data_source=name, table="docs"), frame)
    got = sources.query(
        "SELECT DISTINCT ON (id) id::text AS id, content ~* 'TEXT$' AS hit, "
        "to_char(timestamp '2024-01-02', 'YYYY') AS year FROM pg.docs WHERE content ILIKE '%t%'"
    )
    assert got.to_dicts() == [{"id": "1", "hit": True, "year": "2024"}]
    joined = sources.query(
        "SELECT f.content FROM pg.public.docs p JOIN files.docs f ON p.id = f.id ORDER BY 1"
    )
    assert joined["content"].to_list() == ["ein Text", "zwei"]
    with pytest.raises(UserError, match="pg_read_file reads from outside"):
        sources.query("SELECT pg_read_file('/etc/passwd') AS x FROM pg.docs")


def test_guarded_even_past_the_check(sources: DataSources, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB itself sees no file, should a function that reads one be unknown to the check."""
    monkeypatch.setattr("kbeval_pipeline.resources.data_sources.selects._READS_FILES", re.compile("(?!)x"))
    for sql in (
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_text('/etc/hostname'), duck.docs, files.docs",
        "SELECT * FROM read_text('/etc/hostname'), duck.docs",
    ):
        with pytest.raises(UserError, match="file system operations are disabled"):
            sources.query(sql)


def test_import_is_light() -> None:
    code = (
        "import sys, kbeval_pipeline.resources.data_sources; "
        "print([m for m in ('sqlalchemy', 'sqlglot', 'dagster', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_append_is_passed_on(sources: DataSources) -> None:
    check: Callable[[TableName, pl.DataFrame], None] = sources.check_append
    with pytest.raises(UserError, match='no column "nope"'):
        check(TableName(data_source="duck", table="docs"), pl.DataFrame({"nope": [1]}))
