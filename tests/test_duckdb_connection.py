"""DuckDB prints nothing and stays locked down."""

import duckdb
import pytest

from kbeval_pipeline.duckdb_connection import connect


def test_no_progress_bar() -> None:
    with connect() as connection:
        assert connection.sql("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_a_locked_configuration_stays_locked() -> None:
    with connect(config={"lock_configuration": "true", "enable_external_access": "false"}) as connection:
        with pytest.raises(duckdb.InvalidInputException):
            connection.execute("SET enable_external_access = true")
        with pytest.raises(duckdb.PermissionException):
            connection.sql("SELECT * FROM read_text('/etc/hostname')").fetchall()
