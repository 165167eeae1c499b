"""Real runs against real storage."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult

from kbeval_pipeline.definitions import build_definitions
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.resources.warehouse import Warehouse

Run = Callable[..., ExecuteInProcessResult]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    (tmp_path / "dagster").mkdir()
    with DagsterInstance.local_temp(
        str(tmp_path / "dagster"), overrides={"telemetry": {"enabled": False}}
    ) as opened:
        yield opened


@pytest.fixture
def run(instance: DagsterInstance) -> Run:
    """Run a job on one evaluation of a project file."""

    def execute(
        project_file: Path, evaluation: str = "nightly", job: str = "evaluate"
    ) -> ExecuteInProcessResult:
        definition = build_definitions(project_file).resolve_job_def(job)
        return definition.execute_in_process(
            instance=instance, partition_key=evaluation, raise_on_error=False
        )

    return execute


@pytest.fixture
def warehouse_of() -> Callable[[Path], Warehouse]:
    def open_warehouse(project_file: Path) -> Warehouse:
        return Warehouse(database=str(read_project(project_file, os.environ).data_dir / "warehouse.duckdb"))

    return open_warehouse


def failure_messages(result: ExecuteInProcessResult) -> list[str]:
    """What the failed steps told."""
    return [
        event.step_failure_data.user_failure_data.description
        for event in result.get_step_failure_events()
        if event.step_failure_data.user_failure_data is not None
    ]
