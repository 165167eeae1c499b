"""Reading results back out of the warehouse."""

from typing import Any

import polars as pl

from kbeval_pipeline.project import Project
from kbeval_pipeline.resources.warehouse import Warehouse

READER_WAIT_SECONDS = 5.0


def warehouse_of(project: Project) -> Warehouse:
    """Open a project's warehouse for a reader, who waits less long for a lock than a run does.

    Args:
        project: the checked project.
    """
    return Warehouse(
        database=str(project.data_dir / "warehouse.duckdb"), lock_wait_seconds=READER_WAIT_SECONDS
    )


def results_of_run(warehouse: Warehouse, run_id: str) -> list[dict[str, Any]]:
    """Read the result rows of one run.

    Args:
        warehouse: where they are stored.
        run_id: id of the run.

    Returns:
        One mapping for each version, with the run stamp.
    """
    found = warehouse.query("SELECT * FROM evaluation_results WHERE run_id = ? ORDER BY version", [run_id])
    return found.to_dicts()


def result_history(warehouse: Warehouse, evaluation: str | None = None, limit: int = 20) -> pl.DataFrame:
    """Read the history of results, newest first.

    Args:
        warehouse: where they are stored.
        evaluation: only this evaluation's.
        limit: how many rows at most.

    Returns:
        Rows of `evaluation_results` with their run stamp, and the key extended metrics of the run.
    """
    return warehouse.query(
        """
        WITH extended AS (
            SELECT evaluation, run_id,
                max(value) FILTER (metric = 'ndcg' AND k = 10) AS "ndcg@10",
                max(value) FILTER (metric = 'mrr' AND k IS NULL) AS mrr
            FROM extended_metrics GROUP BY ALL
        )
        SELECT r.*, e."ndcg@10", e.mrr
        FROM evaluation_results r LEFT JOIN extended e USING (evaluation, run_id)
        WHERE ?::VARCHAR IS NULL OR r.evaluation = ?
        ORDER BY r.created_at DESC, r.evaluation, r.version LIMIT ?
        """,
        [evaluation, evaluation, limit],
    )
