"""The command as a user runs it: a real process, its output and its exit code."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from dagster import DagsterInstance, DagsterRunStatus

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "KBEVAL_PROJECT")}
    return {**kept, "COLUMNS": "160"}


@pytest.fixture
def kbeval(project_file: Path, environment: dict[str, str]) -> Command:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from kbeval_pipeline.cli.main import main; main()", *arguments],
            cwd=project_file.parent, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


STATEMENT = "EVALUATE KNOWLEDGE_BASE docs USING test_table = tables.questions;"
DOCUMENTED = {
    "total", "total_found", "retrieved_in_top_10", "cumulative_recall", "avg_query_time", "name",
    "created_at", "id",
}  # fmt: skip


def test_evaluate_by_name_and_history(kbeval: Command) -> None:
    ran = kbeval("evaluate", "nightly")
    assert ran.returncode == 0, ran.stderr
    assert "total_found" in ran.stdout
    assert "ndcg@10" in ran.stdout
    assert "searching: 5 of 5" in ran.stderr
    listed = kbeval("results")
    assert listed.returncode == 0
    assert "nightly" in listed.stdout
    rows = [json.loads(line) for line in kbeval("results", "nightly", "--json").stdout.splitlines()]
    assert len(rows) == 1
    assert rows[0]["total_found"] == 5


def test_evaluate_a_statement_as_json(kbeval: Command, project_file: Path) -> None:
    ran = kbeval("evaluate", STATEMENT, "--json")
    assert ran.returncode == 0, ran.stderr
    row = json.loads(ran.stdout)
    assert set(row) == DOCUMENTED
    assert row["cumulative_recall"]["19"] == 1.0
    assert row["total"] == 5
    again = json.loads(kbeval("evaluate", STATEMENT, "--json").stdout)
    assert again["id"] != row["id"]
    home = project_file.parent / ".kbeval" / "dagster"
    with DagsterInstance.from_config(str(home)) as instance:
        partitions = {run.tags["dagster/partition"] for run in instance.get_runs()}
    assert len(partitions) == 1
    assert next(iter(partitions)).startswith("docs-")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nightyl"), 'unknown evaluation "nightyl", did you mean "nightly"?'),
        (("evaluate", "EVALUATE KNOWLEDGE_BASE dogs USING test_table = tables.q"), 'did you mean "docs"?'),
        (("evaluate", STATEMENT.replace("questions", "question")), "questions"),
        (("evaluate",), "Missing argument"),
        (("results", "nope"), 'unknown evaluation "nope"'),
        (("--project", "none.yaml", "check"), "there is no such project file"),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_input_is_exit_code_2_without_a_stack_trace(
    kbeval: Command, arguments: tuple[str, ...], message: str
) -> None:
    ran = kbeval(*arguments)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


def test_check_prints_every_mistake(kbeval: Command, project_file: Path) -> None:
    assert "no mistakes" in kbeval("check").stdout
    text = project_file.read_text(encoding="utf-8")
    broken = text.replace("type: folder", "type: foldr") + "extra: 1\n"
    project_file.write_text(broken.replace("knowledge_base: docs", "knowledge_base: dogs"), encoding="utf-8")
    checked = kbeval("check")
    assert checked.returncode == 2
    assert "3 mistakes" in checked.stderr


def test_a_failed_evaluation_is_exit_code_1(kbeval: Command, project_file: Path) -> None:
    (project_file.parent / ".kbeval" / "indexes").mkdir(parents=True)
    # Searching fails when the knowledge base's folder of indexes is a file.
    (project_file.parent / ".kbeval" / "indexes").rmdir()
    (project_file.parent / ".kbeval" / "indexes").write_text("in the way", encoding="utf-8")
    ran = kbeval("evaluate", "nightly")
    assert ran.returncode in (1, 2)
    assert "Traceback" not in ran.stderr
    assert "error: " in ran.stderr


def test_a_locked_warehouse_is_told_and_nothing_is_lost(kbeval: Command, project_file: Path) -> None:
    assert kbeval("evaluate", "nightly").returncode == 0
    path = project_file.parent / ".kbeval" / "warehouse.duckdb"
    with duckdb.connect(str(path)) as connection:
        before = connection.sql("SELECT count(*) FROM evaluation_results").fetchone()
        ran = kbeval("results")
        assert ran.returncode == 2
        assert "held by another process" in ran.stderr
        assert str(os.getpid()) in ran.stderr
        assert connection.sql("SELECT count(*) FROM evaluation_results").fetchone() == before


def test_a_killed_run_is_closed_and_the_next_one_goes_through(
    kbeval: Command, project_file: Path, environment: dict[str, str]
) -> None:
    assert kbeval("evaluate", "nightly").returncode == 0
    program = (
        "import os, signal\n"
        "from kbeval_pipeline.resources.knowledge_bases.local import LocalKnowledgeBaseAdapter as Base\n"
        "Base.search = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from kbeval_pipeline.cli.main import main; main()\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, "evaluate", "nightly"],
        cwd=project_file.parent, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert len(kbeval("results", "nightly", "--json").stdout.splitlines()) == 1
    assert kbeval("evaluate", "nightly").returncode == 0
    assert len(kbeval("results", "nightly", "--json").stdout.splitlines()) == 2
    with DagsterInstance.from_config(str(project_file.parent / ".kbeval" / "dagster")) as instance:
        statuses = sorted(run.status.value for run in instance.get_runs())
    assert statuses == sorted(s.value for s in (DagsterRunStatus.FAILURE, *[DagsterRunStatus.SUCCESS] * 2))


def test_the_first_commands_of_a_project_may_start_together(
    project_file: Path, environment: dict[str, str]
) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from kbeval_pipeline.cli.instance import dagster_instance\n"
        "from kbeval_pipeline.project_file import read_project\n"
        "project = read_project(Path('kbeval.yaml'))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "with dagster_instance(project) as instance:\n"
        "    print(instance.get_runs_count())\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=project_file.parent, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outcomes = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 4, outcomes
    for name in ("history/runs.db", "history/runs/index.db", "schedules/schedules.db"):
        with sqlite3.connect(project_file.parent / ".kbeval" / "dagster" / name) as database:
            assert len(database.execute("SELECT * FROM alembic_version").fetchall()) == 1, name


def test_dev_serves_the_ui(project_file: Path, environment: dict[str, str]) -> None:
    import socket
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-c", "from kbeval_pipeline.cli.main import main; main()", "dev", "--port", str(port)],
        cwd=project_file.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        query = json.dumps({"query": "{assetNodes {assetKey {path}}}"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"}
        )
        for _ in range(120):
            try:
                with urllib.request.urlopen(request) as answer:
                    nodes = json.load(answer)["data"]["assetNodes"]
                break
            except OSError:
                time.sleep(0.5)
        assert ["evaluation_results"] in [node["assetKey"]["path"] for node in nodes]
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(timeout=30)
