"""Opening a judge: which method the model can do, found out with the first judgment itself."""

from collections.abc import Iterator

import polars as pl

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.judge_prompts import judge_request
from kbeval_pipeline.evaluation.judging import Judge
from kbeval_pipeline.project import JudgeMethod
from kbeval_pipeline.resources.llms import CallError, LLMClient, LogprobsRefusedError, Request


async def open_judge(client: LLMClient, pairs: pl.DataFrame) -> Judge:
    """Choose the method and see that key and model are right, before many calls are made.

    The first judgment that the reply store lacks is asked alone; its reply is stored, so that this costs
    no call. When nothing is missing, nothing is asked.

    Args:
        client: the model.
        pairs: what will be judged.

    Returns:
        The judge.

    Raises:
        ProviderError: for a wrong key or an unknown model, after one call.
        UserError: when the method needs log-probabilities and the model gives none.
    """
    settings = client.settings
    method, logprobs = likely_method(client)
    if not logprobs and method in ("multi-class", "binary"):
        raise _needs_logprobs(client, method)
    without = judge_requests("no-logprobs", pairs, logprobs=False)
    undecided = client.supports_logprobs() is None and settings.method is None
    # An earlier run may have found out that there are none: then its replies are all there.
    if undecided and _first_missing(client, without) is None:
        method, logprobs = "no-logprobs", False
    missing = _first_missing(client, judge_requests(method, pairs, logprobs=logprobs))
    if missing is not None:
        try:
            await client.ask(missing)
        except LogprobsRefusedError:
            if settings.method in ("multi-class", "binary"):
                raise _needs_logprobs(client, method) from None
            logprobs = False
            method = "graded" if method == "graded" else "no-logprobs"
        except CallError:
            pass  # this judgment failed; whether too many do is told by the failure rate
    return Judge(client, settings.label, method, logprobs, 2 * settings.max_concurrency)


def likely_method(client: LLMClient) -> tuple[JudgeMethod, bool]:
    """Say how a model will judge, by its settings and what is known of it so far.

    Args:
        client: the model.

    Returns:
        The method, and whether log-probabilities are asked for.
    """
    supported = client.supports_logprobs()
    method: JudgeMethod = client.settings.method or ("no-logprobs" if supported is False else "multi-class")
    return method, supported is not False and method != "no-logprobs"


def judge_requests(method: JudgeMethod, pairs: pl.DataFrame, *, logprobs: bool) -> Iterator[Request]:
    """Write the first request for each pair.

    Args:
        method: how to judge.
        pairs: `question, content`, as `judging.judged_pairs` returns them.
        logprobs: whether log-probabilities are asked for.
    """
    for question, passage in pairs.select("question", "content").iter_rows():
        yield judge_request(method, question, passage, logprobs=logprobs)


def _first_missing(client: LLMClient, requests: Iterator[Request]) -> Request | None:
    return next((request for request in requests if client.estimate([request]).calls), None)


def _needs_logprobs(client: LLMClient, method: str) -> UserError:
    return UserError(
        f"{client.settings.label} returns no log-probabilities, which method {method} needs; "
        "set `method: no-logprobs`"
    )
