"""The reply store: threads, processes, a kill in the middle, damaged and locked files."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.caches import InMemoryCache

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms import CacheStore, LLMClient, ReplyStore, Request, run
from tests.openai_server import OpenAIServer

ROOT = Path(__file__).parents[3]
JUDGING = """
import json, sys
from pathlib import Path
from kbeval_pipeline.project import LLMSettings
from kbeval_pipeline.resources.llms import LLMClient, ReplyStore, Request, run

settings, store, count = json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
client = LLMClient(LLMSettings(**settings), ReplyStore(store))
asked = (Request((("user", f"Passage {n}"),), "v1") for n in range(count))
run(client.ask_all(asked, lambda number, _, reply: print(number, flush=True)))
"""


def key(n: int) -> str:
    return f"{n:064x}"


def test_what_is_put_is_found(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path / "new" / "replies.sqlite")
    assert store.get(key(1)) is None
    for n in range(1200):
        store.put(key(n), f"text {n} é")
    assert store.get(key(7)) == "text 7 é"
    assert store.get_many(key(n) for n in range(1100, 1300)) == {
        key(n): f"text {n} é" for n in range(1100, 1200)
    }
    store.put(key(7), "another")
    store.close()
    assert ReplyStore(tmp_path / "new" / "replies.sqlite").get(key(7)) == "another"


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path / "replies.sqlite")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(key(n), str(n)), range(400)))
        assert list(pool.map(lambda n: store.get(key(n)), range(400))) == [str(n) for n in range(400)]


def judging(server: OpenAIServer, store: Path, count: int) -> subprocess.Popen[str]:
    settings = json.dumps(server.llm(max_concurrency=8))
    command = [sys.executable, "-c", JUDGING, settings, str(store), str(count)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def judge_here(server: OpenAIServer, store: Path, count: int) -> list[int]:
    client = LLMClient(LLMSettings(**server.llm(max_concurrency=8)), ReplyStore(store))
    asked = (Request((("user", f"Passage {n}"),), "v1") for n in range(count))
    numbers: list[int] = []
    run(client.ask_all(asked, lambda number, *_: numbers.append(number)))
    return sorted(numbers)


def test_two_processes_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    with OpenAIServer(latency=0.01) as server:
        both = [judging(server, path, 60) for _ in range(2)]
        outputs = [process.communicate(timeout=60)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert all(sorted(map(int, output.split())) == list(range(60)) for output in outputs)
        assert 60 <= len(server.arrivals) <= 120
        made = len(server.arrivals)
        assert judge_here(server, path, 60) == list(range(60))
        assert len(server.arrivals) == made


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, needed, concurrency = tmp_path / "replies.sqlite", 150, 8
    with OpenAIServer(latency=0.02) as server:
        first = judging(server, path, needed)
        reported = [int(first.stdout.readline()) for _ in range(40)]
        os.kill(first.pid, signal.SIGKILL)
        reported += [int(line) for line in first.communicate(timeout=30)[0].split()]
        stored = sqlite3.connect(path).execute("SELECT count(*) FROM replies").fetchone()[0]
        assert len(reported) <= stored < needed
        time.sleep(0.1)
        assert judge_here(server, path, needed) == list(range(needed))
        assert needed <= len(server.arrivals) <= needed + concurrency
        made = len(server.arrivals)
        assert judge_here(server, path, needed) == list(range(needed))
        assert len(server.arrivals) == made


def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(UserError, match=r"damaged.*move it away"):
        ReplyStore(path)


def test_a_file_damaged_later_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    store = ReplyStore(path)
    for n in range(500):
        store.put(key(n), "x" * 500)
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    damaged = ReplyStore(path)
    with pytest.raises(UserError, match="damaged"):
        damaged.get_many(key(n) for n in range(500))


def test_a_locked_file_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    store = ReplyStore(path, lock_wait_seconds=0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="locked by another process"):
        store.put(key(1), "x")
    holder.execute("ROLLBACK")
    store.put(key(1), "x")


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="folder is writable"):
        ReplyStore(tmp_path / "file" / "replies.sqlite")


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    ReplyStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(UserError, match="newer"):
        ReplyStore(path)


def test_any_langchain_cache_is_a_store() -> None:
    store = CacheStore(InMemoryCache())
    assert store.get(key(1)) is None
    store.put(key(1), "one")
    assert store.get_many([key(1), key(2)]) == {key(1): "one"}
