"""What is asked and what comes back, apart from how."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from kbeval_pipeline.project import LLMSettings, Prices
from kbeval_pipeline.resources.llms.redaction import redact, secrets_of

_ROLES: dict[str, type[BaseMessage]] = {
    "system": SystemMessage, "user": HumanMessage, "assistant": AIMessage,
}  # fmt: skip


_KEPT = ("text", "logprobs", "model", "input_tokens", "cached_tokens", "output_tokens", "seconds")


class TokenLogprobs(NamedTuple):
    """A token of the reply, and what else could have stood in its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Request:
    """One question to a model.

    Attributes:
        messages: role (`system`, `user`, `assistant`) and text, in order.
        prompt_version: names the prompt; part of the reply store's key.
        schema: JSON schema of the reply, for structured output; its `title` names it to the provider.
        top_logprobs: how many alternatives to ask for at each token; 0 asks for no log-probabilities.
        attempt: number of the re-ask; another attempt is another key.
    """

    messages: tuple[tuple[str, str], ...]
    prompt_version: str
    schema: Mapping[str, Any] | None = None
    top_logprobs: int = 0
    attempt: int = 0

    def to_langchain(self) -> list[BaseMessage]:
        """The messages as LangChain's classes."""
        return [_ROLES[role](content=text) for role, text in self.messages]

    def estimate_tokens(self) -> int:
        """Roughly the tokens of the messages: a quarter of their UTF-8 bytes."""
        return sum(len(text.encode()) for _, text in self.messages) // 4


@dataclass(frozen=True)
class Reply:
    """One reply.

    Attributes:
        text: the text, or the structured output as JSON text.
        logprobs: the tokens, where log-probabilities came.
        model: the model that answered, by its own account.
        input_tokens: tokens sent, those of the provider's cache included; None when not reported.
        cached_tokens: those that the provider had in its cache.
        output_tokens: tokens received.
        cost: cost of the call at today's prices, also for a stored reply; None is unknown.
        seconds: duration of the call that was answered.
        stored: True when this reply cost nothing now: from the store, or shared with an equal request.
    """

    text: str
    logprobs: tuple[TokenLogprobs, ...] | None
    model: str
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cost: float | None
    seconds: float
    stored: bool


class AskModel(Protocol):
    """What a judge or a question writer needs of a model; `LLMClient` is one."""

    async def ask(self, request: Request) -> Reply:
        """Ask once, or take the stored reply."""
        ...


def model_identity(settings: LLMSettings) -> str:
    """What of a model alters its replies, as canonical JSON; never the key.

    Args:
        settings: the model's settings.

    Returns:
        The part of every key that the model gives.
    """
    secrets = secrets_of(settings)
    identity = {
        "provider": "google" if settings.provider == "gemini" else settings.provider,
        "model": settings.model_name,
        "class": settings.class_path,
        "base_url": settings.base_url,
        "api_version": settings.api_version,
        "temperature": settings.temperature,
        "max_output_tokens": settings.max_output_tokens,
        "arguments": settings.arguments,
    }
    return redact(json.dumps(identity, sort_keys=True, ensure_ascii=False, default=str), secrets)


def request_key(identity: str, request: Request) -> str:
    """The reply store's key.

    Args:
        identity: the model's, from `model_identity`.
        request: what is asked.

    Returns:
        SHA-256 as hexadecimal text.
    """
    parts = [
        identity, request.prompt_version, request.messages, request.schema, request.top_logprobs,
        request.attempt,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=dict).encode()).hexdigest()


def to_reply(message: AIMessage, settings: LLMSettings, seconds: float) -> Reply:
    """Read a chat model's message.

    Args:
        message: what the model returned.
        settings: the model's settings, for the prices.
        seconds: how long the call took.

    Returns:
        The reply.
    """
    text = str(message.text)
    if message.tool_calls:
        text = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
    elif message.invalid_tool_calls:
        text = message.invalid_tool_calls[0]["args"] or ""
    usage = message.usage_metadata
    # A model without log-probabilities, like one without a cache, leaves the details out.
    tokens_in = usage["input_tokens"] if usage else None
    cached = usage.get("input_token_details", {}).get("cache_read", 0) if usage else None
    tokens_out = usage["output_tokens"] if usage else None
    return Reply(
        text=text,
        logprobs=_logprobs(message.response_metadata.get("logprobs")),
        model=str(message.response_metadata.get("model_name") or settings.model_name or settings.class_path),
        input_tokens=tokens_in,
        cached_tokens=cached,
        output_tokens=tokens_out,
        cost=cost_of(settings.prices, tokens_in, cached, tokens_out),
        seconds=seconds,
        stored=False,
    )


def _logprobs(found: Any) -> tuple[TokenLogprobs, ...] | None:
    entries = found.get("content") if isinstance(found, dict) else found
    if not entries or not isinstance(entries, list):
        return None
    return tuple(
        TokenLogprobs(
            entry["token"],
            entry["logprob"],
            tuple((top["token"], top["logprob"]) for top in entry.get("top_logprobs") or ()),
        )
        for entry in entries
    )


def cost_of(
    prices: Prices | None, tokens_in: int | None, cached: int | None, tokens_out: int | None
) -> float | None:
    """What tokens cost.

    Args:
        prices: prices of a million tokens; None when unknown.
        tokens_in: tokens sent, cached ones included.
        cached: those of them that the provider had in its cache.
        tokens_out: tokens received.

    Returns:
        The cost; None when prices or tokens are unknown.
    """
    if prices is None or tokens_in is None or tokens_out is None:
        return None
    from_cache = min(cached or 0, tokens_in)
    cached_price = prices.input if prices.cached_input is None else prices.cached_input
    total = (tokens_in - from_cache) * prices.input + from_cache * cached_price + tokens_out * prices.output
    return total / 1_000_000


def reply_to_json(reply: Reply) -> str:
    """The reply as the store keeps it: without the cost, since prices change.

    Args:
        reply: the reply.

    Returns:
        JSON text.
    """
    kept = {name: getattr(reply, name) for name in _KEPT}
    return json.dumps(kept, ensure_ascii=False)


def reply_from_json(text: str, prices: Prices | None) -> Reply:
    """Read a stored reply.

    Args:
        text: JSON text of `reply_to_json`.
        prices: today's prices.

    Returns:
        The reply, marked as stored.
    """
    kept = json.loads(text)
    logprobs = kept.pop("logprobs")
    if logprobs is not None:
        logprobs = tuple(TokenLogprobs(t, p, tuple((a, b) for a, b in top)) for t, p, top in logprobs)
    cost = cost_of(prices, kept["input_tokens"], kept["cached_tokens"], kept["output_tokens"])
    return Reply(**kept, logprobs=logprobs, cost=cost, stored=True)
