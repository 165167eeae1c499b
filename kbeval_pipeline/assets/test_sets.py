"""The test set: the user's own table, or questions generated from documents."""

from dataclasses import asdict
from typing import Any

import polars as pl
from dagster import AssetExecutionContext, DataVersion, Output

from kbeval_pipeline.assets.knowledge_bases import KB_DOCUMENTS
from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.assets.stage import table_asset
from kbeval_pipeline.evaluation.extractive_writer import ExtractiveWriter
from kbeval_pipeline.evaluation.generation import GeneratedTestSet, generate_test_set
from kbeval_pipeline.evaluation.llm_writer import LLMWriter
from kbeval_pipeline.evaluation.question_filters import QuestionFilters
from kbeval_pipeline.evaluation.question_writers import QuestionWriter
from kbeval_pipeline.evaluation.result_rows import empty_saved_frame
from kbeval_pipeline.evaluation.test_sets import read_test_table, test_set_version
from kbeval_pipeline.project import Evaluation, GenerateData
from kbeval_pipeline.resources.llm_usage import record_usage
from kbeval_pipeline.resources.llms import run
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.resources.warehouse import Warehouse
from kbeval_pipeline.settings import TableName
from kbeval_pipeline.tables import TEST_SET


@table_asset(TEST_SET, "test_data", deps=[KB_DOCUMENTS])
def test_set(
    context: AssetExecutionContext, project: ProjectResource, warehouse: Warehouse
) -> Output[pl.DataFrame]:
    """Read the evaluation's test table, after generating it where the evaluation says so."""
    evaluation = project.evaluation(context.partition_key)
    sources = project.data_sources()
    table = TableName.parse(evaluation.test_table)
    if evaluation.save_to:
        sources.check_append(TableName.parse(evaluation.save_to), empty_saved_frame(evaluation.version))
    told: dict[str, Any] = {}
    if evaluation.generate_data:
        generated, origin, told = _generate(context, project, warehouse, evaluation, evaluation.generate_data)
        named = generated.rows if "doc_id" in evaluation.version else generated.rows.rename({"doc_id": "id"})
        sources.replace_table(table, named)
        rows = read_test_table(generated.rows, table=str(table), versions=evaluation.version)
        rows = rows.with_columns(origin=pl.lit(origin))
    else:
        rows = project.test_table(evaluation)
    version = test_set_version(rows)
    return Output(
        rows,
        metadata={
            "test_table": str(table),
            "test_set_version": version,
            "questions": rows["question_id"].n_unique(),
            "origin": rows["origin"][0],
            "sample": markdown_table(rows.select("row_number", "question", "doc_id", "answer")),
            **told,
        },
        data_version=DataVersion(version),
    )


def _generate(
    context: AssetExecutionContext,
    project: ProjectResource,
    warehouse: Warehouse,
    evaluation: Evaluation,
    how: GenerateData,
) -> tuple[GeneratedTestSet, str, dict[str, Any]]:
    """Generate the test table; return it, the writer's name and the account for the metadata."""
    documents = project.generation_source(evaluation)
    settings = project.llm(evaluation)
    spent: dict[str, Any] = {}
    writer: QuestionWriter
    if settings.provider == "offline":
        writer = ExtractiveWriter()
        generated = run(_write(documents, writer, evaluation, how))
    else:
        client = project.llm_client(settings, evaluation)
        writer = LLMWriter(client, 2 * settings.max_concurrency, name=settings.label)
        try:
            generated = run(_write(documents, writer, evaluation, how))
        finally:
            spent = record_usage(
                warehouse,
                client.usage,
                stage="generation",
                model=settings.label,
                evaluation=context.partition_key,
                run_id=context.run.run_id,
            )
    counts = {**asdict(generated.counts), "shortfall": generated.counts.shortfall}
    told = {f"generation/{name}": number for name, number in counts.items()}
    return generated, writer.name, {**told, "skipped": markdown_table(generated.skipped), **spent}


async def _write(
    documents: pl.DataFrame, writer: QuestionWriter, evaluation: Evaluation, how: GenerateData
) -> GeneratedTestSet:
    return await generate_test_set(
        documents,
        writer,
        count=how.count,
        seed=how.seed,
        filters=QuestionFilters(**how.filters.model_dump()),
        max_failure_rate=evaluation.max_failure_rate,
    )
