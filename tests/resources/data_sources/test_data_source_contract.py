"""What every data source must do, whatever its kind."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.settings import TableName
from tests.resources.data_sources.conftest import Store

DOCS = TableName(data_source="src", table="docs")
AWKWARD = [
    "we\"ird 'name'; DROP TABLE docs; --",
    "select",
    "100% :sure (really) [1] {c0} %s",
    "naïve-表.Tab",
]


def typed_rows() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": ["007", "8", "x", "ü😀"],
            "text": ["He said \"no\",\nthen; 'yes' \\ 100%", "", None, "  spaces\tand tabs "],
            "number": [1, -(2**60), None, 3],
            "score": [0.1, 1e-20, None, 3.0],
            "flag": [True, False, None, True],
            "day": [date(2024, 2, 29), None, date(1970, 1, 1), date(2030, 12, 31)],
            "at": [datetime(2024, 1, 2, 3, 4, 5, 678901), None, datetime(1970, 1, 1), datetime(2030, 1, 1)],
        },
        schema_overrides={"at": pl.Datetime("us")},
    )


def rows(*ids: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": list(ids), "content": [f"text {i}" for i in ids]})


def test_types_survive(store: Store) -> None:
    frame = typed_rows()
    store.source.replace_table(DOCS, frame)
    expected = frame
    if store.kind == "jsonl":
        expected = frame.with_columns(
            pl.col("day").cast(pl.String), pl.col("at").cast(pl.String).str.replace(r"\.000000$", "")
        )
    assert_frame_equal(store.source.read_table(DOCS), expected)


@pytest.mark.parametrize("ids", [["007", "12"], [7, 12], ["a", "b"]], ids=["zeros", "integers", "words"])
def test_ids_keep_their_type(store: Store, ids: list[Any]) -> None:
    store.source.replace_table(DOCS, rows(*ids))
    assert store.source.read_table(DOCS)["id"].to_list() == ids


def test_moments_are_utc(store: Store) -> None:
    frame = pl.DataFrame({"at": [datetime(2024, 1, 2, 3, tzinfo=UTC)]}).with_columns(
        pl.col("at").dt.convert_time_zone("Asia/Tokyo")
    )
    store.source.replace_table(DOCS, frame)
    got = store.source.read_table(DOCS)["at"]
    if store.kind == "sqlite":  # it has no time zones
        assert got[0] == datetime(2024, 1, 2, 3)
    elif store.kind == "jsonl":
        assert got[0] == "2024-01-02T03:00:00+00:00"
    else:
        assert got.dtype == pl.Datetime("us", "UTC")
        assert got[0] == datetime(2024, 1, 2, 3, tzinfo=UTC)


def test_types_of_polars_only(store: Store) -> None:
    frame = pl.DataFrame(
        {
            "category": pl.Series(["a", "b"], dtype=pl.Categorical),
            "nothing": pl.Series([None, None], dtype=pl.Null),
            "small": pl.Series([1, 2], dtype=pl.UInt8),
            "exact": [Decimal("1.10"), Decimal("2.25")],
        }
    )
    store.source.replace_table(DOCS, frame)
    got = store.source.read_table(DOCS)
    assert got["category"].to_list() == ["a", "b"]
    assert got["nothing"].to_list() == [None, None]
    assert got["nothing"].dtype == pl.String
    assert got["small"].to_list() == [1, 2]
    assert [Decimal(str(value)) for value in got["exact"]] == [Decimal("1.10"), Decimal("2.25")]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names(store: Store, name: str) -> None:
    table = TableName(data_source="src", table=name)
    frame = pl.DataFrame({name: ["v"], "other": [1]})
    store.source.replace_table(DOCS, rows("kept"))
    store.source.replace_table(table, frame)
    store.source.replace_table(table, frame.select("other", name))
    store.source.append(table, frame)
    store.source.replace_table(table, frame.rename({"other": "new"}))
    store.source.check_append(table, frame.select(name))
    store.source.append(table, frame.select(name))
    got = store.source.read_table(table)
    assert got.to_dicts() == [{name: "v", "new": 1}, {name: "v", "new": None}]
    assert sorted(store.source.tables()) == sorted(["docs", name])


def test_schemas(store: Store) -> None:
    table = TableName(data_source="src", schema_name="other", table="docs")
    if store.kind == "sqlite":
        with pytest.raises(UserError, match="SQLite has no schemas"):
            store.source.replace_table(table, rows("s"))
        with pytest.raises(UserError, match=r'no table "other\.docs"'):
            store.source.read_table(table)
        return
    store.source.replace_table(DOCS, rows("d"))
    store.source.replace_table(table, rows("s"))
    store.source.append(TableName(data_source="src", schema_name="x", table="t"), rows("t"))
    assert store.source.tables() == ["docs", "other.docs", "x.t"]
    assert store.source.read_table(DOCS)["id"].to_list() == ["d"]
    assert store.source.read_table(table)["id"].to_list() == ["s"]
    assert store.source.query("SELECT id FROM other.docs").to_dicts() == [{"id": "s"}]


def test_replaced_whole(store: Store) -> None:
    store.source.replace_table(DOCS, rows("a", "b"))
    store.source.replace_table(DOCS, rows("c"))
    assert store.source.read_table(DOCS)["id"].to_list() == ["c"]
    store.source.replace_table(DOCS, pl.DataFrame({"doc_id": [1], "z": ["new"]}))
    assert store.source.read_table(DOCS).to_dicts() == [{"doc_id": 1, "z": "new"}]
    assert store.source.tables() == ["docs"]


def test_empty_frames_keep_their_columns(store: Store) -> None:
    frame = typed_rows().clear()
    store.source.replace_table(DOCS, frame)
    got = store.source.read_table(DOCS)
    assert got.height == 0
    if store.typed:
        assert_frame_equal(got, frame)
    elif store.kind == "csv":
        assert got.columns == frame.columns
    store.source.append(DOCS, typed_rows())
    assert store.source.read_table(DOCS).height == 4


def test_append(store: Store) -> None:
    store.source.check_append(DOCS, rows("a").clear())
    store.source.append(DOCS, rows("a"))
    store.source.append(DOCS, rows("b").select("content", "id"))
    store.source.check_append(DOCS, rows("c").select("id"))
    store.source.append(DOCS, rows("c").select("id"))
    got = store.source.read_table(DOCS)
    assert got["id"].to_list() == ["a", "b", "c"]
    assert got["content"].to_list() == ["text a", "text b", None]


def test_check_append_leaves_no_trace(store: Store) -> None:
    table = TableName(data_source="src", schema_name=None if store.kind == "sqlite" else "other", table="new")
    store.source.check_append(table, rows("a"))
    assert store.source.tables() == []
    store.source.append(DOCS, rows("a"))
    store.source.check_append(DOCS, rows("b"))
    assert store.source.read_table(DOCS).height == 1


def test_append_keeps_text_that_looks_like_numbers(store: Store) -> None:
    for ids in (["1", "2"], ["007"], ["3"]) if store.kind != "csv" else (["007"], ["3"], ["4"]):
        store.source.append(DOCS, rows(*ids))
    assert set(store.source.read_table(DOCS)["id"].to_list()) >= {"007", "3"}


def test_same_frame_can_always_be_appended_again(store: Store) -> None:
    frame = typed_rows().with_columns(digits=pl.lit("12"), empty=pl.lit(None, dtype=pl.Float64))
    store.source.append(DOCS, frame)
    store.source.append(DOCS, frame)
    store.source.append(DOCS, frame.with_columns(empty=pl.lit(0.5)))
    assert store.source.read_table(DOCS).height == 12


@pytest.mark.parametrize("method", ["append", "check_append"])
def test_unfitting_columns_are_refused(store: Store, method: str) -> None:
    store.source.replace_table(DOCS, pl.DataFrame({"id": [1], "content": ["x"]}))
    call = getattr(store.source, method)
    with pytest.raises(UserError, match=r'no column "extra" \(float\).*id integer, content text'):
        call(DOCS, pl.DataFrame({"id": [1], "extra": [0.5]}))
    with pytest.raises(UserError, match='column "id" is integer in it, but text here'):
        call(DOCS, pl.DataFrame({"id": ["x"], "content": ["x"]}))
    assert store.source.read_table(DOCS).to_dicts() == [{"id": 1, "content": "x"}]


def test_missing_table_names_the_nearest(store: Store) -> None:
    store.source.replace_table(DOCS, rows("a"))
    with pytest.raises(UserError, match=r'data source "src" has no table "dcos", did you mean "docs"'):
        store.source.read_table(TableName(data_source="src", table="dcos"))


def test_query(store: Store) -> None:
    store.source.replace_table(DOCS, rows("a", "b", "c"))
    got = store.source.query(
        "WITH c AS (SELECT id FROM docs WHERE content LIKE 'text%') "
        "SELECT id AS \"%s :x\", ' :a 10:30 % ' AS text FROM c WHERE id <> 'b' ORDER BY id DESC"
    )
    assert got.to_dicts() == [
        {"%s :x": "c", "text": " :a 10:30 % "},
        {"%s :x": "a", "text": " :a 10:30 % "},
    ]
    assert store.source.query("SELECT id, content FROM docs WHERE 1 = 0").columns == ["id", "content"]


def test_query_errors_are_short(store: Store) -> None:
    store.source.replace_table(DOCS, rows("a"))
    with pytest.raises(UserError, match="nonsense") as caught:
        store.source.query("SELECT nonsense FROM docs")
    assert len(str(caught.value)) < 400
    with pytest.raises(UserError, match="more than one column named id"):
        store.source.query("SELECT a.id, b.id FROM docs a JOIN docs b ON a.id = b.id")


def test_queries_cannot_write(store: Store) -> None:
    """Even a statement that got past the check, where the source is a database."""
    store.source.replace_table(DOCS, rows("a"))
    for sql in ("DELETE FROM docs", "SELECT 1; DROP TABLE docs", "DROP TABLE docs"):
        try:
            store.source.query(sql)
        except UserError:
            continue
        assert store.kind == "duckdb", "refused or read-only"
    assert store.source.read_table(DOCS).height == 1


def test_many_rows(store: Store) -> None:
    frame = pl.DataFrame({"id": range(12_000)}).with_columns(
        content=pl.lit("text ") + pl.col("id").cast(pl.String)
    )
    store.source.replace_table(DOCS, frame)
    assert_frame_equal(store.source.read_table(DOCS).sort("id"), frame)


def test_nothing_else_is_left(store: Store, tmp_path: Path) -> None:
    store.source.replace_table(DOCS, rows("a"))
    store.source.append(DOCS, rows("b"))
    assert not list(tmp_path.rglob("*.tmp"))
    assert store.source.tables() == ["docs"]
