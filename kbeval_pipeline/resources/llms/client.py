"""The one path of every LLM call: store, limit, time limit, retries, usage, budget."""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from langchain_core.language_models import BaseChatModel

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms.chat_models import build_chat_model, label
from kbeval_pipeline.resources.llms.errors import CallError, LogprobsRefusedError, ProviderError
from kbeval_pipeline.resources.llms.limiter import AdaptiveLimiter
from kbeval_pipeline.resources.llms.model_calls import ModelCalls
from kbeval_pipeline.resources.llms.reply_store import Store
from kbeval_pipeline.resources.llms.requests import (
    Reply,
    Request,
    cost_of,
    model_identity,
    reply_from_json,
    reply_to_json,
    request_key,
)
from kbeval_pipeline.resources.llms.usage import Budget, Usage
from kbeval_pipeline.resources.llms.workers import for_each

_PROBE_RETRIES = 2
_EXPECTED_OUTPUT_TOKENS = 50


class Estimate(NamedTuple):
    """What requests would need: calls, tokens sent and received, and the cost if prices are known."""

    calls: int
    tokens: int
    cost: float | None


class LLMClient:
    """A model that is asked through the reply store, within its limits; belongs to one event loop.

    Args:
        settings: the model's settings.
        store: where replies are kept; None keeps none.
        cache: False neither reads nor writes the store.
        budget: what may be spent; needs prices in the settings.
        limiter: to be shared by clients of the same model and event loop; by default one of its own.
        model: the chat model; by default built from the settings.
        backoff_seconds: longest first pause before a retry, doubled for each further one.

    Raises:
        UserError: when the model cannot be built, or a budget is given without prices.
    """

    def __init__(
        self,
        settings: LLMSettings,
        store: Store | None = None,
        *,
        cache: bool = True,
        budget: Budget | None = None,
        limiter: AdaptiveLimiter | None = None,
        model: BaseChatModel | None = None,
        backoff_seconds: float = 0.5,
    ) -> None:
        if budget is not None and settings.prices is None:
            raise UserError(f"{label(settings)}: max_cost needs `prices` in the llm settings")
        self.settings = settings
        self.usage = Usage()
        self.limiter = limiter or AdaptiveLimiter(settings.max_concurrency)
        self._calls = ModelCalls(
            settings, model or build_chat_model(settings), self.limiter, self.usage, backoff_seconds
        )
        self._store = store if cache else None
        self._budget = budget
        self._identity = model_identity(settings)
        self._in_flight: dict[str, asyncio.Future[Reply | Exception | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"LLMClient({label(self.settings)})"

    def supports_logprobs(self) -> bool | None:
        """Whether log-probabilities come: as seen in replies, else by provider; None is unknown."""
        return self._calls.supports_logprobs()

    async def ask(self, request: Request) -> Reply:
        """Ask once, or take the stored reply; equal requests at the same time are one call.

        Args:
            request: what to ask.

        Returns:
            The reply.

        Raises:
            ProviderError: when every call would fail: wrong key, unknown model, no credit.
            BudgetExceeded: when the call would pass the budget.
            LogprobsRefusedError: when log-probabilities are asked of a model that gives none.
            CallError: when this call failed for good.
        """
        self._stay_in_loop()
        key = request_key(self._identity, request)
        while (shared := self._in_flight.get(key)) is not None:
            outcome = await asyncio.shield(shared)
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                return self._count(replace(outcome, stored=True))
        if self._store is not None and (text := self._store.get(key)) is not None:
            return self._count(self._read(text))
        future = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            reply = await self._ask_model(request, key)
        except Exception as error:
            future.set_result(error)
            raise
        except BaseException:
            future.set_result(None)  # cancelled: one of those who wait asks instead
            raise
        else:
            future.set_result(reply)
            return self._count(reply)
        finally:
            del self._in_flight[key]

    async def ask_all(
        self,
        requests: Iterable[Request] | AsyncIterable[Request],
        on_reply: Callable[[int, Request, Reply | CallError], None],
    ) -> None:
        """Ask many, with bounded memory; replies are handed over as they come, in any order.

        Args:
            requests: what to ask; read as calls become free.
            on_reply: gets the request's number, the request, and its reply or why it failed.

        Raises:
            ProviderError: at once, when every call would fail.
            BudgetExceeded: after the calls in flight have ended and are stored.
            LogprobsRefusedError: at once.
        """

        async def work(number: int, request: Request) -> None:
            try:
                outcome: Reply | CallError = await self.ask(request)
            except LogprobsRefusedError:
                raise
            except CallError as error:
                outcome = error
            on_reply(number, request, outcome)

        # More workers than calls: one that waits before a retry must not leave its place empty.
        await for_each(requests, work, workers=2 * self.settings.max_concurrency)

    async def probe(self, request: Request | None = None) -> Reply:
        """Make one call, past the store, to see that credentials and model are right.

        Args:
            request: what to ask; by default a word. One with `top_logprobs` tells whether they come.

        Returns:
            The reply.

        Raises:
            ProviderError: when the call fails, with the provider's message.
            LogprobsRefusedError: when only the log-probabilities were refused.
        """
        self._stay_in_loop()
        asked = request or Request((("user", "Reply with the word OK."),), "probe")
        failure: CallError
        try:
            return self._count(await self._calls.call(asked, min(_PROBE_RETRIES, self.settings.max_retries)))
        except LogprobsRefusedError:
            raise
        except CallError as error:
            failure = error
        raise ProviderError(str(failure), failure.kind)

    def estimate(self, requests: Iterable[Request], output_tokens: int = _EXPECTED_OUTPUT_TOKENS) -> Estimate:
        """Say what requests would need now, without asking.

        Args:
            requests: what would be asked.
            output_tokens: expected length of a reply.

        Returns:
            Calls that the store cannot answer, their tokens and cost.
        """
        missing = {request_key(self._identity, request): request.estimate_tokens() for request in requests}
        if self._store is not None:
            for key in self._store.get_many(list(missing)):
                missing.pop(key, None)
        sent, received = sum(missing.values()), output_tokens * len(missing)
        cost = cost_of(self.settings.prices, sent, 0, received)
        return Estimate(len(missing), sent + received, cost if missing else 0.0)

    def _stay_in_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "an LLMClient belongs to one event loop; use kbeval_pipeline.resources.llms.run"
            )

    def _count(self, reply: Reply) -> Reply:
        self.usage.add(reply)
        return reply

    def _read(self, text: str) -> Reply:
        reply = reply_from_json(text, self.settings.prices)
        self._calls.notice(reply)
        return reply

    async def _ask_model(self, request: Request, key: str) -> Reply:
        retries = self.settings.max_retries
        if self._budget is None:
            reply = await self._calls.call(request, retries)
        else:
            expected = self.usage.output_tokens // self.usage.calls if self.usage.calls else 0
            tokens = expected or _EXPECTED_OUTPUT_TOKENS
            estimate = cost_of(self.settings.prices, request.estimate_tokens(), 0, tokens) or 0.0
            self._budget.reserve(estimate)
            spent: float | None = 0.0
            try:
                reply = await self._calls.call(request, retries)
                spent = reply.cost
            finally:
                self._budget.settle(estimate, spent)
        if self._store is not None:
            self._store.put(key, reply_to_json(reply))
        return reply
