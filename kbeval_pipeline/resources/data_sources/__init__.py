"""Named data sources: DuckDB files, folders of CSV, Parquet and JSON, and any SQLAlchemy URL."""

from kbeval_pipeline.resources.data_sources.base import DataSource
from kbeval_pipeline.resources.data_sources.federation import DataSources

__all__ = ["DataSource", "DataSources"]
