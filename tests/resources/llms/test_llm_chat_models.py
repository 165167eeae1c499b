"""Chat models of every provider, built without a call."""

import importlib
from typing import Any

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms import LLMClient, Request, build_chat_model, returns_logprobs, run
from kbeval_pipeline.resources.llms.capabilities import schema_arguments

KEY = "sk-secret-0123456789"
PACKAGES = {
    "openai": "langchain_openai",
    "azure_openai": "langchain_openai",
    "anthropic": "langchain_anthropic",
    "google": "langchain_google_genai",
    "gemini": "langchain_google_genai",
    "bedrock": "langchain_aws",
    "ollama": "langchain_ollama",
}


def settings(provider: str, **changes: Any) -> LLMSettings:
    more: dict[str, Any] = {"model_name": "m", "api_key": KEY, "max_output_tokens": 9, "timeout_seconds": 7}
    if provider == "azure_openai":
        more |= {"base_url": "https://azure.example/", "api_version": "2025-01-01"}
    if provider == "bedrock":
        more |= {"arguments": {"region_name": "eu-central-1"}}
    return LLMSettings(provider=provider, **(more | changes))


@pytest.mark.parametrize("provider", PACKAGES)
def test_every_provider_is_built(provider: str) -> None:
    pytest.importorskip(PACKAGES[provider])
    model: Any = build_chat_model(settings(provider))
    assert model.cache is False
    assert KEY not in repr(model)
    assert KEY not in str(model)
    assert model.temperature == 0.0
    assert getattr(model, "max_retries", 0) in (0, 1)
    assert getattr(model, "max_retries", 0) == (1 if provider in ("google", "gemini") else 0)
    sizes = [getattr(model, name, None) for name in ("max_tokens", "max_output_tokens", "num_predict")]
    assert 9 in sizes


def test_openai_and_azure() -> None:
    pytest.importorskip("langchain_openai")
    model: Any = build_chat_model(settings("openai", base_url="http://localhost:1/v1", temperature=None))
    assert (model.model_name, model.openai_api_base, model.request_timeout) == (
        "m",
        "http://localhost:1/v1",
        7,
    )
    assert (model.temperature, model.use_responses_api) == (None, False)
    azure: Any = build_chat_model(settings("azure_openai"))
    assert (azure.azure_endpoint, azure.deployment_name) == ("https://azure.example/", "m")
    assert azure.openai_api_version == "2025-01-01"


def test_ollamas_url_is_without_v1() -> None:
    pytest.importorskip("langchain_ollama")
    model: Any = build_chat_model(settings("ollama", base_url="http://localhost:11434/v1/"))
    assert model.base_url == "http://localhost:11434"
    assert model.client_kwargs["headers"]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("provider", "package"), [*PACKAGES.items(), ("snowflake", "langchain_snowflake")])
def test_a_missing_package_names_our_extra(
    provider: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def missing(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    extra = {"azure_openai": "openai", "gemini": "google"}.get(provider, provider)
    with pytest.raises(UserError, match=rf"{package}.*pip install 'kbeval-pipeline\[{extra}\]'"):
        build_chat_model(settings(provider))


def test_a_refused_argument_is_named_without_the_key() -> None:
    pytest.importorskip("langchain_openai")
    with pytest.raises(UserError, match="max_tokens") as caught:
        build_chat_model(settings("openai", arguments={"max_tokens": KEY}))
    assert KEY not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(
        UserError, match='unknown argument "reasoning_efort", did you mean "reasoning_effort"'
    ):
        build_chat_model(settings("openai", arguments={"reasoning_efort": "low"}))


def test_a_missing_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        run(LLMClient(settings("openai", api_key=None)).probe())


def test_a_custom_class() -> None:
    path = "tests.fake_chat_model:FakeChatModel"
    client = LLMClient(LLMSettings(provider="custom", class_path=path, model_name="mine"))
    reply = run(client.ask(Request((("user", "abc"),), "v1")))
    assert (reply.text, reply.model) == ("cba", "mine")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_colon", "module:Class"),
        ("no_such_module_at_all:Thing", "not installed"),
        ("tests.fake_chat_model:Nothing", "no class Nothing"),
        ("pathlib:Path", "not a LangChain chat model"),
    ],
)
def test_a_wrong_custom_class_is_explained(path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_chat_model(LLMSettings(provider="custom", class_path=path))


def test_offline_is_no_chat_model() -> None:
    with pytest.raises(UserError, match="offline"):
        build_chat_model(LLMSettings(provider="offline"))


@pytest.mark.parametrize(
    ("provider", "known"), [("openai", True), ("azure_openai", True), ("anthropic", False), ("ollama", None)]
)
def test_log_probabilities_by_provider(provider: str, known: bool | None) -> None:
    assert returns_logprobs(settings(provider)) is known


@pytest.mark.parametrize("provider", PACKAGES)
def test_structured_output_of_every_provider(provider: str) -> None:
    pytest.importorskip(PACKAGES[provider])
    schema = {"title": "verdict", "type": "object", "properties": {"score": {"type": "integer"}}}
    arguments = schema_arguments(settings(provider), build_chat_model(settings(provider)), schema)
    assert "score" in str(arguments)
    expected = {"openai": "response_format", "azure_openai": "response_format", "ollama": "format"}
    assert expected.get(provider, "tools") in arguments
