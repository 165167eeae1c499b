"""ChatOpenAI on aiohttp: a quarter of the CPU time of a call through OpenAI's own client.

At 32 calls in flight and 50 ms each, OpenAI's client (2.5 ms of CPU a call) is slower than the server. This
class sends the same payload and reads the same reply by langchain-openai's own code, with only the client in
between replaced; whatever it does not cover goes through OpenAI's client.
"""

import asyncio
import contextlib
import importlib
import json
import os
import ssl
import urllib.request
import weakref
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr

from kbeval_pipeline.resources.llms.errors import HTTPStatusError, MalformedReplyError

_ONLY_BY_CLIENT = ("extra_headers", "extra_query", "timeout")
_CLOSE_WAIT_SECONDS = 1.0


class HTTPChatOpenAI(ChatOpenAI):
    """ChatOpenAI whose chat completions go through aiohttp; belongs to one event loop."""

    _session: Any = PrivateAttr(None)
    _proxy: str | None = PrivateAttr(None)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        payload = self._get_request_payload(messages, stop=stop, **kwargs)
        key = self.openai_api_key
        if (
            not isinstance(key, SecretStr)
            or self._use_responses_api(payload)
            or any(name in payload for name in _ONLY_BY_CLIENT)
        ):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        payload |= payload.pop("extra_body", None) or {}
        if self._session is None:
            self._session = self._open()
            self._proxy = _proxy_of(
                self.root_async_client.base_url.host, self.root_async_client.base_url.scheme
            )
        url = f"{str(self.root_async_client.base_url).rstrip('/')}/chat/completions"
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key.get_secret_value()}"}
        if self.openai_organization:
            headers["OpenAI-Organization"] = self.openai_organization
        headers |= self.default_headers or {}
        body = json.dumps(payload).encode()
        async with self._session.post(
            url, data=body, headers=headers, params=self.default_query, proxy=self._proxy
        ) as response:
            raw = await response.read()
            if response.status >= 400:
                raise _status_error(response.status, raw, response.headers)
        return self._read(raw)

    def _read(self, raw: bytes) -> ChatResult:
        try:
            reply = json.loads(raw)
            error = reply.get("error")
            if isinstance(error, dict) and isinstance(error.get("code"), int):
                # Routers of several providers answer 200 and put the fault into the body.
                raise _status_error(error["code"], raw, {})
            result = self._create_chat_result(reply)
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise MalformedReplyError(f"{fault} (reply begins {raw[:80]!r})") from None
        if not result.generations:
            raise MalformedReplyError("the reply has no choices")
        return result

    def _open(self) -> Any:
        aiohttp = importlib.import_module("aiohttp")
        certifi = importlib.import_module("certifi")
        context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
        connector = aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=30)
        # asyncio.timeout around the call is its time limit; one here would only say the same later.
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        weakref.finalize(self, _close, session, asyncio.get_running_loop())
        return session


def _proxy_of(host: str, scheme: str) -> str | None:
    """The environment's proxy; aiohttp would look it up anew, in a thread, for each call."""
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)


def _close(session: Any, loop: asyncio.AbstractEventLoop) -> None:
    closing = session.close()
    if loop.is_running():
        closed = asyncio.run_coroutine_threadsafe(closing, loop)
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                return
        with contextlib.suppress(TimeoutError):
            closed.result(_CLOSE_WAIT_SECONDS)
    else:
        # Connections of a loop that has ended are gone; this only keeps aiohttp from complaining about them.
        with contextlib.suppress(StopIteration, RuntimeError):
            closing.send(None)
        closing.close()


def _status_error(status: int, raw: bytes, headers: Any) -> HTTPStatusError:
    text = raw.decode("utf-8", "replace")
    code = ""
    try:
        error = json.loads(text).get("error")
        text = str(error["message"]) if isinstance(error, dict) else str(error or text)
        code = str(error.get("code") or "") if isinstance(error, dict) else ""
    except (ValueError, KeyError, AttributeError):
        pass
    return HTTPStatusError(status, text, headers, code)
