"""An OpenAI-compatible server for tests: standard library only, replies depend only on the request body.

In a test: `with OpenAIServer(latency=0.05, share_429=0.1) as server: LLMSettings(**server.llm())`.
In a process of its own: `python tests/openai_server.py '{"latency": 0.05}'` prints its URL and serves until
its standard input closes; `GET /counters` returns the counters in both cases.
"""

import asyncio
import hashlib
import json
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Self

KEY = "sk-test-0123456789-abcdefghijklmnop"
MODEL = "test-model"


class Completion(NamedTuple):
    """A text, and the probabilities of its last token where they matter."""

    text: str
    last_token: dict[str, float] | None = None


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def embed(text: str) -> list[float]:
    """64 dimensions; each token adds +1 or -1 (bit 64 of its md5) at index md5 mod 64; L2-normalised."""
    vector = [0.0] * 64
    for word in words(text):
        number = int(hashlib.md5(word.encode()).hexdigest(), 16)
        vector[number % 64] += 1.0 if number >> 64 & 1 else -1.0
    norm = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / norm for x in vector]


def judge(question: str, passage: str) -> Completion:
    """Class 1 to 4 by the share of the question's distinct tokens in the passage, 0.9 of the mass on it."""
    asked = set(words(question))
    label = 1 + min(3, int(4 * len(asked & set(words(passage))) / max(1, len(asked))))
    return Completion(str(label), {str(n): 0.9 if n == label else 0.1 / 3 for n in range(1, 5)})


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends only on the parts."""
    return int(hashlib.md5(repr(parts).encode()).hexdigest()[:13], 16) / 16**13


def sample(schema: dict[str, Any], seed: str) -> Any:
    """A value that fits a JSON schema."""
    if "enum" in schema:
        return schema["enum"][int(unit(seed) * len(schema["enum"]))]
    match schema.get("type"):
        case "object":
            return {name: sample(part, seed + name) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema.get("items", {}), seed)]
        case "integer" | "number":
            low, high = schema.get("minimum", 0), schema.get("maximum", 100)
            return low + int(unit(seed) * (high - low + 1))
        case "boolean":
            return unit(seed) < 0.5
    return "text " + hashlib.md5(seed.encode()).hexdigest()[:8]


def default_reply(body: dict[str, Any]) -> Any:
    """A value by the schema that is asked for, else a label 1 to 4."""
    seed = json.dumps(body["messages"])
    if schema := body.get("response_format", {}).get("json_schema", {}).get("schema"):
        return sample(schema, seed)
    if body.get("tools"):
        return sample(body["tools"][0]["function"]["parameters"], seed)
    return str(1 + int(unit(seed) * 4))


class OpenAIServer:
    """The server, in a thread of its own; shares of faults are by hash of the body and number of the try."""

    def __init__(
        self,
        reply: Callable[[dict[str, Any]], Any] = default_reply,
        *,
        latency: float | tuple[float, float] = 0.0,
        share_429: float = 0.0,
        share_500: float = 0.0,
        share_malformed: float = 0.0,
        retry_after: str | None = "0",
        first_statuses: tuple[int, ...] = (),
        logprobs: bool | str = True,  # "refuse": answers 400 when asked for them
        api_key: str = KEY,
    ) -> None:
        self.reply, self.logprobs, self.api_key, self.retry_after = reply, logprobs, api_key, retry_after
        self.latency = latency if isinstance(latency, tuple) else (latency, latency)
        self.shares = {429: share_429, 500: share_500, 0: share_malformed}
        self.first = list(first_statuses)
        self.tries: Counter[str] = Counter()
        self.paths: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.in_flight = self.peak = 0
        self.arrivals: list[float] = []
        self.bodies: list[dict[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _hang_up(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def llm(self, **changes: Any) -> dict[str, Any]:
        """The llm dict of this server."""
        start = {"provider": "openai", "model_name": MODEL, "api_key": self.api_key, "base_url": self.url}
        return start | changes

    def counters(self) -> dict[str, Any]:
        return {
            "calls": len(self.arrivals),
            "peak": self.peak,
            "paths": self.paths,
            "statuses": self.statuses,
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"(?i)^content-length: *(\d+)", head, re.M)
                raw = await reader.readexactly(int(length[1]) if length else 0)
                path = head.split(" ", 2)[1]
                if path == "/counters":
                    status, headers, payload = 200, "", json.dumps(self.counters()).encode()
                else:
                    status, headers, payload = await self._count(path, head, raw)
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}"
                    f"Content-Length: {len(payload)}\r\n\r\n".encode()
                    + payload
                )
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _count(self, path: str, head: str, raw: bytes) -> tuple[int, str, bytes]:
        self.arrivals.append(time.monotonic())
        self.paths[path] += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            status, content = await self._answer(path, head, raw, self.arrivals[-1])
        finally:
            self.in_flight -= 1
        self.statuses[status] += 1
        wait = (
            f"Retry-After: {self.retry_after}\r\n" if status == 429 and self.retry_after is not None else ""
        )
        return status, wait, content if isinstance(content, bytes) else json.dumps(content).encode()

    async def _answer(self, path: str, head: str, raw: bytes, arrived: float) -> tuple[int, Any]:
        key = re.search(r"(?i)^authorization: *bearer (.*?)\r?$", head, re.M)
        if not key or key[1] != self.api_key:
            shown = f"{key[1][:8]}{'*' * 20}{key[1][-4:]}" if key else ""
            return 401, error(f"Incorrect API key provided: {shown}. You can find your API key at "
                              "https://platform.openai.com/account/api-keys.", "invalid_api_key")  # fmt: skip
        body = json.loads(raw)
        if path.endswith("/embeddings"):
            texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
            data = [{"object": "embedding", "index": n, "embedding": embed(t)} for n, t in enumerate(texts)]
            return 200, {
                "object": "list",
                "model": body["model"],
                "data": data,
                "usage": usage(str(texts), ""),
            }
        if body["model"] != MODEL:
            return 404, error(f"The model `{body['model']}` does not exist.", "model_not_found")
        self.bodies.append(body)
        digest = hashlib.md5(raw).hexdigest()
        self.tries[digest] += 1
        answer = self._decide(body, digest)
        low, high = self.latency
        due = arrived + low + (high - low) * unit(digest)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return answer

    def _decide(self, body: dict[str, Any], digest: str) -> tuple[int, Any]:
        fault = self.first.pop(0) if self.first else None
        # No body is unlucky for ever: the sixth try of one meets no fault, unless all do.
        left = unit(digest, self.tries[digest]) if self.tries[digest] <= 5 else 1 - 1e-9
        for status, share in self.shares.items():
            if fault is None and left < share:
                fault = status
            left -= share
        if fault == 0:
            return 200, b'{"choices": nul' if unit(digest, "kind") < 0.5 else {"choices": None, "id": "x"}
        if fault is not None and fault != 200:
            return fault, error(f"Fault {fault} for the test.", "fault")
        if body.get("logprobs") and self.logprobs == "refuse":
            return 400, error("Unsupported parameter: 'logprobs' is not supported with this model.", None)
        return 200, self._complete(body)

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.reply(body)
        done = reply if isinstance(reply, Completion) else Completion(
            reply if isinstance(reply, str) else json.dumps(reply))  # fmt: skip
        message: dict[str, Any] = {"role": "assistant", "content": done.text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if body.get("tools"):
            function = {"name": body["tools"][0]["function"]["name"], "arguments": done.text}
            message |= {
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            }
        if body.get("logprobs") and self.logprobs:
            tokens = re.findall(r"\S+\s*", done.text) or [""]
            masses = [{token: 1.0} for token in tokens[:-1]] + [done.last_token or {tokens[-1]: 1.0}]
            content = [
                entry(token, mass[token])
                | {"top_logprobs": [entry(*x) for x in sorted(mass.items(), key=lambda x: -x[1])]}
                for token, mass in zip(tokens, masses, strict=True)
            ]
            choice["logprobs"] = {"content": content}
        counted = usage(json.dumps(body["messages"]), done.text)
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"],
                "choices": [choice], "usage": counted}  # fmt: skip


def error(message: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def entry(token: str, probability: float) -> dict[str, Any]:
    return {"token": token, "logprob": math.log(probability), "bytes": list(token.encode())}


def usage(prompt: str, text: str) -> dict[str, Any]:
    sent, got = len(words(prompt)), len(words(text))
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got,
            "prompt_tokens_details": {"cached_tokens": sent // 2}}  # fmt: skip


if __name__ == "__main__":
    with OpenAIServer(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")) as running:
        print(running.url, flush=True)
        sys.stdin.read()
