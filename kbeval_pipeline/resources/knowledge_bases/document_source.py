"""Makes the source that a knowledge base's documents are listed from."""

from collections.abc import Sequence
from pathlib import Path

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import DocumentsSettings
from kbeval_pipeline.resources.knowledge_bases.local_documents import DocumentSource
from kbeval_pipeline.resources.knowledge_bases.local_files import FileDocuments
from kbeval_pipeline.resources.knowledge_bases.local_tables import TableDocuments, TableReader
from kbeval_pipeline.resources.knowledge_bases.protocol import SkippedDocument

_CAUSES_SHOWN = 3


def make_document_source(
    name: str, documents: DocumentsSettings, data_sources: TableReader, index_folder: Path
) -> DocumentSource:
    """Make the reader of files, a table or a query; nothing is read yet.

    Args:
        name: the knowledge base's name.
        documents: where its documents are, with absolute paths.
        data_sources: reads tables and queries.
        index_folder: holds a folder for each knowledge base, in which the files' hashes are remembered.

    Returns:
        The source.

    Raises:
        UserError: when the name cannot name a folder.
    """
    folder = knowledge_base_folder(name, index_folder)
    if documents.files is None:
        return TableDocuments(documents, data_sources)
    return FileDocuments(
        documents.files, documents.include, documents.encoding, documents.max_file_mb, folder
    )


def knowledge_base_folder(name: str, index_folder: Path) -> Path:
    """Name the folder of a knowledge base.

    Args:
        name: the knowledge base's name.
        index_folder: holds the folders of all.

    Returns:
        A folder below it.

    Raises:
        UserError: when the name cannot name a folder.
    """
    if not name.strip("."):
        raise UserError(f'knowledge base "{name}": a name of dots cannot name a folder; choose another')
    return index_folder / name


def no_documents(name: str, source: DocumentSource, skipped: Sequence[SkippedDocument]) -> UserError:
    """Make the error for a source that holds no document.

    Args:
        name: the knowledge base's name.
        source: the source.
        skipped: what was left out of it.

    Returns:
        An error with the first causes.
    """
    shown = "; ".join(f"{item.where}: {item.cause}" for item in skipped[:_CAUSES_SHOWN])
    more = f" and {len(skipped) - _CAUSES_SHOWN} more" if len(skipped) > _CAUSES_SHOWN else ""
    left_out = f"; left out: {shown}{more}" if skipped else ""
    return UserError(
        f'knowledge base "{name}" has no document in {source.describe()}{left_out}; check `documents`'
    )
