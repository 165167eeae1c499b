"""Calls of a chat model: concurrency limit, time limit, and the one retry layer."""

import asyncio
import json
import random
import time
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms.capabilities import (
    logprobs_arguments,
    returns_logprobs,
    schema_arguments,
)
from kbeval_pipeline.resources.llms.chat_models import label
from kbeval_pipeline.resources.llms.errors import (
    FATAL,
    OVERLOAD,
    RETRIED,
    CallError,
    ErrorKind,
    Fault,
    LogprobsRefusedError,
    ProviderError,
    classify,
)
from kbeval_pipeline.resources.llms.limiter import AdaptiveLimiter
from kbeval_pipeline.resources.llms.redaction import secrets_of, secrets_of_environment
from kbeval_pipeline.resources.llms.requests import Reply, Request, to_reply
from kbeval_pipeline.resources.llms.usage import Usage

_LONGEST_BACKOFF_SECONDS = 30.0
_RETRIES_OF_UNKNOWN = 2
_ADVICE = {
    ErrorKind.AUTHENTICATION: "the key was refused; set api_key, or the provider's environment variable",
    ErrorKind.UNKNOWN_MODEL: "the model was not found; check model_name and base_url",
    ErrorKind.QUOTA: "the account has no credit left",
    ErrorKind.UNREACHABLE: "the server cannot be reached; check base_url",
}


class ModelCalls:
    """A chat model behind its limits.

    Args:
        settings: the model's settings.
        model: the chat model.
        limiter: bounds the calls in flight.
        usage: counts retries and failures.
        backoff_seconds: longest first pause before a retry, doubled for each further one.
    """

    def __init__(
        self,
        settings: LLMSettings,
        model: BaseChatModel,
        limiter: AdaptiveLimiter,
        usage: Usage,
        backoff_seconds: float,
    ) -> None:
        self._settings = settings
        self._model = model
        self._limiter = limiter
        self._usage = usage
        self._backoff = backoff_seconds
        self._secrets = secrets_of(settings) + secrets_of_environment()
        self._schema_arguments: dict[str, dict[str, Any]] = {}
        self._logprobs_seen: bool | None = None
        self._fatal: Fault | None = None

    def __repr__(self) -> str:
        return f"ModelCalls({label(self._settings)})"

    def supports_logprobs(self) -> bool | None:
        """Whether log-probabilities come: as seen in replies, else by provider; None is unknown."""
        return returns_logprobs(self._settings) if self._logprobs_seen is None else self._logprobs_seen

    def notice(self, reply: Reply, *, asked: bool = False) -> None:
        """Learn from a reply whether log-probabilities come.

        Args:
            reply: a new or a stored one.
            asked: whether it was asked for them.
        """
        if reply.logprobs is not None:
            self._logprobs_seen = True
        elif asked and reply.text and self._logprobs_seen is None:
            self._logprobs_seen = False

    async def call(self, request: Request, retries: int) -> Reply:
        """Call the model, again after throttling or a passing fault.

        Args:
            request: what to ask.
            retries: how often at most to call again.

        Returns:
            The reply.

        Raises:
            ProviderError: when every call would fail.
            LogprobsRefusedError: when log-probabilities are asked of a model that gives none.
            CallError: when this call failed for good.
        """
        if request.top_logprobs and self.supports_logprobs() is False:
            raise LogprobsRefusedError(
                f"{label(self._settings)} returns no log-probabilities", ErrorKind.BAD_REQUEST
            )
        messages, arguments = request.to_langchain(), self._arguments(request)
        unknown = 0
        for tried in range(retries + 1):
            outcome = await self._try(messages, arguments)
            if isinstance(outcome, Reply):
                self.notice(outcome, asked=request.top_logprobs > 0)
                return outcome
            fault = outcome
            # Packages stumble over odd replies in many ways: what cannot be told is given a few more tries.
            unknown += fault.kind is ErrorKind.UNKNOWN
            if fault.kind not in RETRIED or tried == retries or unknown > _RETRIES_OF_UNKNOWN:
                break
            self._usage.retries += 1
            longest = min(_LONGEST_BACKOFF_SECONDS, self._backoff * 2**tried)
            await asyncio.sleep((fault.retry_after or 0.0) + random.uniform(0.0, longest))  # noqa: S311
        self._usage.failed_calls += 1
        raise self._error(fault, request)

    async def _try(self, messages: list[Any], arguments: dict[str, Any]) -> Reply | Fault:
        permit = await self._limiter.acquire()
        if self._fatal is not None:  # found out while this call waited for its turn
            self._limiter.release(permit)
            return self._fatal
        started = time.perf_counter()
        fault: Fault | None = None
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                message = await self._model.ainvoke(messages, **arguments)
            if not isinstance(message, AIMessage):
                fault = Fault(ErrorKind.MALFORMED, f"a {type(message).__name__} came instead of a message")
                return fault
            return to_reply(message, self._settings, time.perf_counter() - started)
        except TimeoutError:
            limit = f"no reply within timeout_seconds ({self._settings.timeout_seconds:g} s)"
            fault = Fault(ErrorKind.TRANSIENT, limit)
            return fault
        except Exception as error:  # providers raise anything
            fault = classify(error, self._secrets)
            if fault.kind in FATAL:
                self._fatal = fault
            return fault
        finally:
            self._limiter.release(
                permit,
                success=fault is None,
                overload=fault is not None and fault.kind in OVERLOAD,
                retry_after=fault.retry_after if fault else None,
            )

    def _arguments(self, request: Request) -> dict[str, Any]:
        arguments = logprobs_arguments(request.top_logprobs)
        if request.schema is not None:
            name = json.dumps(request.schema, sort_keys=True, default=dict)
            if name not in self._schema_arguments:
                self._schema_arguments[name] = schema_arguments(self._settings, self._model, request.schema)
            arguments |= self._schema_arguments[name]
        return arguments

    def _error(self, fault: Fault, request: Request) -> Exception:
        status = f" ({fault.status})" if fault.status else ""
        advice = f"{text}; " if (text := _ADVICE.get(fault.kind)) else ""
        message = f"{label(self._settings)}: {advice}the provider says{status}: {fault.message}"
        if fault.kind in FATAL:
            return ProviderError(message, fault.kind)
        if (
            request.top_logprobs
            and fault.kind is ErrorKind.BAD_REQUEST
            and "logprob" in fault.message.lower()
        ):
            self._logprobs_seen = False
            return LogprobsRefusedError(message, fault.kind)
        return CallError(message, fault.kind)
