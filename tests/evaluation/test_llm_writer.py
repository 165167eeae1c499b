"""Questions written by a model: the request, unusable replies, failures, the order of completion."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from langchain_core.messages import BaseMessage

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.evaluation.generation import GeneratedTestSet, draw_order, generate_test_set
from kbeval_pipeline.evaluation.llm_writer import LLMWriter
from kbeval_pipeline.evaluation.question_prompts import (
    question_request,
)
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms.client import LLMClient
from kbeval_pipeline.resources.llms.errors import BudgetExceeded, CallError, ErrorKind, ProviderError
from kbeval_pipeline.resources.llms.reply_store import ReplyStore
from kbeval_pipeline.resources.llms.requests import Reply, Request
from tests.fake_chat_model import FakeChatModel

DOCUMENTS = pl.DataFrame(
    {"doc_id": [f"d{n}" for n in range(60)], "content": [f"Tower {n} is {n} metres high." for n in range(60)]}
)


class FakeModel:
    """Answers by passage and attempt, after a random pause; `reply` returns text or an exception."""

    def __init__(self, reply: Callable[[str, int], str | Exception], seed: int = 0) -> None:
        self._reply = reply
        self._pauses = random.Random(seed)
        self.requests: list[Request] = []
        self.in_flight = 0
        self.peak = 0

    async def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self._pauses.random() / 500)
        finally:
            self.in_flight -= 1
        found = self._reply(data_of(request)["passage"], request.attempt)
        if isinstance(found, Exception):
            raise found
        return Reply(found, None, "fake", 1, 0, 1, None, 0.0, stored=False)

    def attempts(self, passage: str) -> list[int]:
        return [request.attempt for request in self.requests if data_of(request)["passage"] == passage]


def data_of(request: Request) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(request.messages[1][1])
    return data


def good(passage: str, _: int = 0) -> str:
    return json.dumps({"question": f"How high is the tower of {passage.split()[1]}?", "answer": passage})


def generate(model: FakeModel, count: int = 20, concurrency: int = 8, rate: float = 0.2) -> GeneratedTestSet:
    writer = LLMWriter(model, concurrency)
    return asyncio.run(generate_test_set(DOCUMENTS, writer, count=count, seed=0, max_failure_rate=rate))


def drawn(number: int) -> tuple[str, str]:
    doc_id, content = draw_order(DOCUMENTS, 0).row(number)
    return doc_id, content


UNUSABLE = {
    "": "the reply is empty",
    "I cannot help with that.": "no JSON object",
    '{"question": "How high?", "answer": ': "broken JSON object",
    '{"question": "How high?"}': 'no "answer"',
    '{"question": " \\n", "answer": "3 m"}': '"question" is blank',
    '{"question": "How high?", "answer": "?"}': '"answer" is blank',
    '{"question": "How high?", "answer": 3}': '"answer" must be text, not int',
    '{"question": null, "answer": "3 m"}': '"question" must be text, not NoneType',
    '{"question": ["How high?"], "answer": "3 m"}': '"question" must be text, not list',
    '{"question": "How high\\u0000?", "answer": "3 m"}': "control characters",
    '{"question": "How \\ud83d high?", "answer": "3 m"}': "broken Unicode",
}


@pytest.mark.parametrize(("reply", "reason"), UNUSABLE.items())
def test_an_unusable_reply_is_asked_again_with_the_reason(reply: str, reason: str) -> None:
    _, passage = drawn(0)
    model = FakeModel(lambda text, attempt: reply if text == passage and attempt == 0 else good(text))
    made = generate(model, count=3)
    assert made.rows["text"][0] == passage
    assert made.skipped.is_empty()
    again = next(request for request in model.requests if request.attempt == 1)
    assert reason in data_of(again)["reason"]
    assert data_of(again)["unusable_reply"] == reply
    assert len(model.requests) == 4


def test_after_two_re_asks_a_row_is_skipped_and_replaced() -> None:
    doc_id, passage = drawn(1)
    model = FakeModel(lambda text, _: "no" if text == passage else good(text))
    made = generate(model)
    assert model.attempts(passage) == [0, 1, 2]
    assert made.skipped.rows() == [(doc_id, "no usable reply in 3 attempts: the reply holds no JSON object")]
    assert made.rows.height == 20
    assert doc_id not in made.rows["doc_id"]
    assert (made.counts.unusable, made.counts.asked, made.counts.shortfall) == (1, 21, 0)
    assert len(model.requests) == 20 + 3


def test_a_failed_call_skips_its_row_with_the_cause() -> None:
    doc_id, passage = drawn(2)
    error = CallError("took longer than 60 s", ErrorKind.TRANSIENT)
    model = FakeModel(lambda text, _: error if text == passage else good(text))
    made = generate(model)
    assert model.attempts(passage) == [0]
    assert made.skipped.rows() == [(doc_id, "the call failed (transient): took longer than 60 s")]
    assert made.rows.height == 20


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("wrong key", ErrorKind.AUTHENTICATION),
        ProviderError("no such model", ErrorKind.UNKNOWN_MODEL),
        BudgetExceeded("spent"),
    ],
)
def test_what_every_call_would_meet_ends_the_generation_at_once(error: UserError) -> None:
    model = FakeModel(lambda text, _: error)
    with pytest.raises(type(error), match=str(error)):
        generate(model, concurrency=2)
    assert len(model.requests) <= 4
    assert model.in_flight == 0


def test_too_many_failures_end_the_generation() -> None:
    model = FakeModel(lambda text, _: CallError("overloaded", ErrorKind.THROTTLED))
    with pytest.raises(UserError, match=r"10 of the first 10 documents failed.*throttled.*overloaded"):
        generate(model, count=60)
    assert len(model.requests) == 32


def test_the_rate_can_be_raised_and_the_shortfall_is_reported() -> None:
    model = FakeModel(lambda text, _: "no" if int(text.split()[1]) % 2 else good(text))
    made = generate(model, count=60, rate=1.0)
    assert made.rows.height == made.skipped.height == made.counts.shortfall == 30


def test_neither_order_of_completion_nor_concurrency_changes_the_rows() -> None:
    def reply(text: str, attempt: int) -> str | Exception:
        number = int(text.split()[1])
        if number % 13 == 0:
            return CallError(f"failed {number}", ErrorKind.TRANSIENT)
        if number % 7 == 0 and attempt < 2:
            return "no"
        return good("Tower 1 of") if number % 5 == 0 else good(text)

    made = [
        generate(FakeModel(reply, seed), count=30, concurrency=concurrency, rate=0.5)
        for seed, concurrency in enumerate((1, 3, 20, 200))
    ]
    assert made[0].counts.repeated > 0
    assert made[0].skipped.height > 0
    for other in made[1:]:
        assert other.rows.equals(made[0].rows)
        assert other.skipped.equals(made[0].skipped)
        assert other.counts == made[0].counts


def test_concurrency_is_bounded() -> None:
    model = FakeModel(good)
    generate(model, concurrency=5)
    assert model.peak == 5


def test_a_second_run_over_the_same_documents_makes_no_call(tmp_path: Path) -> None:
    def reply(messages: list[BaseMessage]) -> str:
        data = json.loads(messages[1].text)
        unusable = data["passage"].startswith("Tower 4") and "reason" not in data
        return "no" if unusable else good(data["passage"])

    async def made_by(model: FakeChatModel) -> GeneratedTestSet:
        settings = LLMSettings(provider="openai", model_name="fake")
        client = LLMClient(settings, ReplyStore(tmp_path / "replies.sqlite"), model=model)
        return await generate_test_set(DOCUMENTS, LLMWriter(client, 8), count=60, seed=0)

    first, second = FakeChatModel(reply=reply), FakeChatModel(reply=reply)
    rows = asyncio.run(made_by(first)).rows
    assert rows.height == 60
    assert first.calls == 60 + 11
    assert asyncio.run(made_by(second)).rows.equals(rows)
    assert second.calls == 0


def test_chinese_passages_give_chinese_questions() -> None:
    documents = pl.DataFrame({"doc_id": ["1", "2"], "content": ["冰川是缓慢移动的冰体。", "山脉很高很长。"]})
    replies = {
        "冰川是缓慢移动的冰体。": {"question": "冰川是什么样的物体?", "answer": "缓慢移动的冰体"},
        "山脉很高很长。": {"question": "How high are the mountains?", "answer": "很高"},
    }
    model = FakeModel(lambda text, _: json.dumps(replies[text]))
    made = asyncio.run(generate_test_set(documents, LLMWriter(model, 2), count=2, seed=0))
    assert made.rows["doc_id"].to_list() == ["1"]
    assert made.counts.other_language == 1
    assert "冰川" in question_request("冰川").messages[1][1]
