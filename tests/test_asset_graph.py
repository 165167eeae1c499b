"""The asset graph as a whole: a snapshot, loading, and Dagster's deprecations."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dagster import AssetKey, Definitions

from kbeval_pipeline.definitions import build_definitions

SNAPSHOT = Path(__file__).parent / "asset_graph.json"


def graph_of(definitions: Definitions) -> dict[str, object]:
    graph = definitions.resolve_asset_graph()
    assets = {
        key.to_user_string(): {
            "deps": sorted(dep.to_user_string() for dep in graph.get(key).parent_keys),
            "group": graph.get(key).group_name,
            "kinds": sorted(graph.get(key).kinds),
            "partitioned": graph.get(key).is_partitioned,
            "executable": graph.get(key).is_executable,
        }
        for key in graph.get_all_asset_keys()
    }
    checks = {
        f"{key.asset_key.to_user_string()}.{key.name}": {"blocking": graph.get_check_spec(key).blocking}
        for key in graph.asset_check_keys
    }
    jobs = {
        job.name: sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys)
        for job in definitions.resolve_all_job_defs()
        if not job.name.startswith("__")
    }
    repository = definitions.get_repository_def()
    schedules = {s.name: [s.cron_schedule, s.job_name] for s in repository.schedule_defs}
    return {"assets": assets, "checks": checks, "jobs": jobs, "schedules": schedules}


def test_the_graph_is_the_one_on_record(project_file: Path, request: pytest.FixtureRequest) -> None:
    graph = json.dumps(graph_of(build_definitions(project_file)), indent=2, sort_keys=True)
    if request.config.getoption("--update-snapshot"):
        SNAPSHOT.write_text(graph + "\n", encoding="utf-8")
    assert graph + "\n" == SNAPSHOT.read_text(encoding="utf-8")


def test_every_evaluation_is_a_partition_and_has_a_schedule(write_project: Callable[..., Path]) -> None:
    evaluation = {"knowledge_base": "docs", "test_table": "tables.questions"}
    off = {**evaluation, "schedule": {"cron": "30 4 * * 1", "timezone": "Europe/Berlin", "enabled": False}}
    definitions = build_definitions(write_project(evaluations={"a.b": evaluation, "a-b": off}))
    partitions = definitions.resolve_asset_graph().get(AssetKey("test_set")).partitions_def
    assert partitions is not None
    assert sorted(partitions.get_partition_keys()) == ["a-b", "a.b"]
    repository = definitions.get_repository_def()
    on, stopped = sorted(repository.schedule_defs, key=lambda s: s.cron_schedule)
    assert (on.cron_schedule, on.execution_timezone, on.default_status.value) == (
        "0 2 * * *",
        "UTC",
        "RUNNING",
    )
    assert (stopped.cron_schedule, stopped.execution_timezone) == ("30 4 * * 1", "Europe/Berlin")
    assert stopped.default_status.value == "STOPPED"


def test_no_evaluations_at_all_still_loads(write_project: Callable[..., Path]) -> None:
    Definitions.validate_loadable(build_definitions(write_project(evaluations={})))


def test_loading_warns_of_nothing_deprecated_and_imports_nothing_slow(project_file: Path) -> None:
    program = (
        "import sys, warnings\n"
        "warnings.filterwarnings('error', category=DeprecationWarning, module='kbeval_pipeline')\n"
        "from pathlib import Path\n"
        "from dagster import Definitions\n"
        "from kbeval_pipeline.definitions import build_definitions\n"
        "Definitions.validate_loadable(build_definitions(Path(sys.argv[1])))\n"
        "slow = {'great_expectations', 'pandas', 'matplotlib', 'tantivy', 'mindsdb_sql_parser', 'bs4',\n"
        "        'langchain_text_splitters', 'onnxruntime'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program, str(project_file)], capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == "[]"
