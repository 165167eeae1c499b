"""LangChain chat models from the llm settings; each provider's package is an extra of ours."""

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms.redaction import HiddenText, redact, secrets_of, secrets_of_environment
from kbeval_pipeline.settings import nearest

# provider -> (module, class, our extra)
_CLASSES = {
    "openai": ("langchain_openai", "ChatOpenAI", "openai"),
    "azure_openai": ("langchain_openai", "AzureChatOpenAI", "openai"),
    "anthropic": ("langchain_anthropic", "ChatAnthropic", "anthropic"),
    "google": ("langchain_google_genai", "ChatGoogleGenerativeAI", "google"),
    "gemini": ("langchain_google_genai", "ChatGoogleGenerativeAI", "google"),
    "bedrock": ("langchain_aws", "ChatBedrockConverse", "bedrock"),
    "ollama": ("langchain_ollama", "ChatOllama", "ollama"),
    "snowflake": ("langchain_snowflake", "ChatSnowflake", "snowflake"),
}
# These would take the HTTP client out of our hands.
_OPENAI_CLIENT_ARGUMENTS = {"http_async_client", "http_client", "async_client", "openai_proxy", "streaming"}


def build_chat_model(settings: LLMSettings) -> BaseChatModel:
    """Make the chat model; nothing is called yet.

    Its own retries are off, as the client retries, and its own time limit is the client's. Arguments of the
    settings win over ours.

    Args:
        settings: the model's settings.

    Returns:
        The chat model.

    Raises:
        UserError: when the provider's package is not installed, the class cannot be loaded, or an argument
            is refused.
    """
    if settings.provider == "offline":
        raise UserError('provider "offline" is no language model; name one that can be called')
    if settings.provider == "custom":
        model_class = _custom_class(settings)
        arguments = _custom_arguments(settings, model_class)
    else:
        model_class = _provider_class(settings)
        arguments = _ARGUMENTS[settings.provider](settings)
        _refuse_unknown(settings.arguments, model_class, settings)
    secrets = secrets_of(settings) + secrets_of_environment()
    fault: str
    try:
        model = model_class(**{**arguments, **settings.arguments})
        model.cache = False
    except ValidationError as error:
        fault = "; ".join(_describe(item) for item in error.errors(include_url=False, include_input=False))
    except Exception as error:  # providers raise anything: their own errors, ValueError, RuntimeError
        fault = str(error) or type(error).__name__
    else:
        return model
    # Raised outside the handler: the original holds the arguments, the key among them.
    raise UserError(f"{label(settings)} cannot be set up: {redact(fault, secrets)}")


def label(settings: LLMSettings) -> str:
    """How messages name a model.

    Args:
        settings: the model's settings.

    Returns:
        Model and provider.
    """
    return f'LLM "{settings.model_name or settings.class_path}" ({settings.provider})'


def _provider_class(settings: LLMSettings) -> type[BaseChatModel]:
    module, name, extra = _CLASSES[settings.provider]
    try:
        if settings.provider == "openai" and not _OPENAI_CLIENT_ARGUMENTS & settings.arguments.keys():
            importlib.import_module(module)
            if importlib.util.find_spec("aiohttp") is not None:
                module, name = "kbeval_pipeline.resources.llms.openai_http", "HTTPChatOpenAI"
        loaded: type[BaseChatModel] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise UserError(
            f"{label(settings)} needs the extra `{extra}` ({error.name or module} is not installed): "
            f"pip install 'kbeval-pipeline[{extra}]'"
        ) from None
    return loaded


def _custom_class(settings: LLMSettings) -> type[BaseChatModel]:
    path = settings.class_path or ""
    module, _, name = path.partition(":")
    if not module or not name:
        raise UserError(f'class_path "{path}" is not of the form module:Class')
    try:
        loaded = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise UserError(f'class_path "{path}": module {error.name or module} is not installed') from None
    except AttributeError:
        raise UserError(f'class_path "{path}": module {module} has no class {name}') from None
    if not (isinstance(loaded, type) and issubclass(loaded, BaseChatModel)):
        raise UserError(f'class_path "{path}" is not a LangChain chat model (a subclass of BaseChatModel)')
    return loaded


