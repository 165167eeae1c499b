"""The warehouse: history, latest rows, retried steps, crashes and locks."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.table_schema import Column, Table

TABLE = Table(
    "numbers",
    "Numbers.",
    (
        Column("n", pl.Int64(), "A number."),
        Column("text", pl.String(), "A text.", nullable=True),
    ),
    key=("n",),
)
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(database=str(tmp_path / "data" / "w.duckdb"), lock_wait_seconds=0.3)


def write(warehouse: Warehouse, run: str, *numbers: int, evaluation: str = "e", minutes: int = 0) -> None:
    frame = TABLE.frame([{"n": n, "text": str(n)} for n in numbers])
    when = START + timedelta(minutes=minutes)
    warehouse.write(TABLE, frame, evaluation=evaluation, run_id=run, created_at=when)


def read(warehouse: Warehouse, run: str | None = None, evaluation: str = "e") -> list[int]:
    return warehouse.read(TABLE, evaluation=evaluation, run_id=run)["n"].to_list()


def test_history_is_kept_and_the_latest_run_is_read(warehouse: Warehouse) -> None:
    write(warehouse, "r1", 3, 1, 2)
    write(warehouse, "r2", 5, minutes=1)
    write(warehouse, "r3", 9, evaluation="other", minutes=2)
    assert read(warehouse) == [5]
    assert read(warehouse, "r1") == [3, 1, 2]
    assert read(warehouse, "unknown") == [5]
    assert warehouse.query("SELECT count(*) AS n FROM numbers")["n"][0] == 5
    latest = warehouse.query("SELECT evaluation, n FROM numbers_latest ORDER BY evaluation")
    assert latest.rows() == [("e", 5), ("other", 9)]


def test_an_empty_frame_is_the_latest(warehouse: Warehouse) -> None:
    write(warehouse, "r1", 1)
    write(warehouse, "r2", minutes=1)
    assert read(warehouse) == []
    assert warehouse.query("SELECT * FROM numbers_latest").is_empty()


def test_a_retried_step_replaces_its_own_rows(warehouse: Warehouse) -> None:
    write(warehouse, "r0", 0)
    write(warehouse, "r1", 1, 2, minutes=1)
    write(warehouse, "r1", 3, minutes=2)
    assert read(warehouse) == [3]
    assert warehouse.query("SELECT n FROM numbers ORDER BY n")["n"].to_list() == [0, 3]


def test_a_failure_between_delete_and_insert_changes_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(warehouse, "r1", 1, 2)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(duckdb.DuckDBPyConnection, "register", fail)
    with pytest.raises(KeyboardInterrupt):
        write(warehouse, "r1", 3)
    monkeypatch.undo()
    assert read(warehouse) == [1, 2]
    write(warehouse, "r1", 4)
    assert read(warehouse) == [4]


def test_nothing_written_yet_says_what_to_do(warehouse: Warehouse) -> None:
    with pytest.raises(UserError, match='numbers has no rows of the evaluation "e" yet; materialize'):
        read(warehouse)
    write(warehouse, "r1", 1, evaluation="other")
    with pytest.raises(UserError, match="materialize numbers"):
        read(warehouse)
    assert warehouse.query("SELECT * FROM nowhere").is_empty()


def test_a_new_column_is_added_to_an_old_table(warehouse: Warehouse) -> None:
    write(warehouse, "r1", 1)
    wider = Table("numbers", "", (*TABLE.columns, Column("real", pl.Float64(), "New.", nullable=True)))
    frame = wider.frame([{"n": 2, "text": "x", "real": 0.5}])
    warehouse.write(wider, frame, evaluation="e", run_id="r2", created_at=START + timedelta(minutes=1))
    assert warehouse.read(wider, evaluation="e", run_id="r1").row(0) == (1, "1", None)
    assert warehouse.query("SELECT real FROM numbers_latest")["real"].to_list() == [0.5]


def test_undeclared_and_absent_columns_are_refused(warehouse: Warehouse) -> None:
    with pytest.raises(ValueError, match="undeclared columns .'other'., absent columns .'n'."):
        TABLE.conform(pl.DataFrame({"other": [1]}))


def test_another_process_holding_the_file_is_named(warehouse: Warehouse) -> None:
    write(warehouse, "r1", 1)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True);"
         "sys.stdin.read()", warehouse.database],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(UserError, match=rf"held by another process.*{holder.pid}"):
        write(warehouse, "r2", 2)
    holder.communicate("")
    write(warehouse, "r2", 2, minutes=1)
    assert read(warehouse) == [2]


def test_a_file_that_is_no_database(warehouse: Warehouse) -> None:
    path = Path(warehouse.database)
    path.parent.mkdir(parents=True)
    path.write_text("no database" * 1000, encoding="utf-8")
    with pytest.raises(UserError, match="cannot be opened"):
        write(warehouse, "r1", 1)
    assert path.read_text(encoding="utf-8").startswith("no database")
