"""Every table of the warehouse, declared once."""

import polars as pl

from kbeval_pipeline.evaluation.agreement import STATISTICS
from kbeval_pipeline.table_schema import Column, Table

STATISTICS_MEANING = {
    "kappa": "Cohen's kappa over the grades",
    "kappa_binary": "Cohen's kappa of relevant or not",
    "kappa_linear": "Kappa with linear weights",
    "kappa_quadratic": "Kappa with quadratic weights",
    "accuracy": "Share of equal grades",
    "accuracy_binary": "Share of equal verdicts of relevant or not",
    "bias": "Mean grade of the judge less that of people",
    "base_rate": "Share of pairs that people call relevant",
    "judge_rate": "Share of pairs that the judge calls relevant",
}

_TEXT, _INT, _REAL = pl.String(), pl.Int64(), pl.Float64()

TEST_SET = Table(
    "test_set",
    "One row for each question and document that answers it.",
    (
        Column("row_number", _INT, "Row of the test table, from 1.", minimum=1),
        Column("question_id", _TEXT, "Id of the question; equal questions share it."),
        Column("question", _TEXT, "The question."),
        Column("answer", _TEXT, "The reference answer.", nullable=True),
        Column("doc_id", _TEXT, "Id of the document that answers it, as canonical text.", nullable=True,
               sources=("kb_documents.doc_id",)),
        Column("grade", _REAL, "Relevance grade of the document; at least 1 is relevant.", nullable=True),
        Column("text", _TEXT, "Text from which the question was written.", nullable=True,
               sources=("kb_documents.content",)),
        Column("content_hash", _TEXT, "SHA-256 of that text.", nullable=True,
               sources=("kb_documents.content_hash",)),
        Column("origin", _TEXT, "Who wrote the question: `own`, or the writer that generated it."),
        Column("further_columns", _TEXT, "The test table's other columns, as a JSON object.", nullable=True),
    ),
    key=("row_number",),
)  # fmt: skip

QUESTION_SEARCHES = Table(
    "question_searches",
    "One row for each distinct question: how its search went.",
    (
        Column("question_id", _TEXT, "Id of the question.", sources=("test_set.question_id",)),
        Column("question", _TEXT, "The question as searched.", sources=("test_set.question",)),
        Column("status", _TEXT, "Whether the search succeeded.", values=("searched", "failed")),
        Column("n_hits", _INT, "Chunks returned.", minimum=0),
        Column("query_seconds", _REAL, "Duration of the search in seconds.", nullable=True, minimum=0),
        Column("error", _TEXT, "Why the search failed.", nullable=True),
        Column("kb_fingerprint", _TEXT, "Fingerprint of the knowledge base when it was searched."),
    ),
    key=("question_id",),
)

RETRIEVED_CHUNKS = Table(
    "retrieved_chunks",
    "One row for each question and rank.",
    (
        Column("question_id", _TEXT, "Id of the question.", sources=("test_set.question_id",)),
        Column("rank", _INT, "Rank as returned by the knowledge base, from 1.", minimum=1),
        Column("chunk_id", _TEXT, "Id of the chunk."),
        Column("doc_id", _TEXT, "Id of the chunk's document, as canonical text.",
               sources=("kb_documents.doc_id",)),
        Column("content", _TEXT, "Text of the chunk.", sources=("kb_documents.content",)),
        Column("content_hash", _TEXT, "SHA-256 of the chunk's text.", sources=("kb_documents.content",)),
        Column("score", _REAL, "Score given by the knowledge base; higher is better."),
    ),
    key=("question_id", "rank"),
)  # fmt: skip

_COVERAGE = (
    Column("n_questions", _INT, "Rows of the test table that count for this metric.", minimum=0,
           sources=("test_set.row_number",)),
    Column("n_measured", _INT, "Of these, measured.", minimum=0, sources=("question_searches.status",)),
    Column("n_failed", _INT, "Of these, failed.", minimum=0, sources=("question_searches.status",)),
)  # fmt: skip

