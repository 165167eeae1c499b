import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.knowledge_bases import local as local_module


@pytest.fixture
def builds(monkeypatch) -> list[Path]:
    """The folders that were built."""
    folders: list[Path] = []
    build = local_module.build_local_index

    def record(folder: Path, *arguments) -> None:
        folders.append(folder)
        build(folder, *arguments)

    monkeypatch.setattr(local_module, "build_local_index", record)
    return folders


def indexes(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "index" / "kb").iterdir() if path.is_dir()}


def test_an_index_is_stored_and_used_again(make, write, builds, tmp_path: Path) -> None:
    write({"a.txt": "apple", "b.txt": "boat"})
    first = make()
    hits = first.search("boat", 5)
    first.search("apple", 5)
    again = make()
    assert again.search("boat", 5) == hits
    assert len(builds) == 1
    assert indexes(tmp_path) == {first.fingerprint()}


def test_a_to_b_to_a_builds_twice(make, write, builds) -> None:
    write({"a.txt": "apple"})
    make().search("apple", 1)
    write({"a.txt": "boat"})
    assert make().search("apple", 1) == []
    assert len(make().search("boat", 1)) == 1
    write({"a.txt": "apple"})
    assert len(make().search("apple", 1)) == 1
    assert len(builds) == 2


def test_an_adapter_keeps_to_the_state_it_opened(make, write) -> None:
    write({"a.txt": "apple"})
    knowledge_base = make()
    knowledge_base.search("apple", 1)
    write({"a.txt": "boat"})
    assert len(knowledge_base.search("apple", 1)) == 1
    assert knowledge_base.search("boat", 1) == []


def test_the_three_latest_indexes_are_kept(make, write, tmp_path: Path) -> None:
    names = []
    for number in range(5):
        write({"a.txt": f"apple {number}"})
        knowledge_base = make()
        knowledge_base.search("apple", 1)
        names.append(knowledge_base.fingerprint())
    assert indexes(tmp_path) == set(names[-3:])


def put(path: Path, data: bytes) -> None:
    """Write under a new inode: an earlier adapter may still have the old file mapped into memory."""
    path.unlink()
    path.write_bytes(data)


def cut(path: Path) -> None:
    put(path, path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    put(path, bytes(data))


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("pattern", ["chunks.arrow", "lexical/meta.json", "lexical/*.idx", "manifest.json"])
def test_a_damaged_index_is_built_anew(
    make, write, builds, tmp_path: Path, damage: Callable[[Path], None], pattern: str
) -> None:
    write({"a.txt": "apple", "b.txt": "boat"})
    hits = make().search("boat", 5)
    (path,) = (tmp_path / "index" / "kb").glob(f"*/{pattern}")
    damage(path)
    assert make().search("boat", 5) == hits
    assert len(builds) == 2
    assert make().search("boat", 5) == hits
    assert len(builds) == 2


def test_an_index_that_looks_whole_and_cannot_be_opened_is_built_anew(
    make, write, builds, monkeypatch
) -> None:
    write({"a.txt": "apple"})
    make().search("apple", 1)
    opened = []
    open_index = local_module.LocalIndex

    def fail_once(*arguments):
        opened.append(arguments)
        if len(opened) == 1:
            raise ValueError("damaged")
        return open_index(*arguments)

    monkeypatch.setattr(local_module, "LocalIndex", fail_once)
    assert len(make().search("apple", 1)) == 1
    assert len(builds) == 2


def test_leftovers_of_ended_builds_are_removed(make, write, tmp_path: Path) -> None:
    write({"a.txt": "apple"})
    root = tmp_path / "index" / "kb"
    host = os.uname().nodename
    ended = root / f".building-{host}-999999999-abc"
    running = root / f".building-{host}-{os.getpid()}-abc"
    elsewhere = root / ".building-other-host-999999999-abc"
    old = root / ".building-other-host-1-abc"
    for path in (ended, running, elsewhere, old):
        path.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 24 * 3600,) * 2)
    knowledge_base = make()
    knowledge_base.search("apple", 1)
    assert indexes(tmp_path) == {knowledge_base.fingerprint(), running.name, elsewhere.name}


def test_a_failed_build_leaves_nothing(make, write, tmp_path: Path, monkeypatch) -> None:
    write({"a.txt": "apple"})

    def fail(*arguments) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr(local_module, "build_local_index", fail)
    with pytest.raises(RuntimeError):
        make().search("apple", 1)
    assert indexes(tmp_path) == set()


def test_an_index_is_named_by_what_was_read(make, write, monkeypatch, tmp_path: Path) -> None:
    write({"a.txt": "apple"})
    before = make().fingerprint()
    build = local_module.build_local_index

    def change_first(*arguments) -> None:
        write({"a.txt": "boat"})
        build(*arguments)

    monkeypatch.setattr(local_module, "build_local_index", change_first)
    assert len(make().search("boat", 1)) == 1
    assert indexes(tmp_path) == {make().fingerprint()}
    assert make().fingerprint() != before


def test_an_index_folder_that_cannot_be_written(make, write, tmp_path: Path) -> None:
    write({"a.txt": "apple"})
    (tmp_path / "index").write_text("a file in its place")
    with pytest.raises(UserError, match=r"index folder .* cannot be written"):
        make().search("apple", 1)


SEARCH_WHEN_TOLD = """
import json, pathlib, sys
from kbeval_pipeline.project import LocalKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases import build_knowledge_base
folder, index_folder = map(pathlib.Path, sys.argv[1:])
settings = LocalKnowledgeBase.model_validate({"documents": {"files": folder}})
knowledge_base = build_knowledge_base("kb", settings, None, index_folder)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([(hit.chunk_id, hit.score) for hit in knowledge_base.search("boat 7", 10)]))
"""


def test_two_processes_build_at_once(write, folder: Path, tmp_path: Path) -> None:
    write({f"{n}.txt": f"boat number {n}" for n in range(300)})
    command = [sys.executable, "-c", SEARCH_WHEN_TOLD, str(folder), str(tmp_path / "index")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert found[0] == found[1]
    assert found[0][0][0] == "7.txt#0"
    assert len(indexes(tmp_path)) == 1


def test_an_index_that_another_process_built_first_is_used(make, write, tmp_path: Path, monkeypatch) -> None:
    write({"a.txt": "apple"})
    build = local_module.build_local_index

    def overtaken(*arguments) -> None:
        build(*arguments)
        monkeypatch.setattr(local_module, "build_local_index", build)
        make().search("apple", 1)

    monkeypatch.setattr(local_module, "build_local_index", overtaken)
    assert len(make().search("apple", 1)) == 1
    assert len(indexes(tmp_path)) == 1
