"""The IO manager: an asset's frame becomes rows of the warehouse, stamped with run and evaluation."""

from datetime import UTC, datetime

import polars as pl
from dagster import ConfigurableIOManager, InputContext, OutputContext, ResourceDependency

from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.tables import TABLES


class WarehouseIOManager(ConfigurableIOManager):
    """Stores each asset's frame in the warehouse table of the same name; the partition is the evaluation."""

    warehouse: ResourceDependency[Warehouse]

    def handle_output(self, context: OutputContext, obj: pl.DataFrame) -> None:
        """Write the frame in one transaction and report how many rows it has."""
        table = TABLES[context.asset_key.path[-1]]
        self.warehouse.write(
            table,
            obj,
            evaluation=context.asset_partition_key,
            run_id=context.run_id,
            created_at=datetime.now(UTC),
        )
        context.add_output_metadata({"dagster/row_count": obj.height, "dagster/table_name": table.name})

    def load_input(self, context: InputContext) -> pl.DataFrame:
        """Read the upstream partition: this run's rows where there are any, else the latest run's."""
        step = context.step_context
        return self.warehouse.read(
            TABLES[context.asset_key.path[-1]],
            evaluation=context.asset_partition_key,
            run_id=step.run_id,
        )
