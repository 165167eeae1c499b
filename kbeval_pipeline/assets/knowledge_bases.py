"""The knowledge base as an observed asset: its data version is its fingerprint."""

from collections.abc import Iterable

from dagster import (
    AssetObservation,
    AssetsDefinition,
    DataVersion,
    DataVersionsByPartition,
    OpExecutionContext,
    PartitionsDefinition,
    SourceAsset,
    TableColumn,
    TableSchema,
    observable_source_asset,
)

from kbeval_pipeline.assets.stage import readable_failures
from kbeval_pipeline.resources.project import ProjectResource

KB_DOCUMENTS = "kb_documents"
_DATA_VERSION_TAG = "dagster/data_version"

_COLUMNS = TableSchema(
    columns=[
        TableColumn("doc_id", "VARCHAR", "Id of the document, as canonical text."),
        TableColumn("content", "VARCHAR", "Text of the document."),
        TableColumn("content_hash", "VARCHAR", "SHA-256 of the text."),
    ]
)


def knowledge_base_assets(partitions: PartitionsDefinition[str]) -> list[SourceAsset | AssetsDefinition]:
    """Make the observed asset of the documents.

    Args:
        partitions: one partition for each evaluation.
    """

    @observable_source_asset(
        name=KB_DOCUMENTS,
        group_name="knowledge_base",
        description="Documents of the knowledge base that an evaluation searches.",
        metadata={"dagster/column_schema": _COLUMNS},
        partitions_def=partitions,
    )
    @readable_failures
    def kb_documents(context: OpExecutionContext, project: ProjectResource) -> DataVersionsByPartition:
        versions: dict[str, str | DataVersion] = {}
        for name in context.partition_keys:
            base = project.knowledge_base(project.evaluation(name).knowledge_base)
            versions[name] = base.fingerprint()
        return DataVersionsByPartition(versions)

    return [kb_documents]


def knowledge_base_observations(
    evaluations: Iterable[str], knowledge_base: str, fingerprint: str
) -> list[AssetObservation]:
    """Say which version of the documents was seen, for each evaluation that searches them.

    Args:
        evaluations: names of the evaluations.
        knowledge_base: name of the knowledge base.
        fingerprint: its fingerprint.
    """
    return [
        AssetObservation(
            KB_DOCUMENTS,
            partition=evaluation,
            tags={_DATA_VERSION_TAG: fingerprint},
            metadata={"knowledge_base": knowledge_base, "fingerprint": fingerprint},
        )
        for evaluation in evaluations
    ]
