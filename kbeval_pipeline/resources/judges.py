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
    supported = client.supports_logprobs()
    method: JudgeMethod = settings.method or ("no-logprobs" if supported is False else "multi-class")
    logprobs = supported is not False and method != "no-logprobs"
    if not logprobs and method in ("multi-class", "binary"):
        raise _needs_logprobs(client, method)
    if supported is None and settings.method is None and _missing(client, "no-logprobs", pairs) == 0:
        method, logprobs = "no-logprobs", False
    if _missing(client, method, pairs, logprobs):
        first = next(_requests(method, pairs, logprobs))
        try:
            await client.ask(first)
        except LogprobsRefusedError:
            if settings.method in ("multi-class", "binary"):
                raise _needs_logprobs(client, method) from None
            logprobs = False
            method = "graded" if method == "graded" else "no-logprobs"
        except CallError:
            pass  # this judgment failed; whether too many do is told by the failure rate
    name = f"{settings.provider}/{settings.model_name or settings.class_path}"
    return Judge(client, name, method, logprobs, 2 * settings.max_concurrency)


def _requests(method: JudgeMethod, pairs: pl.DataFrame, logprobs: bool) -> Iterator[Request]:
    for question, passage in pairs.select("question", "content").iter_rows():
        yield judge_request(method, question, passage, logprobs=logprobs)


def _missing(client: LLMClient, method: JudgeMethod, pairs: pl.DataFrame, logprobs: bool = False) -> int:
    return client.estimate(_requests(method, pairs, logprobs)).calls


def _needs_logprobs(client: LLMClient, method: str) -> UserError:
    return UserError(
        f"{client.settings.provider}/{client.settings.model_name} returns no log-probabilities, which method "
        f"{method} needs; set `method: no-logprobs`"
    )
