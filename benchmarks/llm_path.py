"""The path of an LLM call: many concurrent calls against a server of known latency, in the same run.

    python benchmarks/llm_path.py --questions 200 --chunks 10 --latency 0.05 --concurrency 32

The server (tests/openai_server.py) runs in a process of its own. Ideal is calls x latency / concurrency.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms import CallError, LLMClient, Reply, ReplyStore, Request, run

ROOT = Path(__file__).resolve().parents[1]
SEQUENTIAL_CALLS = 40
TARGET = 1.15


@contextmanager
def serving(**options: Any) -> Iterator[str]:
    """The server in a process of its own; gives its URL."""
    command = [sys.executable, str(ROOT / "tests" / "openai_server.py"), json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()


def counters(url: str) -> dict[str, Any]:
    """What the server counted."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/counters") as response:
        found: dict[str, Any] = json.load(response)
    return found


def judgments(questions: int, chunks: int, *, version: str) -> Iterator[Request]:
    """One request for each question and chunk."""
    passage = "A glacier is a slowly moving mass of ice that is formed from compacted snow. " * 8
    for q in range(questions):
        for c in range(chunks):
            text = f"Question: what is meant by term {q}?\n<passage>\n{c}: {passage}\n</passage>"
            rules = "Grade the passage from 1 to 4. " * 10
            yield Request((("system", rules), ("user", text)), version, top_logprobs=5)


def measure(client: LLMClient, requests: Iterator[Request]) -> tuple[float, float]:
    """Wall and CPU seconds; every request must be answered."""
    failed: list[CallError] = []

    def note(_: int, __: Request, reply: Reply | CallError) -> None:
        if isinstance(reply, CallError):
            failed.append(reply)

    wall, cpu = time.perf_counter(), time.process_time()
    run(client.ask_all(requests, note))
    if failed:
        raise SystemExit(f"{len(failed)} calls failed, the first: {failed[0]}")
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    calls = options.questions * options.chunks
    ideal = calls * options.latency / options.concurrency
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            with serving(latency=options.latency) as url:
                sys.path.insert(0, str(ROOT / "tests"))
                from openai_server import KEY, MODEL  # noqa: PLC0415

                def client(concurrency: int, url: str = url, folder: str = folder) -> LLMClient:
                    settings = LLMSettings(
                        provider="openai", model_name=MODEL, api_key=KEY, base_url=url,
                        max_concurrency=concurrency, prices={"input": 1.0, "output": 2.0},
                    )  # fmt: skip
                    return LLMClient(settings, ReplyStore(Path(folder) / "replies.sqlite"))

                run(client(options.concurrency).probe())
                one_by_one, _ = measure(client(1), judgments(SEQUENTIAL_CALLS, 1, version=f"s{repeat}"))
                full = client(options.concurrency)
                wall, cpu = measure(full, judgments(options.questions, options.chunks, version=f"c{repeat}"))
                again, _ = measure(full, judgments(options.questions, options.chunks, version=f"c{repeat}"))
                seen = counters(url)
                if seen["calls"] != 1 + SEQUENTIAL_CALLS + calls:
                    raise SystemExit(f"the stored replies were asked again: {seen}")
                sequential = one_by_one / SEQUENTIAL_CALLS * calls
                rows.append((wall, wall / ideal, seen["peak"], sequential, sequential / wall, cpu, again))
    print(f"{calls} calls of {options.latency * 1000:.0f} ms at concurrency {options.concurrency}; "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
          f"langchain-openai {version('langchain-openai')}; ideal {ideal:.2f} s\n")  # fmt: skip
    print("| run | seconds | of ideal | peak in flight | one by one (estimated) | times faster "
          "| CPU ms a call | again, from the store |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for number, (wall, ratio, peak, sequential, faster, cpu, again) in enumerate(rows, 1):
        print(f"| {number} | {wall:.2f} | {ratio:.3f} | {peak} | {sequential:.0f} s | {faster:.1f} | "
              f"{cpu / calls * 1000:.2f} | {again:.2f} s |")  # fmt: skip
    best = min(row[1] for row in rows)
    print(f"\nBest ratio {best:.3f}, target at most {TARGET}: {'met' if best <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