_FOUND = ("test_set.doc_id", "retrieved_chunks.doc_id", "retrieved_chunks.rank")
_QUERY_TIME = ("question_searches.query_seconds",)

DOC_ID_METRICS = Table(
    "doc_id_metrics",
    "One row for each run: the documented metrics of version `doc_id`.",
    (
        Column("name", _TEXT, "Name of the knowledge base."),
        Column("top_k", _INT, "Chunks retrieved for a question.", minimum=1),
        Column("total", _INT, "Test rows whose search succeeded.", minimum=1, sources=_FOUND),
        Column("total_found", _INT, "Rows whose document is among the chunks.", minimum=0, sources=_FOUND),
        Column("retrieved_in_top_10", _INT, "Rows whose document is in the first 10.", minimum=0,
               sources=_FOUND),
        Column("cumulative_recall", _TEXT, "JSON object: position to share of rows found by there.",
               sources=_FOUND),
        Column("avg_query_time", _REAL, "Mean duration of one search, seconds.", minimum=0,
               sources=_QUERY_TIME),
        Column("query_time_p50", _REAL, "Median of it.", minimum=0, sources=_QUERY_TIME),
        Column("query_time_p95", _REAL, "95th percentile of it.", minimum=0, sources=_QUERY_TIME),
        Column("query_time_max", _REAL, "Longest search.", minimum=0, sources=_QUERY_TIME),
        *_COVERAGE,
    ),
    key=("name",),
)  # fmt: skip

RELEVANCE_JUDGMENTS = Table(
    "relevance_judgments",
    "One row for each judged chunk and judge: the score of its text for the question. Where a panel judges, "
    "the rows of method `panel` hold the median, which counts.",
    (
        Column("question_id", _TEXT, "Id of the question.", sources=("retrieved_chunks.question_id",)),
        Column("rank", _INT, "Rank of the chunk.", minimum=1, sources=("retrieved_chunks.rank",)),
        Column("chunk_id", _TEXT, "Id of the chunk.", sources=("retrieved_chunks.chunk_id",)),
        Column("doc_id", _TEXT, "Id of its document.", sources=("retrieved_chunks.doc_id",)),
        Column("content_hash", _TEXT, "SHA-256 of its text.", sources=("retrieved_chunks.content_hash",)),
        Column("status", _TEXT, "Whether the judgment succeeded.", values=("judged", "failed")),
        Column("score", _REAL, "Relevance; null where the judgment failed.", nullable=True, minimum=0,
               maximum=1, sources=("retrieved_chunks.content", "test_set.question")),
        Column("label", _TEXT, "What the judge replied.", nullable=True),
        Column("reason", _TEXT, "Why, where the method gives a reason.", nullable=True),
        Column("error", _TEXT, "Why the judgment failed.", nullable=True),
        Column("judge", _TEXT, "Provider and model; `offline` is no language model."),
        Column("method", _TEXT, "How it judged."),
        Column("prompt_version", _TEXT, "Version of the prompt."),
        Column("input_tokens", _INT, "Tokens sent, told at the first chunk of a text.", nullable=True,
               minimum=0),
        Column("output_tokens", _INT, "Tokens received, likewise.", nullable=True, minimum=0),
        Column("cost", _REAL, "Cost of the calls, likewise; null is unknown.", nullable=True, minimum=0),
        Column("stored", pl.Boolean(), "Whether the reply came from the store, at no cost now."),
        Column("disagreement", _REAL, "Of a panel: largest less smallest score.", nullable=True, minimum=0,
               maximum=1),
    ),
    key=("question_id", "rank", "judge"),
)  # fmt: skip

_SCORES = ("relevance_judgments.score",)

