"""Calibration: a judge's grades beside those of people."""

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.hashing import content_hashes
from kbeval_pipeline.evaluation.offline_judge import NAME as OFFLINE

GRADES = (0.0, 1.0, 2.0, 3.0)
_RECORDED = {"judge", "grade", "judge_grade"}
_TO_JUDGE = {"question", "passage", "grade"}


def is_recorded(labels: pl.DataFrame, table: str) -> bool:
    """Tell whether a table of labels holds judgments already, and check its columns.

    Args:
        labels: the table as read.
        table: its name, for messages.

    Raises:
        UserError: when it has the columns of neither form.
    """
    columns = set(labels.columns)
    if columns >= _RECORDED:
        return True
    if columns >= _TO_JUDGE:
        return False
    raise UserError(
        f"the calibration table {table} needs the columns question, passage, grade, or judge, grade, "
        f"judge_grade; its columns are: {', '.join(labels.columns)}"
    )


def recorded_labels(labels: pl.DataFrame) -> pl.DataFrame:
    """Bring recorded judgments to the form of `agreement.calibration_report`."""
    return labels.select(
        pl.col("judge").cast(pl.String),
        human_grade=pl.col("grade").cast(pl.Float64),
        judge_grade=pl.col("judge_grade").cast(pl.Float64),
    )


def calibration_pairs(labels: pl.DataFrame, table: str) -> pl.DataFrame:
    """Bring labelled pairs to the form in which chunks are judged.

    Args:
        labels: `question, passage, grade`.
        table: its name, for messages.

    Returns:
        Rows as `judging.judged_pairs` returns them, with `grade`; one question id for each row.

    Raises:
        UserError: for blank texts and grades off the scale, with their row numbers.
    """
    rows = labels.with_row_index("row", offset=1).with_columns(pl.col("grade").cast(pl.Float64, strict=False))
    blank = pl.any_horizontal(
        pl.col(name).cast(pl.String).str.strip_chars().fill_null("") == "" for name in ("question", "passage")
    )
    unusable = rows.filter(blank | ~pl.col("grade").is_in(GRADES).fill_null(False))["row"].to_list()
    if unusable:
        raise UserError(
            f"the calibration table {table} has a blank text or a grade that is not 0, 1, 2 or 3 in row "
            f"{', '.join(map(str, unusable[:10]))} ({len(unusable)} rows)"
        )
    return rows.select(
        question_id=pl.format("row {}", "row"),
        question=pl.col("question").cast(pl.String),
        rank=pl.lit(1, pl.Int64),
        chunk_id=pl.format("row {}", "row"),
        doc_id=pl.lit(""),
        content=pl.col("passage").cast(pl.String),
        content_hash=content_hashes(rows["passage"].cast(pl.String)),
        grade=pl.col("grade"),
    )


def judge_warning(judge: str, method: str, prompt_version: str, calibration: pl.DataFrame) -> str | None:
    """Say what a reader must know of a judge before believing its numbers.

    Args:
        judge: who judged.
        method: how.
        prompt_version: by which wording.
        calibration: rows of the table `judge_calibration`.

    Returns:
        The warning; None for a calibrated language model.
    """
    warnings = []
    if judge == OFFLINE:
        warnings.append(
            "the judge is offline: the cosine of question and passage, no language model; circular where the "
            "knowledge base ranks by the same vectors"
        )
    if f"{judge} {method} {prompt_version}" not in set(calibration["judge"]):
        warnings.append("uncalibrated: this judge has not been compared with human labels")
    return "; ".join(warnings) or None


def judged_labels(pairs: pl.DataFrame, judgments: pl.DataFrame) -> pl.DataFrame:
    """Put grades of judges beside those of people.

    A score becomes a grade of the human scale: of method `multi-class`, whose scores are 0.25 to 1, the
    nearest of four classes; of the others the nearest third.

    Args:
        pairs: what `calibration_pairs` returned.
        judgments: rows of the table `relevance_judgments`, of all judges.

    Returns:
        `judge, human_grade, judge_grade`; null where the judgment failed.
    """
    classes = (pl.col("score") * 4).round() - 1
    thirds = (pl.col("score") * 3).round()
    graded = judgments.select(
        "question_id",
        judge=pl.format("{} {} {}", "judge", "method", "prompt_version"),
        judge_grade=pl.when(pl.col("method") == "multi-class").then(classes).otherwise(thirds).clip(0, 3),
    )
    return graded.join(pairs.select("question_id", human_grade="grade"), on="question_id").drop("question_id")
