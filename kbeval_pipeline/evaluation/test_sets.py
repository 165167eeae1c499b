"""Test sets: a user's own table becomes checked rows with question ids and a version."""

from collections.abc import Sequence

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.hashing import content_hashes, frame_hash
from kbeval_pipeline.evaluation.ids import canonical_ids
from kbeval_pipeline.tables import TEST_SET

OWN = "own"
_KNOWN = ("question_id", "question", "answer", "doc_id", "grade", "text")
_SHOWN_ROWS = 10


def read_test_table(frame: pl.DataFrame, *, table: str, versions: Sequence[str]) -> pl.DataFrame:
    """Check a user's test table and bring it to the form of the warehouse.

    Args:
        frame: the table as read; column names are matched without regard to case. `question` is
            needed; `doc_id` too for version `doc_id`. `answer`, `grade`, `text` and `question_id`
            are used where present; further columns are kept as JSON.
        table: name of the table, for messages.
        versions: versions of the evaluation: `doc_id`, `llm_relevancy`.

    Returns:
        Rows of the table `test_set`.

    Raises:
        UserError: for a missing column, an empty table, and blank questions, null ids or unusable
            grades, with their row numbers.
    """
    frame = _with_known_names(frame, table)
    needed = ["question", "doc_id"] if "doc_id" in versions else ["question"]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise UserError(
            f"the test table {table} lacks the column {' and '.join(missing)}; "
            f"its columns are: {', '.join(frame.columns)}"
        )
    if frame.is_empty():
        raise UserError(f"the test table {table} has no rows")
    rows = frame.with_row_index("row_number", offset=1).with_columns(pl.col("question").cast(pl.String))
    _refuse_rows(rows, pl.col("question").str.strip_chars().fill_null("") == "", table, "a blank question")
    if "doc_id" in frame.columns:
        rows = rows.with_columns(canonical_ids(rows["doc_id"]).alias("doc_id"))
        if "doc_id" in versions:
            no_id = pl.col("doc_id").is_null() | (pl.col("doc_id").str.strip_chars() == "")
            _refuse_rows(rows, no_id, table, "no doc_id")
    if "grade" in frame.columns:
        grade = pl.col("grade").cast(pl.Float64, strict=False)
        _refuse_rows(rows, grade.is_null() | ~grade.is_finite(), table, "a grade that is not a number")
        rows = rows.with_columns(grade)
    rows = rows.with_columns(_question_ids(rows, table))
    further = [name for name in frame.columns if name not in _KNOWN]
    further_columns = (
        pl.struct(pl.col(name) for name in further).struct.json_encode() if further else pl.lit(None)
    )
    rows = rows.with_columns(
        further_columns.alias("further_columns"),
        pl.lit(OWN).alias("origin"),
        *([content_hashes(rows["text"]).alias("content_hash")] if "text" in frame.columns else []),
    )
    return TEST_SET.conform(rows.select(name for name in rows.columns if name in TEST_SET.schema))


def test_set_version(test_set: pl.DataFrame) -> str:
    """Name the content of a test set.

    Args:
        test_set: rows of the table `test_set`.

    Returns:
        SHA-256 over its questions, documents and grades; independent of row order.
    """
    content = test_set.select("question_id", "question", "doc_id", "grade")
    return frame_hash(content.sort(pl.all(), nulls_last=True))


def qrels_of(test_set: pl.DataFrame) -> pl.DataFrame:
    """Read the qrels out of a test set.

    Args:
        test_set: rows of the table `test_set`; a row without a grade is relevant (grade 1).

    Returns:
        `question_id, doc_id, grade`, one row for each graded pair.
    """
    return test_set.filter(pl.col("doc_id").is_not_null()).select(
        "question_id", "doc_id", pl.col("grade").fill_null(1.0)
    )


def expected_documents(test_set: pl.DataFrame) -> pl.DataFrame:
    """List what version `doc_id` looks for: the rows whose document is relevant.

    Args:
        test_set: rows of the table `test_set`.

    Returns:
        `row_number, question_id, doc_id` of the rows with a document and a grade of at least 1 or none.
    """
    return test_set.filter(pl.col("doc_id").is_not_null() & (pl.col("grade").fill_null(1.0) >= 1)).select(
        "row_number", "question_id", "doc_id"
    )


def _with_known_names(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    renames: dict[str, str] = {}
    for name in frame.columns:
        known = name.strip().lower()
        if known in _KNOWN:
            if known in renames.values():
                raise UserError(f'the test table {table} has two columns "{known}"')
            renames[name] = known
    return frame.rename(renames)


def _refuse_rows(rows: pl.DataFrame, unusable: pl.Expr, table: str, what: str) -> None:
    numbers = rows.filter(unusable)["row_number"].to_list()
    if numbers:
        shown = ", ".join(str(number) for number in numbers[:_SHOWN_ROWS])
        more = f" and {len(numbers) - _SHOWN_ROWS} more" if len(numbers) > _SHOWN_ROWS else ""
        raise UserError(
            f"the test table {table} has {what} in {len(numbers)} of {rows.height} rows: "
            f"row {shown}{more} (rows count from 1)"
        )


def _question_ids(rows: pl.DataFrame, table: str) -> pl.Series:
    if "question_id" not in rows.columns:
        return ("q" + content_hashes(rows["question"]).str.slice(0, 16)).alias("question_id")
    ids = canonical_ids(rows["question_id"]).alias("question_id")
    _refuse_rows(rows.with_columns(ids), pl.col("question_id").is_null(), table, "no question_id")
    counts = rows.with_columns(ids).group_by("question_id").agg(pl.col("question").n_unique())
    ambiguous = counts.filter(pl.col("question") > 1)["question_id"].sort().to_list()
    if ambiguous:
        raise UserError(
            f"the test table {table} gives one question_id to different questions: "
            f"{', '.join(ambiguous[:_SHOWN_ROWS])}"
        )
    return ids
