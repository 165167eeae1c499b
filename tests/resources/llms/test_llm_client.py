"""The call path against a real HTTP server: retries, limits, sharing, budget, structured output."""

import asyncio
import contextlib
import importlib.util
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LLMSettings, Prices
from kbeval_pipeline.resources.llms import (
    Budget,
    BudgetExceeded,
    CallError,
    ErrorKind,
    LLMClient,
    LogprobsRefusedError,
    ProviderError,
    Reply,
    ReplyStore,
    Request,
    run,
)
from tests.fake_chat_model import FakeChatModel
from tests.openai_server import KEY, Completion, OpenAIServer, judge

SCHEMA = {
    "title": "question_and_answer",
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
    },
    "required": ["question", "score"],
    "additionalProperties": False,
}


def question(n: int, **changes: Any) -> Request:
    return Request((("system", "Be short."), ("user", f"Question {n}?")), "v1", **changes)


@pytest.fixture
def serve() -> Iterator[Callable[..., OpenAIServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(OpenAIServer(*args, **kwargs))


@pytest.fixture
def store(tmp_path: Path) -> ReplyStore:
    return ReplyStore(tmp_path / "data" / "replies.sqlite")


def client_of(server: OpenAIServer, store: ReplyStore | None = None, **changes: Any) -> LLMClient:
    own = {name: changes.pop(name) for name in ("cache", "budget", "backoff_seconds") if name in changes}
    return LLMClient(LLMSettings(**server.llm(**changes)), store, **{"backoff_seconds": 0.01, **own})


def ask_all(client: LLMClient, requests: list[Request]) -> dict[int, Reply | CallError]:
    found: dict[int, Reply | CallError] = {}
    run(client.ask_all(requests, lambda number, _, reply: found.__setitem__(number, reply)))
    return found


def test_a_reply_has_text_usage_and_cost(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(lambda body: "four words of reply")
    client = client_of(server, prices=Prices(input=1.0, cached_input=0.5, output=2.0))
    reply = run(client.ask(question(1)))
    assert (reply.text, reply.model, reply.stored, reply.logprobs) == (
        "four words of reply",
        "test-model",
        False,
        None,
    )
    assert reply.input_tokens == 2 * reply.cached_tokens + reply.input_tokens % 2
    cached, sent = reply.cached_tokens, reply.input_tokens
    assert reply.cost == pytest.approx((cached * 0.5 + (sent - cached) * 1.0 + 4 * 2.0) / 1e6)
    assert (client.usage.calls, client.usage.output_tokens, client.usage.cost) == (1, 4, reply.cost)
    body = server.bodies[0]
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert body["temperature"] == 0.0
    assert "max_completion_tokens" not in body


def test_cost_is_unknown_without_prices(serve: Callable[..., OpenAIServer]) -> None:
    client = client_of(serve())
    assert run(client.ask(question(1))).cost is None
    assert client.usage.cost is None


def test_peak_in_flight_is_the_limit(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(latency=0.02)
    found = ask_all(client_of(server, max_concurrency=16), [question(n) for n in range(100)])
    assert sorted(found) == list(range(100))
    assert server.peak == 16


def test_throttling_and_faults_lose_nothing(serve: Callable[..., OpenAIServer], store: ReplyStore) -> None:
    server = serve(share_429=0.1, share_500=0.1, share_malformed=0.05, latency=0.002)
    client = client_of(server, store, max_concurrency=16)
    found = ask_all(client, [question(n) for n in range(200)])
    assert len(found) == 200
    assert [reply for reply in found.values() if isinstance(reply, CallError)] == []
    assert server.statuses[429] > 5
    assert server.statuses[500] > 5
    assert client.usage.calls == 200
    assert client.usage.retries == len(server.arrivals) - 200
    clean = serve()
    assert {n: r.text for n, r in ask_all(client_of(clean), [question(n) for n in range(200)]).items()} == {
        n: r.text for n, r in found.items()
    }


def test_the_limit_falls_on_429_and_recovers(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(first_statuses=(429,), latency=0.005)
    client = client_of(server, max_concurrency=8)
    seen: list[int] = []
    run(client.ask_all([question(n) for n in range(100)], lambda *_: seen.append(client.limiter.limit)))
    assert min(seen) == 4
    assert seen[-1] == 8


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_kept_by_every_call(as_date: bool, serve: Callable[..., OpenAIServer]) -> None:
    wait = "1"
    if as_date:
        moment = time.time() + 2
        wait = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(moment))
    server = serve(first_statuses=(429,), retry_after=wait)
    client = client_of(server, max_concurrency=2)
    ask_all(client, [question(n) for n in range(12)])
    first, later = server.arrivals[0], server.arrivals[2:]
    if as_date:
        assert min(later) - time.monotonic() >= int(moment) - time.time() - 0.01
    else:
        assert min(later) - first >= 1.0
    assert len(server.arrivals) == 13


def test_a_wrong_key_ends_with_the_providers_message(
    serve: Callable[..., OpenAIServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    wrong = "sk-wrong-key-9876543210-zyxwvut"
    client = client_of(server, api_key=wrong, backoff_seconds=60.0)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ProviderError, match="Incorrect API key provided") as caught:
        run(client.probe())
    assert caught.value.kind is ErrorKind.AUTHENTICATION
    assert len(server.arrivals) == 1
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    shown = str(caught.value) + repr(caught.value) + repr(client) + repr(client._calls) + caplog.text
    assert wrong not in shown
    assert "sk-wrong" not in shown
    assert "xwvut" not in shown
    assert isinstance(caught.value, UserError)


def test_an_unknown_model_ends_the_run_at_once(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(latency=0.05)
    client = client_of(server, model_name="no-such-model", max_concurrency=4)
    with pytest.raises(ProviderError, match=r"no-such-model.*does not exist"):
        ask_all(client, [question(n) for n in range(1000)])
    assert len(server.arrivals) <= 4


def test_an_empty_account_is_not_retried(serve: Callable[..., OpenAIServer]) -> None:
    def broke(messages: Any) -> str:
        error = RuntimeError("You exceeded your current quota")
        error.status_code, error.code = 429, "insufficient_quota"  # type: ignore[attr-defined]
        raise error

    model = FakeChatModel(reply=broke)
    settings = LLMSettings(provider="openai", model_name="m", api_key="k")
    with pytest.raises(ProviderError, match="no credit"):
        run(LLMClient(settings, model=model).ask(question(1)))
    assert model.calls == 1


def test_a_timeout_is_retried_then_fails_the_call(
    serve: Callable[..., OpenAIServer], store: ReplyStore
) -> None:
    server = serve(latency=5.0)
    client = client_of(server, store, timeout_seconds=0.05, max_retries=2)
    found = ask_all(client, [question(1)])
    assert isinstance(found[0], CallError)
    assert found[0].kind is ErrorKind.TRANSIENT
    assert "timeout_seconds" in str(found[0])
    assert len(server.arrivals) == 3
    assert client.estimate([question(1)]).calls == 1  # an error is not stored


def test_a_server_that_is_down(serve: Callable[..., OpenAIServer]) -> None:
    settings = LLMSettings(provider="openai", model_name="m", api_key=KEY, base_url="http://127.0.0.1:9/v1")
    client = LLMClient(settings, backoff_seconds=0.01)
    with pytest.raises(ProviderError, match="cannot be reached") as caught:
        run(client.probe())
    assert caught.value.kind is ErrorKind.UNREACHABLE


def test_equal_requests_are_asked_once(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(latency=0.05)
    client = client_of(server)

    async def twice() -> list[Reply]:
        return await asyncio.gather(*(client.ask(question(n % 2)) for n in range(10)))

    replies = run(twice())
    assert len(server.arrivals) == 2
    assert sum(not reply.stored for reply in replies) == 2
    assert (client.usage.calls, client.usage.stored_replies) == (2, 8)


def test_who_waits_for_a_cancelled_call_asks_instead(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(latency=0.05)
    client = client_of(server)

    async def cancel_the_first() -> Reply:
        first = asyncio.create_task(client.ask(question(1)))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(client.ask(question(1)))
        await asyncio.sleep(0.01)
        first.cancel()
        return await second

    assert run(cancel_the_first()).text
    assert client.limiter.in_flight == 0


def test_stored_replies_make_no_call(serve: Callable[..., OpenAIServer], store: ReplyStore) -> None:
    server = serve(lambda body: judge("a b c d", "a b"))
    prices = Prices(input=1.0, output=2.0)
    asked = [question(n, top_logprobs=5) for n in range(5)]
    first = ask_all(client_of(server, store, prices=prices), asked)
    assert len(server.arrivals) == 5
    again = client_of(server, store, prices=prices)
    second = ask_all(again, asked)
    assert len(server.arrivals) == 5
    assert all(r.stored for r in second.values())
    for number, reply in first.items():
        assert (second[number].text, second[number].logprobs) == (reply.text, reply.logprobs)
        assert second[number].cost == reply.cost
    assert (again.usage.cost, again.usage.stored_replies) == (0.0, 5)
    ask_all(client_of(server, store, cache=False), asked)
    assert len(server.arrivals) == 10


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.5}, {"max_output_tokens": 9}, {"arguments": {"seed": 1}}, {"model_name": "other"}],
)
def test_what_alters_the_reply_alters_the_key(
    change: dict[str, Any], serve: Callable[..., OpenAIServer], store: ReplyStore
) -> None:
    server = serve()
    run(client_of(server, store).ask(question(1)))
    assert client_of(server, store).estimate([question(1)]).calls == 0
    assert client_of(server, store, **change).estimate([question(1)]).calls == 1
    same = client_of(server, store, api_key="sk-another-key", max_concurrency=3, timeout_seconds=9)
    assert same.estimate([question(1)]).calls == 0
    others = [question(1, attempt=1), question(1, top_logprobs=1), question(1, schema=SCHEMA)]
    assert same.estimate(others).calls == 3


def test_logprobs(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(lambda body: Completion("Grade: 3", {"3": 0.7, "2": 0.2, "x": 0.1}))
    client = client_of(server)
    reply = run(client.ask(question(1, top_logprobs=5)))
    assert server.bodies[0]["top_logprobs"] == 5
    assert [token.token for token in reply.logprobs] == ["Grade: ", "3"]
    assert [token for token, _ in reply.logprobs[-1].top] == ["3", "2", "x"]
    assert reply.logprobs[-1].logprob == pytest.approx(math.log(0.7))
    assert client.supports_logprobs() is True


def test_refused_logprobs_are_an_error_of_their_own(serve: Callable[..., OpenAIServer]) -> None:
    server = serve(logprobs="refuse")
    client = client_of(server, max_concurrency=2)
    with pytest.raises(LogprobsRefusedError, match="not supported with this model"):
        ask_all(client, [question(n, top_logprobs=5) for n in range(50)])
    assert len(server.arrivals) <= 3
    assert client.supports_logprobs() is False
    assert run(client.ask(question(1))).text


def test_missing_logprobs_are_noticed(serve: Callable[..., OpenAIServer]) -> None:
    client = client_of(serve(logprobs=False))
    assert client.supports_logprobs() is True
    assert run(client.probe(question(1, top_logprobs=1))).logprobs is None
    assert client.supports_logprobs() is False


def test_structured_output_by_response_format(serve: Callable[..., OpenAIServer]) -> None:
    server = serve()
    reply = run(client_of(server).ask(question(1, schema=SCHEMA)))
    asked = server.bodies[0]["response_format"]["json_schema"]
    assert (asked["name"], asked["strict"]) == ("question_and_answer", True)
    assert set(json.loads(reply.text)) == {"question", "score"}


def test_structured_output_by_tool_call() -> None:
    settings = LLMSettings(provider="custom", class_path="tests.fake_chat_model:FakeChatModel")
    model = FakeChatModel(reply=lambda messages: {"question": "Why?", "score": 7})
    reply = run(LLMClient(settings, model=model).ask(question(1, schema=SCHEMA)))
    assert reply.text == '{"question": "Why?", "score": 7}'


def test_a_budget_stops_and_keeps_what_was_done(
    serve: Callable[..., OpenAIServer], store: ReplyStore
) -> None:
    server = serve(latency=0.002)
    prices = Prices(input=1000.0, output=1000.0)
    one = run(client_of(server, prices=prices).ask(question(1))).cost
    limit = 40 * one
    client = client_of(server, store, prices=prices, budget=Budget(limit), max_concurrency=4)
    asked = [question(n) for n in range(1000)]
    found: list[Reply] = []
    with pytest.raises(BudgetExceeded, match="max_cost"):
        run(client.ask_all(asked, lambda _, __, reply: found.append(reply)))
    assert 0 < client.usage.cost <= limit * 1.1
    assert len(found) == client.usage.calls
    assert client.estimate(asked).calls == 1000 - len(found)
    with pytest.raises(UserError, match="needs `prices`"):
        client_of(server, budget=Budget(1.0))


def test_stored_replies_need_no_budget(serve: Callable[..., OpenAIServer], store: ReplyStore) -> None:
    prices = Prices(input=1000.0, output=1000.0)
    server = serve()
    run(client_of(server, store, prices=prices).ask(question(1)))
    assert run(client_of(server, store, prices=prices, budget=Budget(0.0)).ask(question(1))).stored


def test_estimate(serve: Callable[..., OpenAIServer], store: ReplyStore) -> None:
    client = client_of(serve(), store, prices=Prices(input=1.0, output=2.0))
    asked = [Request((("user", "x" * 400),), "v1"), Request((("user", "y" * 800),), "v1")]
    assert client.estimate([*asked, asked[0]], output_tokens=10) == (2, 320, pytest.approx((300 + 40) / 1e6))
    run(client.ask(asked[0]))
    assert client.estimate(asked, output_tokens=10).calls == 1
    assert client_of(serve()).estimate(asked).cost is None


def test_cancelling_keeps_what_came(serve: Callable[..., OpenAIServer], store: ReplyStore) -> None:
    client = client_of(serve(latency=0.01), store, max_concurrency=4)
    asked = [question(n) for n in range(200)]

    async def cancelled() -> None:
        came = asyncio.Event()
        task = asyncio.create_task(client.ask_all(asked, lambda number, *_: number >= 20 and came.set()))
        await came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert client.usage.calls >= 10
    assert client.estimate(asked).calls == 200 - client.usage.calls
    assert client.limiter.in_flight == 0


def test_run_works_within_a_running_loop(serve: Callable[..., OpenAIServer]) -> None:
    client = client_of(serve())

    async def notebook() -> str:
        return run(client.ask(question(1))).text

    assert asyncio.run(notebook()) == run(client.ask(question(1))).text


def test_a_client_belongs_to_one_loop(serve: Callable[..., OpenAIServer]) -> None:
    client = client_of(serve())
    run(client.ask(question(1)))
    with pytest.raises(RuntimeError, match="one event loop"):
        asyncio.run(client.ask(question(1)))


def test_the_key_is_in_no_file(serve: Callable[..., OpenAIServer], tmp_path: Path, store: ReplyStore) -> None:
    server = serve(share_500=0.3)
    settings = server.llm(arguments={"default_headers": {"X-Api-Key": "another-secret-value"}})
    client = LLMClient(LLMSettings(**settings), store, backoff_seconds=0.01)
    ask_all(client, [question(n) for n in range(20)])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert KEY.encode() not in path.read_bytes()
        assert b"another-secret-value" not in path.read_bytes()
    assert "another-secret-value" not in client._identity
    assert KEY not in repr(client.settings) + repr(vars(client)) + repr(client._calls._model)


def test_openais_own_client_gives_the_same(
    serve: Callable[..., OpenAIServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(share_429=0.2, share_500=0.2, share_malformed=0.1)
    asked = [question(n, top_logprobs=3) for n in range(30)] + [question(n, schema=SCHEMA) for n in range(30)]
    ours = ask_all(client_of(server, timeout_seconds=11), asked)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    stock = client_of(server, timeout_seconds=11)
    assert type(stock._calls._model).__name__ == "ChatOpenAI"
    theirs = ask_all(stock, asked)
    for number, reply in ours.items():
        other = theirs[number]
        assert isinstance(reply, Reply), reply
        assert isinstance(other, Reply), other
        assert replace(other, seconds=reply.seconds) == reply
    wrong = client_of(server, api_key="sk-wrong-key-9876543210-zyxwvut", timeout_seconds=11)
    with pytest.raises(ProviderError, match="Incorrect API key") as caught:
        run(wrong.probe())
    assert "xwvut" not in str(caught.value)


def test_the_environments_key_is_used_and_hidden(
    serve: Callable[..., OpenAIServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = server.llm()
    del settings["api_key"]
    client = LLMClient(LLMSettings(**settings))
    assert run(client.ask(question(1))).text
    assert KEY in client._calls._secrets
    assert os.environ["OPENAI_API_KEY"] not in repr(vars(client._calls))
