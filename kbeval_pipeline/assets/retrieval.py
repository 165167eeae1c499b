"""Retrieval: every question searched against the knowledge base."""

import numpy as np
import polars as pl
from dagster import AssetExecutionContext, Output, multi_asset

from kbeval_pipeline.assets.knowledge_bases import KB_DOCUMENTS, knowledge_base_observations
from kbeval_pipeline.assets.metadata import markdown_table
from kbeval_pipeline.assets.stage import readable_failures, table_out
from kbeval_pipeline.evaluation.retrieval import retrieve
from kbeval_pipeline.progress import track
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.tables import QUESTION_SEARCHES, RETRIEVED_CHUNKS


@multi_asset(
    name="retrieval",
    outs={table.name: table_out(table, "retrieval") for table in (QUESTION_SEARCHES, RETRIEVED_CHUNKS)},
    deps=[KB_DOCUMENTS],
)
@readable_failures
def retrieval(
    context: AssetExecutionContext, project: ProjectResource, test_set: pl.DataFrame
) -> tuple[Output[pl.DataFrame], Output[pl.DataFrame]]:
    """Search each distinct question once and keep what came back, in order."""
    evaluation = project.evaluation(context.partition_key)
    base = project.knowledge_base(evaluation.knowledge_base)
    with track("searching", test_set["question_id"].n_unique(), context.log) as advance:
        found = retrieve(base, test_set, top_k=evaluation.retrieval_depth, on_done=advance)
    fingerprint = found.searches["kb_fingerprint"][0]
    for observation in knowledge_base_observations([context.partition_key], base.name, fingerprint):
        context.log_event(observation)
    failed = found.searches.filter(pl.col("status") == "failed")
    skipped = base.skipped_documents()
    if skipped:
        context.log.warning(
            f"{len(skipped)} documents of {base.name} were left out, such as "
            + "; ".join(f"{document.where}: {document.cause}" for document in skipped[:5])
        )
    seconds = found.searches["query_seconds"].drop_nulls().to_numpy()
    return (
        Output(
            found.searches,
            metadata={
                "questions": found.searches.height,
                "failed": failed.height,
                "query_seconds_mean": float(np.mean(seconds)) if len(seconds) else 0.0,
                "query_seconds_p95": float(np.quantile(seconds, 0.95)) if len(seconds) else 0.0,
                "failures": markdown_table(failed.select("question_id", "question", "error")),
            },
        ),
        Output(
            found.chunks,
            metadata={
                "knowledge_base": base.name,
                "kb_fingerprint": fingerprint,
                "top_k": evaluation.retrieval_depth,
                "documents_found": found.chunks["doc_id"].n_unique(),
                "documents_left_out": len(skipped),
                "sample": markdown_table(
                    found.chunks.select("question_id", "rank", "doc_id", "score", "content")
                ),
            },
        ),
    )
