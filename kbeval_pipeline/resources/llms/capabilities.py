"""How each provider is asked for structured output and for log-probabilities."""

import re
from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel

from kbeval_pipeline.project import LLMSettings

_OPENAI_LIKE = ("openai", "azure_openai")
_WITHOUT_LOGPROBS = ("anthropic", "bedrock", "google", "gemini", "snowflake", "offline")


def returns_logprobs(settings: LLMSettings) -> bool | None:
    """Whether a provider is known to return log-probabilities.

    Args:
        settings: the model's settings.

    Returns:
        True, False, or None where only a call can tell.
    """
    if settings.provider in _OPENAI_LIKE:
        return True
    return False if settings.provider in _WITHOUT_LOGPROBS else None


def logprobs_arguments(top_logprobs: int) -> dict[str, Any]:
    """The arguments of a call that ask for log-probabilities.

    Args:
        top_logprobs: alternatives for each token; 0 asks for none.

    Returns:
        Keyword arguments of `ainvoke`.
    """
    return {"logprobs": True, "top_logprobs": top_logprobs} if top_logprobs else {}


def schema_arguments(
    settings: LLMSettings, model: BaseChatModel, schema: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call that ask for structured output.

    OpenAI's and Ollama's own way is a format of the reply; the others are made to call a tool whose
    arguments are the reply. A model that can do neither has only its prompt to go by.

    Args:
        settings: the model's settings.
        model: the chat model.
        schema: JSON schema of the reply.

    Returns:
        Keyword arguments of `ainvoke`.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title", "reply")))[:64]
    if settings.provider in _OPENAI_LIKE:
        body = {"name": name, "schema": dict(schema), "strict": _is_strict(schema)}
        return {"response_format": {"type": "json_schema", "json_schema": body}}
    if settings.provider == "ollama":
        return {"format": dict(schema)}
    described = {"description": "The reply.", **schema, "title": name}
    try:
        bound = model.bind_tools([described], tool_choice=name)
    except ValueError:
        # Some models of Bedrock cannot be made to call a tool, only offered one.
        bound = model.bind_tools([described])
    except NotImplementedError:
        return {}
    return dict(getattr(bound, "kwargs", {}))


def _is_strict(schema: Mapping[str, Any]) -> bool:
    """OpenAI's strict mode wants every property required and no others, at every level."""
    if schema.get("type") == "array":
        return _is_strict(schema.get("items", {}))
    if schema.get("type") != "object":
        return True
    properties = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(
        properties
    )
    return closed and all(_is_strict(part) for part in properties.values())