def _custom_arguments(settings: LLMSettings, model_class: type[BaseChatModel]) -> dict[str, Any]:
    given = {"model": settings.model_name, "api_key": settings.api_key, "base_url": settings.base_url}
    given |= {"api_version": settings.api_version}
    wanted = {
        "temperature": settings.temperature,
        "max_tokens": settings.max_output_tokens,
        "timeout": settings.timeout_seconds,
        "max_retries": 0,
    }
    known = _names(model_class)
    return _present(given) | {name: value for name, value in _present(wanted).items() if name in known}


def _common(settings: LLMSettings, max_tokens: str = "max_tokens", **more: Any) -> dict[str, Any]:
    return _present(
        {
            "model": settings.model_name,
            "api_key": settings.api_key,
            "temperature": settings.temperature,
            max_tokens: settings.max_output_tokens,
            "max_retries": 0,
            "timeout": settings.timeout_seconds,
            **more,
        }
    )


def _openai(settings: LLMSettings) -> dict[str, Any]:
    # Compatible servers know chat completions; what OpenAI's newest models want is langchain-openai's to say.
    responses = False if settings.base_url else None
    return _common(settings, base_url=settings.base_url, use_responses_api=responses)


def _azure_openai(settings: LLMSettings) -> dict[str, Any]:
    return _common(
        settings,
        azure_endpoint=settings.base_url,
        azure_deployment=settings.model_name,
        api_version=settings.api_version,
    )


def _anthropic(settings: LLMSettings) -> dict[str, Any]:
    return _common(settings, base_url=settings.base_url)


def _google(settings: LLMSettings) -> dict[str, Any]:
    # One attempt: 0 would mean the default of Google's package, which retries.
    return _common(settings, max_tokens="max_output_tokens", base_url=settings.base_url, max_retries=1)


def _bedrock(settings: LLMSettings) -> dict[str, Any]:
    config = importlib.import_module("botocore.config").Config(max_pool_connections=settings.max_concurrency)
    timeout = math.ceil(settings.timeout_seconds)
    return _common(settings, base_url=settings.base_url, timeout=timeout, config=config)


def _ollama(settings: LLMSettings) -> dict[str, Any]:
    client: dict[str, Any] = {"timeout": settings.timeout_seconds}
    if settings.api_key:
        bearer = HiddenText(f"Bearer {settings.api_key.get_secret_value()}")
        client["headers"] = {"Authorization": bearer}
    base_url = settings.base_url
    if base_url:
        base_url = base_url.rstrip("/").removesuffix("/v1")
    return _present(
        {
            "model": settings.model_name,
            "base_url": base_url,
            "temperature": settings.temperature,
            "num_predict": settings.max_output_tokens,
            "client_kwargs": client,
        }
    )


def _snowflake(settings: LLMSettings) -> dict[str, Any]:
    return _present(
        {
            "model": settings.model_name,
            "temperature": settings.temperature,
            "max_tokens": settings.max_output_tokens,
        }
    )


_ARGUMENTS: dict[str, Callable[[LLMSettings], dict[str, Any]]] = {
    "openai": _openai,
    "azure_openai": _azure_openai,
    "anthropic": _anthropic,
    "google": _google,
    "gemini": _google,
    "bedrock": _bedrock,
    "ollama": _ollama,
    "snowflake": _snowflake,
}


def _present(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _names(model_class: type[BaseChatModel]) -> set[str]:
    return {
        name for field, info in model_class.model_fields.items() for name in (field, info.alias) if name
    }  # fmt: skip


def _refuse_unknown(given: Iterable[str], model_class: type[BaseChatModel], settings: LLMSettings) -> None:
    known = _names(model_class)
    for name in given:
        if name not in known:
            raise UserError(f'{label(settings)}: unknown argument "{name}", {nearest(name, known)}')


def _describe(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    return f"{where}: {item['msg']}" if where else str(item["msg"])
