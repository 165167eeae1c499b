"""DuckDB files and folders: locks, broken files, odd values, atomic replacement."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.data_sources.csv_files import infer
from kbeval_pipeline.resources.data_sources.duckdb_file import DuckDBFile
from kbeval_pipeline.resources.data_sources.folder import LOCK_FILE, Folder
from kbeval_pipeline.settings import TableName
from tests.resources.data_sources.conftest import Store

DOCS = TableName(data_source="src", table="docs")
ROWS = pl.DataFrame({"id": ["a"], "content": ["old"]})


def folder(path: Path, **files: str | bytes) -> Folder:
    for name, text in files.items():
        file = path / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Folder("src", path, lock_wait_seconds=0.2)


def read(path: Path, **files: str | bytes) -> pl.DataFrame:
    return folder(path, **files).read_table(DOCS)


# --- DuckDB ---------------------------------------------------------------------------------------


def test_duckdb_file_held_by_another_process(tmp_path: Path) -> None:
    file = tmp_path / "t.duckdb"
    source = DuckDBFile("src", file, lock_wait_seconds=0.2)
    source.replace_table(DOCS, ROWS)
    code = f"import duckdb; c = duckdb.connect({str(file)!r}); print('held', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        calls: list[Callable[[], Any]] = [
            lambda: source.read_table(DOCS),
            lambda: source.append(DOCS, ROWS),
            lambda: source.check_append(DOCS, ROWS),
        ]
        for call in calls:
            with pytest.raises(UserError, match=rf"t\.duckdb.*in use by another.*PID {holder.pid}"):
                call()
    finally:
        holder.communicate("\n")
    assert source.read_table(DOCS).height == 1


def test_duckdb_missing_and_broken_files(tmp_path: Path) -> None:
    source = DuckDBFile("src", tmp_path / "new" / "t.duckdb")
    with pytest.raises(UserError, match="there is no such file"):
        source.read_table(DOCS)
    source.check_append(DOCS, ROWS)
    assert not (tmp_path / "new").exists()
    source.append(DOCS, ROWS)
    assert source.read_table(DOCS).height == 1
    (tmp_path / "broken.duckdb").write_text("this is no database" * 1000)
    with pytest.raises(UserError, match=r"broken\.duckdb.*cannot be opened"):
        DuckDBFile("src", tmp_path / "broken.duckdb").tables()


def test_duckdb_query_sees_nothing_but_its_file(tmp_path: Path) -> None:
    source = DuckDBFile("src", tmp_path / "t.duckdb")
    source.replace_table(DOCS, ROWS)
    (tmp_path / "x.csv").write_text("a\n1\n")
    for sql in (
        f"SELECT * FROM read_csv('{tmp_path}/x.csv')",
        f"SELECT * FROM '{tmp_path}/x.csv'",
        f"COPY docs TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.db'",
        "SET enable_external_access = true",
        "INSTALL fts",
        "CREATE TABLE t AS SELECT 1",
    ):
        with pytest.raises(UserError):
            source.query(sql)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.duckdb", "x.csv"]


def test_duckdb_own_types(tmp_path: Path) -> None:
    file = tmp_path / "t.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE docs AS SELECT interval 3 day AS i, uuid() AS u, '{\"a\": 1}'::json AS j, "
            "'a'::enum('a', 'b') AS e, {'x': 1} AS s, [1, 2] AS l, 7::hugeint AS h, '101'::bit AS b"
        )
        connection.execute("CREATE TABLE strict (id INTEGER NOT NULL, n INTEGER DEFAULT 1)")
    source = DuckDBFile("src", file)
    row = source.read_table(DOCS).to_dicts()[0]
    assert (row["i"], row["j"], row["e"], row["s"]) == ("3 days", '{"a": 1}', "a", {"x": 1})
    assert (row["l"], row["h"], row["b"]) == ([1, 2], 7, "101")
    assert source.query("SELECT sum(h) AS n FROM docs").to_dicts() == [{"n": 7}]
    source.append(DOCS, source.read_table(DOCS).drop("i"))
    with pytest.raises(UserError, match='column "id" must be given'):
        source.append(TableName(data_source="src", table="strict"), pl.DataFrame({"n": [1]}))


def test_duckdb_failure_in_the_middle(tmp_path: Path) -> None:
    source = DuckDBFile("src", tmp_path / "t.duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE docs (id VARCHAR PRIMARY KEY, content VARCHAR)")
    source.append(DOCS, ROWS)
    with pytest.raises(UserError, match="cannot be written: Constraint Error"):
        source.append(DOCS, pl.DataFrame({"id": ["b", "a"], "content": ["new", "new"]}))
    assert source.read_table(DOCS)["id"].to_list() == ["a"]


# --- Folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2", None], [1, 2, None]),
        (["007", "12"], ["007", "12"]),
        (["12", "007"], ["12", "007"]),
        (["-01"], ["-01"]),
        (["+1"], ["+1"]),
        (["1.5", "2"], [1.5, 2.0]),
        (["0.50", "0.75"], [0.5, 0.75]),
        (["1.9", "1.10"], ["1.9", "1.10"]),
        (["01.5"], ["01.5"]),
        (["99999999999999999999"], ["99999999999999999999"]),
        (["12345678901234567", "1.5"], ["12345678901234567", "1.5"]),
        (["NaN", "1.0"], [float("nan"), 1.0]),
        (["NaN"], ["NaN"]),
        (["true", "false"], [True, False]),
        (["True"], ["True"]),
        (["1", "true"], ["1", "true"]),
        (["2024-13-01"], ["2024-13-01"]),
        (["1e5", "2"], [100000.0, 2.0]),
        ([" 1"], [" 1"]),
        (["1\n2"], ["1\n2"]),
        (["1\n"], ["1\n"]),
    ],
)
def test_csv_types_lose_nothing(texts: list[str | None], expected: list[Any]) -> None:
    got = infer(pl.Series("a", texts, dtype=pl.String)).to_list()
    assert got == pytest.approx(expected, nan_ok=True) if isinstance(expected[0], float) else got == expected
    assert [type(value) for value in got] == [type(value) for value in expected]


def test_csv_leading_zero_far_down(tmp_path: Path) -> None:
    lines = [*(str(n) for n in range(1, 60_000)), "007"]
    got = read(tmp_path, docs_dot_csv="id,x\n" + "".join(f"{line},1\n" for line in lines))
    assert got["id"].to_list() == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b\n1,5;2\n", [{"a": "1,5", "b": 2}]),
        ("a\tb\n1\t\n", [{"a": 1, "b": None}]),
        ('\ufeffa,b\r\nx,"y\r\nz"\r\n', [{"a": "x", "b": "y\r\nz"}]),
        ('a,b\n"",\n', [{"a": "", "b": None}]),
        ("a,b\n", []),
        ("a,b", []),
        (",b\n1,2\n", [{"column0": 1, "b": 2}]),
        ('"a,;x",A\n1,2\n', [{"a,;x": 1, "A": 2}]),
        ("a\n" + "x" * 3_000_000 + "\n", [{"a": "x" * 3_000_000}]),
    ],
)
def test_csv_dialects(tmp_path: Path, text: str, expected: list[dict[str, Any]]) -> None:
    assert read(tmp_path, docs_dot_csv=text).to_dicts() == expected


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        ("docs.csv", "a,b\n1,2\n3,4,5\n", "Line: 3"),
        ("docs.csv", "a,b\n1\n1,2\n", "Line: 2"),
        ("docs.csv", 'a\n"unclosed\n', "unterminated quote"),
        ("docs.csv", b"a\n\xff\xfe\n", "not UTF-8"),
        ("docs.csv", b"\xff\xfea\n", "not UTF-8"),
        ("docs.csv", "", "is empty"),
        ("docs.csv", "a,a\n1,2\n", '"a" twice'),
        ("docs.parquet", "this is not a Parquet file", "Parquet|PAR1"),
        ("docs.parquet", "", "Parquet"),
        ("docs.jsonl", '{"a": 1}\n{"a": \n', "line 2 is not valid JSON"),
        ("docs.jsonl", '{"a": 1}\n3\n', "line 2 is not an object"),
        ("docs.json", "[1]", "row 1 is not an object"),
        ("docs.json", '[{"a": 1},', "not valid JSON"),
        ("docs.json", b'[{"a": "\xff"}]', "not UTF-8"),
    ],
)
def test_broken_files(tmp_path: Path, file: str, content: str | bytes, cause: str) -> None:
    source = folder(tmp_path, **{file.replace(".", "_dot_"): content})
    with pytest.raises(UserError, match=f"{file} cannot be read: .*({cause})"):
        source.read_table(DOCS)


def test_json_of_mixed_types(tmp_path: Path) -> None:
    lines = ['{"id": 2}', '{"id": "02", "x": {"k": [1]}}', '{"id": 2.0, "n": 1}', '{"id": true}']
    got = read(tmp_path, docs_dot_jsonl="\n".join(lines))
    assert got["id"].to_list() == ["2", "02", "2", "true"]
    assert got["x"].to_list() == [None, '{"k": [1]}', None, None]
    assert got["n"].to_list() == [None, None, 1, None]


@pytest.mark.parametrize("stray", ["02", 2.5, True, None, {"a": 1}, 2**70])
def test_json_types_differ_between_batches(tmp_path: Path, stray: Any) -> None:
    values = [*range(10_000), stray, *range(10_000)]
    text = "\n".join(json.dumps({"id": value}) for value in values)
    got = read(tmp_path, docs_dot_jsonl=text)["id"]
    if stray is None or isinstance(stray, float):
        assert got.to_list() == values
    else:
        shown = json.dumps(stray) if isinstance(stray, dict | bool) else str(stray)
        assert got.to_list() == [*map(str, range(10_000)), shown, *map(str, range(10_000))]


def test_json_array_and_lines_in_one_suffix(tmp_path: Path) -> None:
    for text in ('[{"a": 1}, {"b": "x"}]', '\n {"a": 1}\n\n{"b": "x"}', '\ufeff[\n{"a": 1}, {"b": "x"}]'):
        assert read(tmp_path, docs_dot_json=text).to_dicts() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docs.csv", "id;content;n\r\n007;1.50;1", "id;content;n\r\n007;1.50;1\r\na;old;\r\n"),
        (
            "docs.jsonl",
            '{"id":"x","deep":{"k":1}}',
            '{"id":"x","deep":{"k":1}}\n{"id":"a","content":"old"}\n',
        ),
        ("docs.json", '[{"id": "x", "deep": {"k": 1}}]', None),
    ],
)
def test_append_keeps_what_was_there(tmp_path: Path, name: str, text: str, expected: str | None) -> None:
    source = folder(tmp_path, **{name.replace(".", "_dot_"): text})
    new = ROWS if name != "docs.csv" else ROWS.with_columns(content=pl.lit("old"))
    if name == "docs.csv":
        with pytest.raises(UserError, match='"content" is float'):
            source.append(DOCS, new)
        return
    if name == "docs.json":
        source.append(DOCS, new.select("id"))
        assert json.loads((tmp_path / name).read_text()) == [{"id": "x", "deep": {"k": 1}}, {"id": "a"}]
        return
    with pytest.raises(UserError, match='no column "content"'):
        source.append(DOCS, new)
    source.append(DOCS, new.select("id"))
    assert (tmp_path / name).read_text() == text + '\n{"id":"a"}\n'


def test_csv_append_byte_for_byte(tmp_path: Path) -> None:
    text = 'id;content;n\r\n007;"x;y";1'
    source = folder(tmp_path, docs_dot_csv=text)
    source.append(DOCS, ROWS)
    assert (tmp_path / "docs.csv").read_bytes().decode() == text + "\r\na;old;\r\n"


def test_formats_are_kept(tmp_path: Path) -> None:
    source = folder(tmp_path, docs_dot_CSV="id\n1\n", b_dot_json="[]")
    source.replace_table(DOCS, ROWS)
    source.replace_table(TableName(data_source="src", table="b"), ROWS)
    source.replace_table(TableName(data_source="src", table="c"), ROWS)
    assert sorted(os.listdir(tmp_path)) == [LOCK_FILE, "b.json", "c.parquet", "docs.CSV"]
    assert (tmp_path / "b.json").read_text() == '[{"id":"a","content":"old"}]'


def test_two_files_of_one_name(tmp_path: Path) -> None:
    source = folder(tmp_path, docs_dot_csv="id\n1\n", docs_dot_json="[]", other_dot_csv="id\n1\n")
    assert source.tables() == ["docs", "other"]
    for call in (lambda: source.read_table(DOCS), lambda: source.replace_table(DOCS, ROWS)):
        with pytest.raises(UserError, match=r"docs\.csv and docs\.json"):
            call()
    assert source.read_table(TableName(data_source="src", table="other")).height == 1


@pytest.mark.parametrize("name", ["../docs", "/etc/passwd", "..", ".hidden", "a\\b", "a\0b"])
def test_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path / "in", docs_dot_csv="id\n1\n") if (tmp_path / "in").mkdir() is None else None
    assert source is not None
    (tmp_path / "docs.csv").write_text("id\nsecret\n")
    for table in (
        TableName(data_source="src", table=name),
        TableName(data_source="src", schema_name=name, table="docs"),
    ):
        for call in (source.read_table, lambda t: source.replace_table(t, ROWS)):
            with pytest.raises(UserError, match="cannot be the name of a file"):
                call(table)


def test_missing_folder(tmp_path: Path) -> None:
    source = Folder("src", tmp_path / "none", write_format="csv")
    with pytest.raises(UserError, match="there is no folder"):
        source.read_table(DOCS)
    source.check_append(DOCS, ROWS)
    assert not (tmp_path / "none").exists()
    source.append(DOCS, ROWS)
    assert source.read_table(DOCS).height == 1


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("step", ["os.replace", "os.fsync", "serialiser"])
@pytest.mark.parametrize("method", ["replace_table", "append"])
def test_failed_write_leaves_the_old_file(
    make_store: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch, kind: str, step: str, method: str
) -> None:
    source = make_store(kind).source
    source.replace_table(DOCS, ROWS)

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("disk full")

    if step == "serialiser":
        name = {"csv": "write_csv", "parquet": "write_parquet", "jsonl": "write_ndjson"}[kind]
        monkeypatch.setattr(pl.DataFrame, name, fail)
    else:
        monkeypatch.setattr(step, fail)
    with pytest.raises(UserError, match="cannot be written: disk full"):
        getattr(source, method)(DOCS, ROWS)
    monkeypatch.undo()
    assert source.read_table(DOCS).to_dicts() == ROWS.to_dicts()
    assert len(os.listdir(source._path)) == 2  # the file and the lock


def test_folder_locked_by_another_process(tmp_path: Path) -> None:
    source = folder(tmp_path, docs_dot_csv="id\na\n")
    with (tmp_path / LOCK_FILE).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another program writes to"):
            source.append(DOCS, ROWS.select("id"))
    source.append(DOCS, ROWS.select("id"))
    assert source.read_table(DOCS).height == 2


def test_binary_needs_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["a"], "raw": [b"x"]})
    with pytest.raises(UserError, match=r'"raw".*use Parquet'):
        Folder("src", tmp_path, write_format="csv").replace_table(DOCS, frame)
    Folder("src", tmp_path).replace_table(DOCS, frame)
    assert Folder("src", tmp_path).read_table(DOCS).to_dicts() == frame.to_dicts()
