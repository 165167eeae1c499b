"""What a run's calls cost, kept in the table `llm_usage`, one row for each stage."""

from datetime import UTC, datetime
from typing import Any

import polars as pl

from kbeval_pipeline.resources.llms import Usage
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.tables import LLM_USAGE


def record_usage(
    warehouse: Warehouse, usage: Usage, *, stage: str, model: str, evaluation: str, run_id: str
) -> dict[str, Any]:
    """Store the usage of one stage beside that of the run's other stages.

    Args:
        warehouse: where it is stored.
        usage: the client's totals.
        stage: `generation`, `judging` or `calibration`.
        model: provider and model.
        evaluation: name of the evaluation.
        run_id: id of the run.

    Returns:
        The numbers, as metadata of the asset; cost is absent where it is unknown.
    """
    names = [name for name in LLM_USAGE.schema if name not in ("stage", "model")]
    numbers = {name: getattr(usage, name) for name in names}
    others = warehouse.query(
        "SELECT * FROM llm_usage WHERE evaluation = ? AND run_id = ? AND NOT (stage = ? AND model = ?)",
        [evaluation, run_id, stage, model],
    )
    rows = LLM_USAGE.frame([{"stage": stage, "model": model, **numbers}])
    if not others.is_empty():
        rows = pl.concat([LLM_USAGE.conform(others.select(rows.columns)), rows])
    warehouse.write(LLM_USAGE, rows, evaluation=evaluation, run_id=run_id, created_at=datetime.now(UTC))
    return {f"llm/{name}": value for name, value in numbers.items() if value is not None}
