"""Metrics of an evaluation: per question, aggregated, and the result row."""

import json

import polars as pl
from dagster import AssetExecutionContext, MetadataValue, Output

from kbeval_pipeline.assets.metadata import cumulative_recall_plot, markdown_table
from kbeval_pipeline.assets.stage import table_asset
from kbeval_pipeline.evaluation.calibration import judge_warning
from kbeval_pipeline.evaluation.doc_id_report import doc_id_report
from kbeval_pipeline.evaluation.llm_relevancy_report import llm_relevancy_questions, llm_relevancy_report
from kbeval_pipeline.evaluation.panels import counted
from kbeval_pipeline.evaluation.ranking_metrics import (
    count_repeats,
    question_ranking_metrics,
    rank_documents,
    summarise,
)
from kbeval_pipeline.evaluation.test_sets import qrels_of, test_set_version
from kbeval_pipeline.resources.project import ProjectResource
from kbeval_pipeline.tables import (
    DOC_ID_METRICS,
    EVALUATION_RESULTS,
    EXTENDED_METRICS,
    LLM_RELEVANCY_METRICS,
    QUESTION_METRICS,
)

REPORTED_METRICS = ("recall", "precision", "hit", "mrr", "map", "ndcg", "r_precision", "bpref")
_SEARCHED = pl.col("status") == "searched"


@table_asset(DOC_ID_METRICS, "metrics", pool="warehouse")
def doc_id_metrics(
    context: AssetExecutionContext,
    project: ProjectResource,
    test_set: pl.DataFrame,
    question_searches: pl.DataFrame,
    retrieved_chunks: pl.DataFrame,
) -> Output[pl.DataFrame]:
    """Compute the documented metrics of version `doc_id`; no row where the evaluation lacks it."""
    evaluation = project.evaluation(context.partition_key)
    if "doc_id" not in evaluation.version:
        return Output(DOC_ID_METRICS.frame(), metadata={"note": "the evaluation has no version doc_id"})
    row = doc_id_report(
        test_set,
        question_searches,
        retrieved_chunks,
        name=evaluation.knowledge_base,
        top_k=evaluation.retrieval_depth,
    )
    numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
    recall = json.loads(str(row["cumulative_recall"]))
    return Output(
        DOC_ID_METRICS.frame([row]),
        metadata={
            **numbers,
            "share_found": row["total_found"] / row["total"],
            "cumulative_recall_plot": cumulative_recall_plot(recall),
            "cumulative_recall": MetadataValue.json(recall),
            "test_set_version": test_set_version(test_set),
        },
    )


@table_asset(LLM_RELEVANCY_METRICS, "metrics", pool="warehouse")
def llm_relevancy_metrics(
    context: AssetExecutionContext,
    project: ProjectResource,
    question_searches: pl.DataFrame,
    relevance_judgments: pl.DataFrame,
) -> Output[pl.DataFrame]:
    """Compute the documented metrics of version `llm_relevancy`; no row where the evaluation lacks it."""
    evaluation = project.evaluation(context.partition_key)
    if "llm_relevancy" not in evaluation.version:
        note = {"note": "the evaluation has no version llm_relevancy"}
        return Output(LLM_RELEVANCY_METRICS.frame(), metadata=note)
    depth, threshold = evaluation.judging_depth, evaluation.relevance_threshold
    judgments = counted(relevance_judgments)
    per_question = llm_relevancy_questions(
        question_searches, judgments, top_k=depth, relevance_threshold=threshold
    )
    row = {
        "name": evaluation.knowledge_base,
        "top_k": depth,
        "relevance_threshold": threshold,
        **llm_relevancy_report(per_question, question_searches, judgments),
    }
    told = {name: value for name, value in row.items() if value is not None}
    return Output(LLM_RELEVANCY_METRICS.frame([row]), metadata=told)


