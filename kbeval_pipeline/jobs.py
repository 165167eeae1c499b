"""The jobs: evaluate, and generate test data."""

from dagster import AssetSelection, define_asset_job

EVALUATE = "evaluate"
GENERATE_TEST_DATA = "generate_test_data"

evaluate_job = define_asset_job(
    EVALUATE,
    selection=AssetSelection.groups("test_data", "retrieval", "judging", "metrics"),
    description="Evaluate one evaluation: read or generate its test set, search, score, store.",
)

generate_test_data_job = define_asset_job(
    GENERATE_TEST_DATA,
    selection=AssetSelection.groups("test_data"),
    description="Only read or generate the test set of one evaluation.",
)
