"""Language models: one call path with a reply store, adaptive limits, one retry layer, usage and budget."""

from kbeval_pipeline.resources.llms.capabilities import returns_logprobs
from kbeval_pipeline.resources.llms.chat_models import build_chat_model
from kbeval_pipeline.resources.llms.client import Estimate, LLMClient
from kbeval_pipeline.resources.llms.errors import (
    BudgetExceeded,
    CallError,
    ErrorKind,
    LogprobsRefusedError,
    ProviderError,
)
from kbeval_pipeline.resources.llms.event_loop import run
from kbeval_pipeline.resources.llms.limiter import AdaptiveLimiter
from kbeval_pipeline.resources.llms.redaction import redact
from kbeval_pipeline.resources.llms.reply_store import CacheStore, ReplyStore, Store
from kbeval_pipeline.resources.llms.requests import AskModel, Reply, Request, TokenLogprobs
from kbeval_pipeline.resources.llms.usage import Budget, Usage
from kbeval_pipeline.resources.llms.workers import for_each

__all__ = [
    "AdaptiveLimiter",
    "AskModel",
    "Budget",
    "BudgetExceeded",
    "CacheStore",
    "CallError",
    "ErrorKind",
    "Estimate",
    "LLMClient",
    "LogprobsRefusedError",
    "ProviderError",
    "Reply",
    "ReplyStore",
    "Request",
    "Store",
    "TokenLogprobs",
    "Usage",
    "build_chat_model",
    "for_each",
    "redact",
    "returns_logprobs",
    "run",
]
