"""An in-process chat model for tests: its reply is a function of the messages, in any order of calls."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable


class FakeChatModel(BaseChatModel):
    """`reply` returns text, or a mapping (by tool call where a tool is bound), or raises."""

    model: str = "fake"
    reply: Callable[[list[BaseMessage]], Any] = lambda messages: str(messages[-1].text)[::-1]
    latency: float = 0.0
    calls: int = 0
    in_flight: int = 0
    peak: int = 0

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=list(tools), **kwargs)  # type: ignore[return-value]

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        value = self.reply(messages)
        message = AIMessage(value if isinstance(value, str) else json.dumps(value))
        if kwargs.get("tools") and not isinstance(value, str):
            call = {"name": kwargs["tools"][0]["title"], "args": value, "id": "1"}
            message = AIMessage("", tool_calls=[call])
        sent, got = sum(len(m.text.split()) for m in messages), len(str(value).split())
        message.usage_metadata = {"input_tokens": sent, "output_tokens": got, "total_tokens": sent + got}
        message.response_metadata = {"model_name": self.model}
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.calls += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.latency)
            return self._generate(messages, **kwargs)
        finally:
            self.in_flight -= 1