LLM_RELEVANCY_METRICS = Table(
    "llm_relevancy_metrics",
    "One row for each run: the documented metrics of version `llm_relevancy`.",
    (
        Column("name", _TEXT, "Name of the knowledge base."),
        Column("judge", _TEXT, "Provider and model; `offline` is no language model.",
               sources=("relevance_judgments.judge",)),
        Column("method", _TEXT, "How it judged.", sources=("relevance_judgments.method",)),
        Column("prompt_version", _TEXT, "Version of the prompt.",
               sources=("relevance_judgments.prompt_version",)),
        Column("top_k", _INT, "Chunks judged for a question.", minimum=1),
        Column("relevance_threshold", _REAL, "Score from which a chunk is relevant.", minimum=0, maximum=1),
        Column("avg_relevancy", _REAL, "Mean score.", nullable=True, minimum=0, maximum=1, sources=_SCORES),
        Column("avg_relevance_score_by_k", _TEXT, "JSON list: mean score by rank.", sources=_SCORES),
        Column("avg_first_relevant_position", _REAL, "Mean position, from 0, of the first relevant chunk.",
               nullable=True, minimum=0, sources=_SCORES),
        Column("mean_mrr", _REAL, "Mean reciprocal rank.", nullable=True, minimum=0, maximum=1,
               sources=_SCORES),
        Column("hit_at_k", _TEXT, "JSON list: share of questions with a relevant chunk by rank.",
               sources=_SCORES),
        Column("bin_precision_at_k", _TEXT, "JSON list: mean binary precision by rank.", sources=_SCORES),
        Column("avg_entropy", _REAL, "Mean entropy of the scores, natural logarithm.", nullable=True,
               minimum=0, sources=_SCORES),
        Column("avg_ndcg", _REAL, "Mean nDCG of the scores.", nullable=True, minimum=0, maximum=1,
               sources=_SCORES),
        Column("judged_at_k", _TEXT, "JSON list: share of chunks with a judgment by rank.",
               sources=("relevance_judgments.status",)),
        Column("n_judgments", _INT, "Chunks to judge.", minimum=0, sources=("relevance_judgments.rank",)),
        Column("n_failed_judgments", _INT, "Of these, failed.", minimum=0,
               sources=("relevance_judgments.status",)),
        Column("avg_query_time", _REAL, "Mean duration of one search, seconds.", nullable=True, minimum=0,
               sources=_QUERY_TIME),
        *_COVERAGE,
    ),
    key=("name",),
)  # fmt: skip

LLM_USAGE = Table(
    "llm_usage",
    "One row for each run and stage that asks a model: calls, tokens and cost.",
    (
        Column(
            "stage", _TEXT, "What the model was asked for.", values=("generation", "judging", "calibration")
        ),
        Column("model", _TEXT, "Provider and model."),
        Column("calls", _INT, "Calls that were answered.", minimum=0),
        Column("stored_replies", _INT, "Replies that needed no call.", minimum=0),
        Column("retries", _INT, "Calls made again after a passing fault.", minimum=0),
        Column("failed_calls", _INT, "Requests that failed for good.", minimum=0),
        Column("input_tokens", _INT, "Tokens sent.", minimum=0),
        Column("cached_tokens", _INT, "Of these, cached by the provider.", minimum=0),
        Column("output_tokens", _INT, "Tokens received.", minimum=0),
        Column("cost", _REAL, "Cost; null is unknown.", nullable=True, minimum=0),
    ),
    key=("stage", "model"),
)

QUESTION_METRICS = Table(
    "question_metrics",
    "One row for each question, metric and cut-off.",
    (
        Column("question_id", _TEXT, "Id of the question.", sources=("test_set.question_id",)),
        Column("metric", _TEXT, "Name of the metric."),
        Column("k", _INT, "Cut-off; null where the metric has none.", nullable=True, minimum=1),
        Column("value", _REAL, "The question's value.", nullable=True, minimum=0,
               sources=("test_set.grade", *_FOUND)),
    ),
    key=("question_id", "metric", "k"),
)  # fmt: skip

