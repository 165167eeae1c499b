"""The copy of the result row in the user's own table."""

from dagster import AssetExecutionContext, MaterializeResult, asset

from kbeval_pipeline.assets.metrics import evaluation_results
from kbeval_pipeline.assets.stage import readable_failures
from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.result_rows import saved_frame
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.results import results_of_run
from kbeval_pipeline.settings import TableName


@asset(
    group_name="metrics",
    kinds={"table"},
    deps=[evaluation_results],
    description="The documented result row, appended to the table named by `save_to`.",
)
@readable_failures
def saved_results(
    context: AssetExecutionContext, project: ProjectResource, warehouse: Warehouse
) -> MaterializeResult[None]:
    """Append the run's result rows to `save_to`; nothing where the evaluation names no table."""
    evaluation = project.evaluation(context.partition_key)
    if evaluation.save_to is None:
        return MaterializeResult(metadata={"saved": False})
    table = TableName.parse(evaluation.save_to)
    try:
        project.data_sources().append(table, saved_frame(results_of_run(warehouse, context.run.run_id)))
    except UserError as error:
        raise UserError(
            f"the result is stored in the warehouse, but could not be saved to {table}: {error}"
        ) from None
    return MaterializeResult(metadata={"saved": True, "table": str(table)})
