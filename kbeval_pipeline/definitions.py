"""The Dagster code location: wiring only."""

import os
import warnings
from pathlib import Path

import dagster as dg

from kbeval_pipeline.assets.calibration import calibration
from kbeval_pipeline.assets.judging import relevance_judgments
from kbeval_pipeline.assets.knowledge_bases import knowledge_base_assets
from kbeval_pipeline.assets.metrics import (
    doc_id_metrics,
    evaluation_results,
    extended_metrics,
    llm_relevancy_metrics,
    question_metrics,
)
from kbeval_pipeline.assets.retrieval import retrieval
from kbeval_pipeline.assets.saved_results import saved_results
from kbeval_pipeline.assets.test_sets import test_set
from kbeval_pipeline.checks.documents import document_checks
from kbeval_pipeline.checks.failure_rate import failure_rate_checks
from kbeval_pipeline.checks.table_contracts import table_contract_check
from kbeval_pipeline.jobs import evaluate_job, generate_test_data_job
from kbeval_pipeline.partitions import evaluation_partitions
from kbeval_pipeline.project_file import read_project
from kbeval_pipeline.resources.io_manager import WarehouseIOManager
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.schedules import evaluation_schedules
from kbeval_pipeline.tables import EVALUATION_TABLES

# Dagster marks these as young, not as unfit; its version is pinned exactly (docs/decisions.md).
for _feature in (
    "Function `observable_source_asset` is currently in beta",
    "Specifying a partitions_def on an AssetCheckSpec is currently in preview",
    "Parameter `data_version` of initializer `Output.__init__` is currently in beta",
):
    warnings.filterwarnings("ignore", message=_feature)

_EVALUATION_ASSETS = (
    test_set, retrieval, relevance_judgments, calibration, doc_id_metrics, llm_relevancy_metrics,
    question_metrics, extended_metrics, evaluation_results,
    saved_results,
)  # fmt: skip


def build_definitions(project_file: Path) -> dg.Definitions:
    """Wire a project file's evaluations.

    Args:
        project_file: the project file; its mistakes are reported all at once.
    """
    project = read_project(project_file)
    partitions = evaluation_partitions(project)
    warehouse = Warehouse(database=str(project.data_dir / "warehouse.duckdb"))
    return dg.Definitions(
        assets=[
            *knowledge_base_assets(partitions),
            *(
                assets.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=partitions))
                for assets in _EVALUATION_ASSETS
            ),
        ],
        asset_checks=[
            *(table_contract_check(table, partitions) for table in EVALUATION_TABLES),
            *failure_rate_checks(partitions),
            *document_checks(partitions),
        ],
        jobs=[evaluate_job, generate_test_data_job],
        schedules=evaluation_schedules(project),
        resources={
            "io_manager": WarehouseIOManager(warehouse=warehouse),
            "warehouse": warehouse,
            "project": ProjectResource(project_file=str(project_file.resolve())),
        },
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Load the project file named by `KBEVAL_PROJECT`, or `kbeval.yaml` in the working folder."""
    return build_definitions(Path(os.environ.get("KBEVAL_PROJECT", "kbeval.yaml")))
