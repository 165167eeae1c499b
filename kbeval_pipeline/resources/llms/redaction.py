"""Keys out of texts: no message, log line or repr of ours may hold one."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from kbeval_pipeline.project import LLMSettings

# Where the providers' packages look for a key that is not in the settings.
_ENVIRONMENT = (
    "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY",
    "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK",
    "SNOWFLAKE_PASSWORD",
)  # fmt: skip
_NAMED_LIKE_SECRETS = ("key", "secret", "token", "password", "authorization", "credential")
_SHORTEST_SECRET = 6


def secrets_of(settings: LLMSettings) -> tuple[str, ...]:
    """What of the settings must never be shown.

    Args:
        settings: the model's settings.

    Returns:
        The key, and arguments that are named like one.
    """
    found = [settings.api_key.get_secret_value()] if settings.api_key else []
    _collect(settings.arguments, found, inside=False)
    return tuple(HiddenText(secret) for secret in found if secret)


def secrets_of_environment() -> tuple[str, ...]:
    """The keys that the providers' packages would take from the environment."""
    found = (os.environ.get(name, "") for name in _ENVIRONMENT)
    return tuple(HiddenText(secret) for secret in found if len(secret) >= _SHORTEST_SECRET)


def _collect(value: Any, found: list[str], *, inside: bool) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            named = any(word in str(name).lower() for word in _NAMED_LIKE_SECRETS)
            _collect(part, found, inside=inside or named)
    elif inside and isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
        found.append(value)


class HiddenText(str):
    """A text that does not show in a `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+")
_USER_INFO = re.compile(r"(?<=://)[^/\s@:]+:[^/\s@]+@")
# Providers repeat part of a key they refuse: "sk-abcde****wxyz".
_MASKED = re.compile(r"[^\s\"'=:,;(]*\*{3,}[^\s\"',;)]*")
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|xai|gsk|rk)-[A-Za-z0-9_\-]{8,}|\bAIza[A-Za-z0-9_\-]{20,}|\bAKIA[A-Z0-9]{12,}"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace keys by `***`: the given ones, plain or URL-encoded, and whatever looks like one.

    Args:
        text: any text.
        secrets: the keys.

    Returns:
        The text without them.
    """
    forms = {
        form for s in secrets if s for form in (s, quote(s, safe=""), quote_plus(s), json.dumps(s)[1:-1])
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    text = _BEARER.sub(r"\1 ***", text)
    text = _KEY_LIKE.sub("***", _MASKED.sub("***", text))
    return _USER_INFO.sub("***@", text)
