import os
import shutil
from pathlib import Path

import polars as pl
import pytest


def test_content_decides_not_times_nor_place(make, write, folder: Path, tmp_path: Path) -> None:
    write({"a.txt": "alpha", "b.txt": "beta"})
    a = make().fingerprint()
    write({"b.txt": "gamma"})
    b = make().fingerprint()
    assert b != a
    write({"b.txt": "beta"})
    os.utime(folder / "b.txt", (1, 1))
    assert make().fingerprint() == a
    shutil.copytree(folder, tmp_path / "copy")
    assert make({"files": tmp_path / "copy"}, name="other").fingerprint() == a
    (folder / "b.txt").rename(folder / "c.txt")
    assert make().fingerprint() not in (a, b)


def test_files_and_a_table_of_the_same_content_agree(make, write, tables) -> None:
    write({"a.txt": "alpha", "b.txt": "beta"})
    tables.frames["src.docs"] = pl.DataFrame({"id": ["b.txt", "a.txt"], "content": ["beta", "alpha"]})
    assert make().fingerprint() == make({"table": "src.docs"}).fingerprint()


def test_ids_and_contents_cannot_run_into_each_other(make, tables) -> None:
    found = set()
    for ids in (["a", "b"], ["a\n1:b", "c"], ["ab", "c"]):
        tables.frames["src.docs"] = pl.DataFrame({"id": ids, "content": ["x", "x"]})
        found.add(make({"table": "src.docs"}).fingerprint())
    assert len(found) == 3


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"chunking": {"size": 500}}, {"chunking": {"size": 600}}, False),
        ({"chunking": {"size": 0, "overlap": 1}}, {"chunking": {"size": 0, "overlap": 2}}, True),
        ({"search": {"language": "english"}}, {"search": {"language": "german"}}, False),
        ({"search": {"mode": "lexical"}}, {"search": {"mode": "hybrid"}}, False),
        ({"search": {"vector_weight": 1}}, {"search": {"vector_weight": 2}}, True),
        (
            {"search": {"mode": "hybrid", "vector_weight": 1}},
            {"search": {"mode": "hybrid", "vector_weight": 2}},
            False,
        ),
        (
            {"search": {"mode": "vector", "embeddings": {"model": "m:C", "arguments": {"api_key": "1"}}}},
            {"search": {"mode": "vector", "embeddings": {"model": "m:C", "arguments": {"api_key": "2"}}}},
            True,
        ),
        (
            {"search": {"mode": "vector", "embeddings": {"model": "m:C", "arguments": {"max_tokens": "1"}}}},
            {"search": {"mode": "vector", "embeddings": {"model": "m:C", "arguments": {"max_tokens": "2"}}}},
            False,
        ),
    ],
)
def test_only_settings_that_shape_results_count(make, write, one, other, same) -> None:
    write({"a.txt": "alpha"})
    assert (make(**one).fingerprint() == make(**other).fingerprint()) is same