JUDGE_CALIBRATION = Table(
    "judge_calibration",
    "One row for each judge version: its agreement with human labels, with 95 % bootstrap intervals.",
    (
        Column("judge", _TEXT, "Judge, method and prompt version."),
        Column("n", _INT, "Labelled pairs with a judgment.", minimum=0),
        Column("n_failed", _INT, "Labelled pairs whose judgment failed.", minimum=0),
        *(
            Column(f"{name}{part}", _REAL, f"{STATISTICS_MEANING[name]}{meaning}", nullable=True)
            for name in STATISTICS
            for part, meaning in (("", "."), ("_ci_low", ", lower end."), ("_ci_high", ", upper end."))
        ),
    ),
    key=("judge",),
)

JUDGE_CONFUSION = Table(
    "judge_confusion",
    "One row for each judge version and pair of grades: how often the judge gave which.",
    (
        Column("judge", _TEXT, "Judge, method and prompt version."),
        Column("human_grade", _REAL, "Grade given by people.", minimum=0),
        Column("judge_grade", _REAL, "Grade given by the judge.", minimum=0),
        Column("n", _INT, "Number of pairs.", minimum=0),
    ),
    key=("judge", "human_grade", "judge_grade"),
)

EXTENDED_METRICS = Table(
    "extended_metrics",
    "One row for each metric and cut-off: the mean over questions with its bootstrap interval.",
    (
        Column("metric", _TEXT, "Name of the metric.", sources=("question_metrics.metric",)),
        Column("k", _INT, "Cut-off; null where the metric has none.", nullable=True, minimum=1,
               sources=("question_metrics.k",)),
        Column("value", _REAL, "Mean over the judged questions.", minimum=0,
               sources=("question_metrics.value",)),
        Column("ci_low", _REAL, "Lower end of the 95 % bootstrap interval.", minimum=0,
               sources=("question_metrics.value",)),
        Column("ci_high", _REAL, "Upper end of it.", minimum=0, sources=("question_metrics.value",)),
        Column("n", _INT, "Questions in the mean.", minimum=1, sources=("question_metrics.question_id",)),
    ),
    key=("metric", "k"),
)  # fmt: skip

_RESULT_COLUMNS = {
    column.name: Column(
        column.name, column.dtype, column.description, nullable=True, minimum=column.minimum,
        sources=tuple(
            f"{other.name}.{column.name}"
            for other in (DOC_ID_METRICS, LLM_RELEVANCY_METRICS)
            if column.name in other.schema
        ),
    )
    for table in (DOC_ID_METRICS, LLM_RELEVANCY_METRICS)
    for column in table.columns
}  # fmt: skip

EVALUATION_RESULTS = Table(
    "evaluation_results",
    "One row for each run and version: the result row, with what it was measured on.",
    (
        Column("version", _TEXT, "Version of the evaluation.", values=("doc_id", "llm_relevancy")),
        *_RESULT_COLUMNS.values(),
        Column("test_set_version", _TEXT, "SHA-256 of the test set's questions, documents and grades.",
               sources=("test_set.question", "test_set.doc_id", "test_set.grade")),
        Column("kb_fingerprint", _TEXT, "Fingerprint of the knowledge base when it was searched.",
               sources=("kb_documents.content_hash",)),
        Column("warning", _TEXT, "What a reader must know about these numbers.", nullable=True),
    ),
    key=("version",),
)  # fmt: skip

EVALUATION_TABLES = (
    TEST_SET,
    QUESTION_SEARCHES,
    RETRIEVED_CHUNKS,
    DOC_ID_METRICS,
    RELEVANCE_JUDGMENTS,
    LLM_RELEVANCY_METRICS,
    JUDGE_CALIBRATION,
    JUDGE_CONFUSION,
    QUESTION_METRICS,
    EXTENDED_METRICS,
    EVALUATION_RESULTS,
)
TABLES = {table.name: table for table in EVALUATION_TABLES}
# Written by the stages that ask a model, not by an asset of their own.
ALL_TABLES = (*EVALUATION_TABLES, LLM_USAGE)
