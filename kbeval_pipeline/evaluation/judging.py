"""Judging retrieved chunks: one judgment for each distinct pair of question and text."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl

from kbeval_pipeline.evaluation.judge_prompts import PROMPTS, judge_request
from kbeval_pipeline.evaluation.judge_scoring import (
    GRADES,
    binary_score,
    extract_json_object,
    graded_score,
    label_probabilities,
    multi_class_score,
    no_logprobs_score,
)
from kbeval_pipeline.project import JudgeMethod
from kbeval_pipeline.resources.llms import AskModel, CallError, Reply, for_each
from kbeval_pipeline.tables import RELEVANCE_JUDGMENTS

MAX_ATTEMPTS = 3
_LONGEST_CAUSE = 500


@dataclass(frozen=True)
class Judge:
    """Who judges, and how.

    Attributes:
        model: what is asked.
        name: provider and model, as shown in every judgment.
        method: the method.
        logprobs: whether the model returns log-probabilities.
        workers: judgments under way at once.
    """

    model: AskModel
    name: str
    method: JudgeMethod
    logprobs: bool
    workers: int


@dataclass(frozen=True)
class Pair:
    """A question and a text to judge against it."""

    question: str
    content_hash: str
    content: str


@dataclass(frozen=True)
class Judgment:
    """What came of one pair; `score` is None where it failed."""

    score: float | None
    label: str | None = None
    reason: str | None = None
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    stored: bool = False


def judged_pairs(searches: pl.DataFrame, chunks: pl.DataFrame, top_k: int) -> pl.DataFrame:
    """List the chunks to judge.

    Args:
        searches: rows of the table `question_searches`.
        chunks: rows of the table `retrieved_chunks`.
        top_k: chunks to judge for a question.

    Returns:
        `question_id, question, rank, chunk_id, doc_id, content, content_hash`, in order of question and rank.
    """
    return (
        chunks.filter(pl.col("rank") <= top_k)
        .join(searches.select("question_id", "question"), on="question_id", maintain_order="left")
        .drop("score")
    )


async def judge_chunks(
    judge: Judge, pairs: pl.DataFrame, on_done: Callable[[], None] = lambda: None
) -> pl.DataFrame:
    """Judge each chunk; equal texts under one question are judged once.

    A judgment whose reply cannot be used is asked again with the reason, twice at most; then it is recorded
    as failed with its cause, never as 0. The result does not depend on the order of completion.

    Args:
        judge: who judges.
        pairs: what `judged_pairs` returned.
        on_done: called after each distinct pair.

    Returns:
        Rows of the table `relevance_judgments`.

    Raises:
        ProviderError: when every call would fail.
        BudgetExceeded: when `max_cost` is reached; what was judged is in the reply store.
    """
    distinct = pairs.select("question", "content_hash", "content").unique(
        ["question", "content_hash"], maintain_order=True
    )
    asked = [Pair(*row) for row in distinct.iter_rows()]
    found: list[Judgment | None] = [None] * len(asked)

    async def work(number: int, pair: Pair) -> None:
        found[number] = await judge_pair(judge, pair)
        on_done()

    await for_each(asked, work, workers=judge.workers)
    return judgment_rows(
        pairs,
        distinct.select("question", "content_hash"),
        [judgment for judgment in found if judgment is not None],
        judge_name=judge.name,
        method=judge.method,
        prompt_version=PROMPTS[judge.method].version,
    )


async def judge_pair(judge: Judge, pair: Pair) -> Judgment:
    """Judge one text against one question, asking again where the reply cannot be used."""
    unusable: tuple[str, str] | None = None
    replies: list[Reply] = []
    for attempt in range(MAX_ATTEMPTS):
        request = judge_request(
            judge.method,
            pair.question,
            pair.content,
            logprobs=judge.logprobs,
            attempt=attempt,
            unusable=unusable,
        )
        try:
            reply = await judge.model.ask(request)
        except CallError as error:
            return _spent(replies, Judgment(None, error=str(error)[:_LONGEST_CAUSE]))
        replies.append(reply)
        try:
            return _spent(replies, read_judgment(judge.method, reply))
        except ValueError as error:
            unusable = (reply.text, str(error))
    cause = f"no usable reply in {MAX_ATTEMPTS} attempts: {unusable[1] if unusable else ''}"
    return _spent(replies, Judgment(None, error=cause[:_LONGEST_CAUSE]))


def read_judgment(method: JudgeMethod, reply: Reply) -> Judgment:
    """Read the score out of a reply.

    Args:
        method: the method that was asked for.
        reply: the reply.

    Returns:
        The judgment, without what was spent.

    Raises:
        ValueError: when the reply cannot be used; the message is what the model is told.
    """
    if method == "no-logprobs":
        found = extract_json_object(reply.text)
        if "score" not in found:
            raise ValueError('the reply has no "score"')
        score = no_logprobs_score(found["score"])
        return Judgment(score, label=str(found["score"]), reason=_text(found.get("reason")))
    if method == "graded" and reply.logprobs is None:
        return Judgment(graded_score(reply.text), label=reply.text.strip())
    if reply.logprobs is None:
        raise ValueError("the reply came without log-probabilities")
    if method == "multi-class":
        score = multi_class_score(reply.logprobs)
    elif method == "binary":
        score = binary_score(reply.logprobs)
    else:
        score = graded_score(label_probabilities(reply.logprobs, GRADES))
    return Judgment(score, label=reply.text.strip()[:_LONGEST_CAUSE])


def judgment_rows(
    pairs: pl.DataFrame,
    distinct: pl.DataFrame,
    judgments: Iterable[Judgment],
    *,
    judge_name: str,
    method: str,
    prompt_version: str,
) -> pl.DataFrame:
    """Give every chunk the judgment of its pair.

    Args:
        pairs: what `judged_pairs` returned.
        distinct: `question, content_hash` of the distinct pairs.
        judgments: theirs, in the same order.
        judge_name: provider and model.
        method: the method.
        prompt_version: the prompt's version.

    Returns:
        Rows of the table `relevance_judgments`.
    """
    kept = [
        "score", "label", "reason", "error", "input_tokens", "output_tokens", "cost", "stored",
    ]  # fmt: skip
    schema = {name: RELEVANCE_JUDGMENTS.schema[name] for name in kept}
    columns = pl.DataFrame([[getattr(j, name) for name in kept] for j in judgments], schema, orient="row")
    rows = pairs.join(
        pl.concat([distinct, columns], how="horizontal"),
        on=["question", "content_hash"],
        how="left",
        maintain_order="left",
    )
    # What a pair cost is told once, at the first chunk that has it.
    first = pl.struct("question", "content_hash").is_first_distinct()
    return RELEVANCE_JUDGMENTS.conform(
        rows.with_columns(
            *(pl.when(first).then(pl.col(name)) for name in ("input_tokens", "output_tokens", "cost")),
            status=pl.when(pl.col("score").is_null()).then(pl.lit("failed")).otherwise(pl.lit("judged")),
            judge=pl.lit(judge_name),
            method=pl.lit(method),
            prompt_version=pl.lit(prompt_version),
        ).drop("question", "content")
    )


def _spent(replies: list[Reply], judgment: Judgment) -> Judgment:
    def total(values: list[int | None]) -> int | None:
        return None if None in values or not values else sum(value or 0 for value in values)

    costs = [reply.cost for reply in replies]
    return Judgment(
        judgment.score,
        judgment.label,
        judgment.reason,
        judgment.error,
        total([reply.input_tokens for reply in replies]),
        total([reply.output_tokens for reply in replies]),
        None if None in costs or not costs else sum(cost or 0.0 for cost in costs),
        bool(replies) and all(reply.stored for reply in replies),
    )


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None
