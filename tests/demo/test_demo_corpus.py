"""The demo's corpus of Python's own help, and the labelled questions about it."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).parents[2] / "demo"


def build(out: Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO / "build_corpus.py"), "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def files(out: Path) -> dict[str, Path]:
    return {path.relative_to(out).as_posix(): path for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "python_help"
    result = build(out, seed="1")
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_build_corpus", DEMO / "build_corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def questions() -> list[dict[str, str]]:
    with (DEMO / "python_questions.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_there_are_enough_documents_of_every_kind(corpus: Path) -> None:
    found = files(corpus)
    kinds = Counter(name.split("/")[0] for name in found)
    assert len(found) >= 500
    assert set(kinds) == {"builtins", "classes", "modules", "topics"}
    assert min(kinds.values()) >= 40


def test_every_document_is_a_distinct_titled_text(corpus: Path) -> None:
    bodies: dict[str, str] = {}
    for name, path in files(corpus).items():
        content = path.read_bytes()
        title, _, body = content.decode("utf-8").partition("\n")
        assert title.strip(), name
        assert len(body.strip()) >= 100, name
        assert len(content) < 200_000, name
        assert b"\r" not in content, name
        assert sys.base_prefix not in body or len(sys.base_prefix) < 6, name
        assert bodies.setdefault(body.strip(), name) == name


def test_the_bytes_depend_on_the_python_version_alone(corpus: Path, tmp_path: Path) -> None:
    build(tmp_path / "other", seed="2")
    first = {name: path.read_bytes() for name, path in files(corpus).items()}
    assert {name: path.read_bytes() for name, path in files(tmp_path / "other").items()} == first


def test_a_second_build_touches_nothing(corpus: Path) -> None:
    before = {name: path.stat().st_mtime_ns for name, path in files(corpus).items()}
    folder = corpus.stat().st_ino
    assert "unchanged" in build(corpus).stdout
    assert {name: path.stat().st_mtime_ns for name, path in files(corpus).items()} == before
    assert corpus.stat().st_ino == folder
    assert [path.name for path in corpus.parent.iterdir()] == [corpus.name]


def test_a_damaged_folder_is_mended_and_the_rest_left_alone(script: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "help"
    documents = {
        "modules/json.txt": b"json - module\n",
        "topics/with.txt": b"with\n",
        "topics/in.txt": b"in\n",
    }
    assert script.write(documents, out)
    old = out / "topics" / "with.txt"
    os.utime(old, ns=(1, 10**18))
    (out / "modules" / "json.txt").write_text("something else", encoding="utf-8")
    (out / "topics" / "in.txt").unlink()
    (out / "modules" / "stray.txt").write_text("left over", encoding="utf-8")
    assert script.write(documents, out)
    assert {name: path.read_bytes() for name, path in files(out).items()} == documents
    assert old.stat().st_mtime_ns == 10**18
    assert not script.write(documents, out)


def test_a_folder_with_other_files_is_refused(script: ModuleType, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("precious", encoding="utf-8")
    for out in (tmp_path, thesis):
        with pytest.raises(SystemExit, match="choose another folder"):
            script.write({"topics/with.txt": b"with"}, out)
    assert thesis.read_text(encoding="utf-8") == "precious"


def test_every_label_names_a_document(corpus: Path, questions: list[dict[str, str]]) -> None:
    missing = {row["doc_id"] for row in questions} - set(files(corpus))
    assert not missing


def test_the_questions_are_complete_and_distinct(questions: list[dict[str, str]]) -> None:
    assert list(questions[0]) == ["question", "doc_id", "answer"]
    for row in questions:
        assert all(value and value == value.strip() for value in row.values()), row
    pairs = [(row["question"], row["doc_id"]) for row in questions]
    distinct = {row["question"] for row in questions}
    assert len(set(pairs)) == len(pairs)
    assert len(distinct) >= 55
    assert len(questions) > len(distinct)  # some have two documents that answer them
    assert len({(row["question"], row["answer"]) for row in questions}) == len(distinct)


def test_the_questions_are_spread_over_the_corpus(questions: list[dict[str, str]]) -> None:
    kinds = Counter(row["doc_id"].split("/")[0] for row in questions)
    assert min(kinds[kind] for kind in ("builtins", "classes", "modules", "topics")) >= 5
    assert max(Counter(row["doc_id"] for row in questions).values()) <= 2