@table_asset(QUESTION_METRICS, "metrics", pool="warehouse")
def question_metrics(
    context: AssetExecutionContext,
    project: ProjectResource,
    test_set: pl.DataFrame,
    question_searches: pl.DataFrame,
    retrieved_chunks: pl.DataFrame,
    relevance_judgments: pl.DataFrame,
) -> Output[pl.DataFrame]:
    """Compute each searched question's metrics: against its documents, and by the judge's scores."""
    evaluation = project.evaluation(context.partition_key)
    searched = question_searches.filter(_SEARCHED).select("question_id")
    qrels = qrels_of(test_set).join(searched, on="question_id", how="semi")
    ks = [k for k in evaluation.ks if k <= evaluation.retrieval_depth] or [evaluation.retrieval_depth]
    per_question = question_ranking_metrics(
        qrels, rank_documents(retrieved_chunks), ks, metrics=REPORTED_METRICS
    )
    if "llm_relevancy" in evaluation.version:
        by_judge = llm_relevancy_questions(
            question_searches,
            counted(relevance_judgments),
            top_k=evaluation.judging_depth,
            relevance_threshold=evaluation.relevance_threshold,
        )
        per_question = pl.concat([per_question, by_judge])
    worst = (
        per_question.filter(metric="ndcg", k=max(ks))
        .sort("value", "question_id")
        .join(question_searches.select("question_id", "question"), on="question_id", how="left")
        .select("question_id", "question", pl.col("value").alias(f"ndcg@{max(ks)}"))
    )
    return Output(
        per_question,
        metadata={
            "questions": per_question["question_id"].n_unique(),
            "repeated_chunks_of_a_document": count_repeats(retrieved_chunks),
            "lowest": markdown_table(worst),
        },
    )


@table_asset(EXTENDED_METRICS, "metrics", pool="warehouse")
def extended_metrics(
    context: AssetExecutionContext, project: ProjectResource, question_metrics: pl.DataFrame
) -> Output[pl.DataFrame]:
    """Average each metric over the questions, with its bootstrap interval."""
    seed = project.evaluation(context.partition_key).seed
    means = summarise(question_metrics, seed=seed)
    numbers = {
        metric if k is None else f"{metric}@{k}": value
        for metric, k, value in means.select("metric", "k", "value").iter_rows()
        if k in (None, 1, 10)
    }
    return Output(means, metadata={**numbers, "metrics": markdown_table(means, rows=40)})


@table_asset(EVALUATION_RESULTS, "metrics", pool="warehouse")
def evaluation_results(
    test_set: pl.DataFrame,
    question_searches: pl.DataFrame,
    doc_id_metrics: pl.DataFrame,
    llm_relevancy_metrics: pl.DataFrame,
    judge_calibration: pl.DataFrame,
    extended_metrics: pl.DataFrame,
) -> Output[pl.DataFrame]:
    """Put the result rows together with what they were measured on."""
    version = test_set_version(test_set)
    fingerprint = question_searches["kb_fingerprint"][0]
    judges = llm_relevancy_metrics.select("judge", "method", "prompt_version").rows(named=True)
    warning = judge_warning(**judges[0], calibration=judge_calibration) if judges else None
    results = pl.concat(
        [
            doc_id_metrics.with_columns(version=pl.lit("doc_id")),
            llm_relevancy_metrics.with_columns(
                version=pl.lit("llm_relevancy"),
                warning=pl.lit(warning, pl.String),
            ),
        ],
        how="diagonal",
    ).with_columns(test_set_version=pl.lit(version), kb_fingerprint=pl.lit(fingerprint))
    numbers = {
        name: value
        for row in results.iter_rows(named=True)
        for name, value in row.items()
        if isinstance(value, int | float)
    }
    shown = extended_metrics.filter(pl.col("k").is_in([1, 10]) | pl.col("k").is_null())
    return Output(
        results,
        metadata={
            **numbers,
            "test_set_version": version,
            "kb_fingerprint": fingerprint,
            "extended": markdown_table(shown, rows=40),
        },
    )
