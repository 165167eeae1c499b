"""The test set: the user's own table, or questions generated from documents."""

from dataclasses import asdict

import polars as pl
from dagster import AssetExecutionContext, DataVersion, Output, asset

from kbeval_pipeline.assets.knowledge_bases import KB_DOCUMENTS
from kbeval_pipeline.assets.metadata import markdown_table, table_metadata
from kbeval_pipeline.assets.stage import readable_failures
from kbeval_pipeline.evaluation import extractive_writer
from kbeval_pipeline.evaluation.generation import GeneratedTestSet, generate_test_set, source_documents
from kbeval_pipeline.evaluation.result_rows import empty_saved_frame
from kbeval_pipeline.evaluation.test_sets import read_test_table, test_set_version
from kbeval_pipeline.project import Evaluation, GenerateData
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.settings import TableName
from kbeval_pipeline.tables import TEST_SET


@asset(
    group_name="test_data",
    kinds={"polars", "duckdb"},
    deps=[KB_DOCUMENTS],
    description=TEST_SET.description,
    metadata=table_metadata(TEST_SET),
)
@readable_failures
def test_set(context: AssetExecutionContext, project: ProjectResource) -> Output[pl.DataFrame]:
    """Read the evaluation's test table, after generating it where the evaluation says so."""
    evaluation = project.evaluation(context.partition_key)
    sources = project.data_sources()
    table = TableName.parse(evaluation.test_table)
    if evaluation.save_to:
        for saved in evaluation.version:
            sources.check_append(TableName.parse(evaluation.save_to), empty_saved_frame(saved))
    counts: dict[str, int] = {}
    if evaluation.generate_data:
        generated = _generate(project, evaluation, evaluation.generate_data)
        sources.replace_table(table, generated.rows)
        counts = {**asdict(generated.counts), "shortfall": generated.counts.shortfall}
        origin = extractive_writer.NAME
        rows = read_test_table(generated.rows, table=str(table), versions=evaluation.version)
        rows = rows.with_columns(origin=pl.lit(origin))
    else:
        rows = read_test_table(sources.read_table(table), table=str(table), versions=evaluation.version)
    version = test_set_version(rows)
    return Output(
        rows,
        metadata={
            "test_table": str(table),
            "test_set_version": version,
            "questions": rows["question_id"].n_unique(),
            "origin": rows["origin"][0],
            "sample": markdown_table(rows.select("row_number", "question", "doc_id", "answer")),
            **{f"generation/{name}": number for name, number in counts.items()},
        },
        data_version=DataVersion(version),
    )


def _generate(project: ProjectResource, evaluation: Evaluation, how: GenerateData) -> GeneratedTestSet:
    project.llm(evaluation)
    if how.from_sql:
        found = project.data_sources().query(how.from_sql)
        documents = source_documents(found, source="generate_data.from_sql")
    else:
        base = project.knowledge_base(evaluation.knowledge_base)
        listed = [(document.id, document.content) for document in base.documents()]
        documents = pl.DataFrame(listed, schema={"doc_id": pl.String, "content": pl.String}, orient="row")
    return generate_test_set(documents, extractive_writer.write_questions, count=how.count, seed=how.seed)
