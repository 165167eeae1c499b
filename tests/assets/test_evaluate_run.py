"""The main job end to end, on real files, real search and a real warehouse."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest
from dagster import AssetKey, DagsterInstance, ExecuteInProcessResult

from kbeval_pipeline.assets.metrics import REPORTED_METRICS
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.doc_id_report import doc_id_report
from kbeval_pipeline.evaluation.ranking_metrics import question_ranking_metrics, rank_documents
from kbeval_pipeline.evaluation.test_sets import qrels_of
from kbeval_pipeline.resources.knowledge_bases.local import LocalKnowledgeBaseAdapter
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.settings import TableName
from kbeval_pipeline.tables import EVALUATION_TABLES
from tests.small_project import QUESTIONS

Run = Callable[..., ExecuteInProcessResult]
Open = Callable[[Path], Warehouse]


def messages(result: ExecuteInProcessResult) -> str:
    return "\n".join(
        str(event.step_failure_data.user_failure_data.description)
        for event in result.get_step_failure_events()
        if event.step_failure_data.user_failure_data is not None
    )


def failed_checks(result: ExecuteInProcessResult) -> dict[str, str | None]:
    return {
        f"{check.asset_key.to_user_string()}.{check.check_name}": check.description
        for check in result.get_asset_check_evaluations()
        if not check.passed
    }


def test_a_whole_run(project_file: Path, run: Run, warehouse_of: Open, instance: DagsterInstance) -> None:
    result = run(project_file)
    assert result.success
    assert failed_checks(result) == {}
    checked = {check.asset_key.to_user_string() for check in result.get_asset_check_evaluations()}
    assert checked == {table.name for table in EVALUATION_TABLES}

    warehouse = warehouse_of(project_file)
    row = warehouse.query("SELECT * FROM evaluation_results_latest").row(0, named=True)
    assert (row["total"], row["total_found"], row["retrieved_in_top_10"]) == (5, 5, 5)
    assert json.loads(row["cumulative_recall"])["0"] == 1.0
    assert (row["evaluation"], row["run_id"], row["name"]) == ("nightly", result.run_id, "docs")
    ndcg = warehouse.query("SELECT value, n FROM extended_metrics_latest WHERE metric = 'ndcg' AND k = 10")
    assert ndcg.row(0) == (1.0, 5)

    observation = instance.fetch_observations(AssetKey("kb_documents"), limit=1).records[0]
    assert observation.partition_key == "nightly"
    assert observation.asset_observation is not None
    assert observation.asset_observation.tags["dagster/data_version"] == row["kb_fingerprint"]


def test_metrics_recomputed_from_the_stored_tables_agree(
    project_file: Path, run: Run, warehouse_of: Open
) -> None:
    extra = "Where is the ferry described wrongly?,yeast.txt,\nWhat has no answer at all?,gone.txt,\n"
    (project_file.parent / "tables" / "questions.csv").write_text(QUESTIONS + extra, encoding="utf-8")
    result = run(project_file)
    assert result.success
    warehouse = warehouse_of(project_file)
    test_set, searches, chunks = (
        warehouse.query(f"SELECT * FROM {name}_latest")
        for name in ("test_set", "question_searches", "retrieved_chunks")
    )
    stored = warehouse.query("SELECT * FROM doc_id_metrics_latest").row(0, named=True)
    again = doc_id_report(test_set, searches, chunks, name="docs", top_k=20)
    assert again == {name: stored[name] for name in again}
    assert stored["total"] == 7
    assert stored["total_found"] < 7
    per_question = question_ranking_metrics(
        qrels_of(test_set), rank_documents(chunks), [1, 3, 5, 10, 20], metrics=REPORTED_METRICS
    )
    means = per_question.group_by("metric", "k").agg(pl.col("value").mean())
    joined = means.join(
        warehouse.query("SELECT * FROM extended_metrics_latest"), on=["metric", "k"], nulls_equal=True
    )
    assert joined.height == means.height
    assert ((joined["value"] - joined["value_right"]).abs() < 1e-12).all()


def test_metadata_of_the_materializations(project_file: Path, run: Run) -> None:
    result = run(project_file)
    told = {
        event.asset_key.to_user_string(): event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    recall = told["doc_id_metrics"]
    assert recall["total_found"].value == 5
    assert recall["dagster/row_count"].value == 1
    plot = recall["cumulative_recall_plot"].value
    assert plot.startswith("![cumulative recall](data:image/png;base64,")
    assert len(plot) < 50_000
    assert told["extended_metrics"]["ndcg@10"].value == 1.0
    assert told["test_set"]["test_set_version"].value == told["evaluation_results"]["test_set_version"].value
    for name, metadata in told.items():
        for key, value in metadata.items():
            assert key == "cumulative_recall_plot" or len(str(value.value).encode()) <= 4096, (name, key)


def test_two_runs_keep_history_and_the_view_shows_the_latest(
    project_file: Path, run: Run, warehouse_of: Open
) -> None:
    first, second = run(project_file), run(project_file)
    warehouse = warehouse_of(project_file)
    assert warehouse.query("SELECT DISTINCT run_id FROM retrieved_chunks").height == 2
    latest = warehouse.query("SELECT DISTINCT run_id FROM retrieved_chunks_latest")["run_id"].to_list()
    assert latest == [second.run_id]
    assert first.run_id != second.run_id


def test_generated_questions_replace_the_test_table(
    write_project: Callable[..., Path], run: Run, warehouse_of: Open
) -> None:
    project_file = write_project(
        evaluations={
            "made": {
                "knowledge_base": "docs", "test_table": "store.made", "generate_data": {"count": 4, "seed": 2},
            }
        }
    )  # fmt: skip
    generated = run(project_file, "made", job="generate_test_data")
    assert generated.success
    with duckdb.connect(str(project_file.parent / "store.duckdb"), read_only=True) as connection:
        table = connection.sql("SELECT * FROM made").pl()
    assert table.columns == ["text", "question", "answer", "doc_id"]
    assert table.height == 4
    assert run(project_file, "made").success
    stored = warehouse_of(project_file).query("SELECT origin, content_hash FROM test_set_latest")
    assert set(stored["origin"]) == {"offline-extractive"}
    assert stored["content_hash"].null_count() == 0


def test_generation_from_a_query_and_with_too_few_documents(
    write_project: Callable[..., Path], run: Run
) -> None:
    project_file = write_project(
        evaluations={
            "made": {
                "knowledge_base": "docs",
                "test_table": "store.made",
                "generate_data": {
                    "from_sql": "SELECT doc_id AS id, question || ' ' || answer || ' and some more words' AS content "
                    "FROM tables.questions",
                    "count": 50,
                },
            }
        }
    )
    result = run(project_file, "made")
    assert result.success, messages(result)
    (made,) = [
        event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key == AssetKey("test_set")
    ]
    assert made["generation/written"].value + made["generation/shortfall"].value == 50


def test_save_to_receives_the_documented_columns(write_project: Callable[..., Path], run: Run) -> None:
    project_file = write_project(
        evaluations={
            "nightly": {
                "knowledge_base": "docs", "test_table": "tables.questions", "save_to": "store.results",
            }
        }
    )  # fmt: skip
    first, second = run(project_file), run(project_file)
    assert first.success
    assert second.success
    with duckdb.connect(str(project_file.parent / "store.duckdb"), read_only=True) as connection:
        saved = connection.sql("SELECT * FROM results ORDER BY created_at").pl()
    assert saved.columns == [
        "total", "total_found", "retrieved_in_top_10", "cumulative_recall", "avg_query_time",
        "name", "created_at", "id",
    ]  # fmt: skip
    assert saved["id"].to_list() == [first.run_id, second.run_id]


@pytest.mark.parametrize("table", ["store.results", "tables.results"])
def test_save_to_receives_both_versions_at_once(
    write_project: Callable[..., Path], run: Run, table: str
) -> None:
    evaluation = {
        "knowledge_base": "docs", "test_table": "tables.questions", "version": ["doc_id", "llm_relevancy"],
        "save_to": table,
    }  # fmt: skip
    project_file = write_project(evaluations={"nightly": evaluation})
    results = [run(project_file), run(project_file)]
    assert all(result.success for result in results), messages(results[0])
    saved = ProjectResource(project_file=str(project_file)).data_sources().read_table(TableName.parse(table))
    assert saved["id"].to_list() == [results[0].run_id] * 2 + [results[1].run_id] * 2
    assert saved["total"].to_list() == [5, None, 5, None]
    assert saved["avg_relevancy"].is_null().to_list() == [True, False, True, False]


def test_documents_that_cannot_be_listed_are_a_warning(
    project_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: LocalKnowledgeBaseAdapter) -> None:
        raise UserError("this store cannot list its documents")

    monkeypatch.setattr(LocalKnowledgeBaseAdapter, "documents", cannot)
    result = run(project_file)
    assert result.success, messages(result)
    assert failed_checks(result) == {"test_set.documents_known": "this store cannot list its documents"}


def test_an_unfit_save_to_is_refused_before_anything_runs(
    write_project: Callable[..., Path], run: Run, warehouse_of: Open
) -> None:
    project_file = write_project(
        evaluations={
            "nightly": {
                "knowledge_base": "docs", "test_table": "tables.questions", "save_to": "store.results",
            }
        }
    )  # fmt: skip
    with duckdb.connect(str(project_file.parent / "store.duckdb")) as connection:
        connection.execute("CREATE TABLE results (total VARCHAR, other DATE)")
    result = run(project_file)
    assert not result.success
    assert 'column "total" is text in it' in messages(result)
    assert warehouse_of(project_file).query("SELECT * FROM test_set").is_empty()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (None, "questions"),
        ("question,doc\na,b\n", "lacks the column doc_id; its columns are: question, doc"),
        ("question,doc_id\n", "the test table tables.questions has no rows"),
        ("question,doc_id\na,x\n ,y\n", "a blank question in 1 of 2 rows: row 2"),
        ("question,doc_id\na,x\nb,\n", "no doc_id in 1 of 2 rows: row 2"),
    ],
)
def test_bad_test_tables_end_the_run_and_lose_nothing(
    project_file: Path, run: Run, warehouse_of: Open, table: str | None, message: str
) -> None:
    assert run(project_file).success
    before = warehouse_of(project_file).query("SELECT * FROM evaluation_results")
    file = project_file.parent / "tables" / "questions.csv"
    if table is None:
        file.unlink()
    else:
        file.write_text(table, encoding="utf-8")
    result = run(project_file)
    assert not result.success
    assert message in messages(result)
    assert warehouse_of(project_file).query("SELECT * FROM evaluation_results").equals(before)


def test_documents_that_cannot_be_read_are_counted_and_absent_ones_named(
    project_file: Path, documents_folder: Path, run: Run
) -> None:
    (documents_folder / "binary.txt").write_bytes(b"\x00\x01\x02")
    (documents_folder / "latin.txt").write_bytes("Müller".encode("latin-1"))
    (documents_folder / "empty.txt").write_bytes(b"")
    (documents_folder / "ferry.txt").unlink()
    result = run(project_file)
    assert result.success
    failed = failed_checks(result)
    assert failed == {
        "test_set.documents_known": "1 of 5 rows expect a document that docs lacks; they count as not found",
        "retrieved_chunks.documents_readable": "3 documents were left out",
    }


def test_failed_searches_are_recorded_and_too_many_stop_the_run(
    project_file: Path, run: Run, warehouse_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = LocalKnowledgeBaseAdapter.search
    broken = {"ferry"}

    def sometimes(self: LocalKnowledgeBaseAdapter, question: str, k: int) -> object:
        if any(word in question for word in broken):
            raise OSError("disk on fire")
        return search(self, question, k)

    monkeypatch.setattr(LocalKnowledgeBaseAdapter, "search", sometimes)
    assert run(project_file).success
    warehouse = warehouse_of(project_file)
    row = warehouse.query("SELECT * FROM doc_id_metrics_latest").row(0, named=True)
    assert (row["n_questions"], row["n_measured"], row["n_failed"], row["total"]) == (5, 4, 1, 4)
    assert warehouse.query("SELECT error FROM question_searches WHERE status = 'failed'")[
        "error"
    ].to_list() == ["OSError: disk on fire"]

    broken |= {"yeast"}
    result = run(project_file)
    assert not result.success
    assert "2 of 5 searches failed" in str(failed_checks(result)["question_searches.failure_rate"])
    assert warehouse.query("SELECT * FROM doc_id_metrics").height == 1
    assert warehouse.query("SELECT * FROM question_searches_latest WHERE status = 'failed'").height == 2


def test_a_broken_table_contract_blocks_what_comes_after(
    project_file: Path, run: Run, warehouse_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbeval_pipeline.evaluation import retrieval

    chunks = retrieval._chunks

    def twice(outcomes: list[object]) -> pl.DataFrame:
        frame = chunks(outcomes)  # type: ignore[arg-type]
        return pl.concat([frame, frame.head(1)])

    monkeypatch.setattr(retrieval, "_chunks", twice)
    result = run(project_file)
    assert not result.success
    assert "retrieved_chunks.table_contract" in failed_checks(result)
    assert warehouse_of(project_file).query("SELECT * FROM doc_id_metrics").is_empty()


def test_several_right_documents_and_grades(project_file: Path, run: Run, warehouse_of: Open) -> None:
    (project_file.parent / "tables" / "questions.csv").write_text(
        "question,doc_id,grade\n"
        "When does the ferry leave the harbour?,ferry.txt,2\n"
        "When does the ferry leave the harbour?,yeast.txt,1\n"
        "When does the ferry leave the harbour?,battery.txt,0\n",
        encoding="utf-8",
    )
    assert run(project_file).success
    warehouse = warehouse_of(project_file)
    assert warehouse.query("SELECT * FROM question_searches_latest").height == 1
    assert warehouse.query("SELECT total FROM doc_id_metrics_latest")["total"].to_list() == [2]
    ndcg = warehouse.query("SELECT value, n FROM extended_metrics_latest WHERE metric = 'recall' AND k = 1")
    assert ndcg.row(0) == (0.5, 1)
