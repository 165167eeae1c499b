"""Dagster's storage for the command line: its folder, its settings, and runs whose process is gone."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from kbeval_pipeline.project import Project

PROCESS_TAG = "kbeval/process"
_READY = ".storage-ready"

_SETTINGS = """\
# Written by kbeval when it first ran; yours to edit.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 4
  pools:
    default_limit: 1
    granularity: op
run_monitoring:
  enabled: true
  # A killed run would otherwise keep its place in the pool for ever.
  free_slots_after_run_end_seconds: 60
"""


def prepare_dagster_home(project: Project) -> Path:
    """Make Dagster's folder under the data folder, unless the environment names one, and its storage.

    Args:
        project: the checked project.

    Returns:
        The folder, which is `DAGSTER_HOME` from here on.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or project.data_dir / "dagster").resolve()
    home.mkdir(parents=True, exist_ok=True)
    os.environ["DAGSTER_HOME"] = str(home)
    if not (home / _READY).exists():
        _set_up_storage(home)
    return home


@contextmanager
def dagster_instance(project: Project) -> Iterator[DagsterInstance]:
    """Open Dagster's storage and close the books on runs whose process was killed.

    Args:
        project: the checked project.
    """
    prepare_dagster_home(project)
    with DagsterInstance.get() as instance:
        _end_runs_of_dead_processes(instance)
        yield instance


def _set_up_storage(home: Path) -> None:
    """Let one process alone make the tables: two at once leave a storage that nobody can open."""
    with (home / ".setup.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = home / "dagster.yaml"
        if not settings.exists():
            settings.write_text(_SETTINGS, encoding="utf-8")
        with DagsterInstance.get() as instance:
            instance.get_runs_count()
            instance.event_log_storage.get_maximum_record_id()
            instance.all_instigator_state()
        (home / _READY).touch()


def process_tag() -> dict[str, str]:
    """Tag a run with the process that executes it."""
    return {PROCESS_TAG: f"{socket.gethostname()}:{os.getpid()}"}


def _end_runs_of_dead_processes(instance: DagsterInstance) -> None:
    unfinished = RunsFilter(statuses=[DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
    for run in instance.get_runs(unfinished):
        host, _, process = run.tags.get(PROCESS_TAG, "").rpartition(":")
        if host == socket.gethostname() and not _is_alive(int(process)):
            instance.report_run_failed(run, f"the process {process} that executed this run is gone")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
