import os
import time
from pathlib import Path

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.knowledge_bases import KnowledgeBase, SkippedDocument
from kbeval_pipeline.resources.knowledge_bases.file_listing import glob_to_regex
from kbeval_pipeline.resources.knowledge_bases.html_text import html_to_text


def causes(skipped: list[SkippedDocument]) -> dict[str, str]:
    return {item.where: item.cause for item in skipped}


def test_ids_are_paths_in_order_and_markdown_stays_text(make, write) -> None:
    write({"b/z.txt": "zebra", "b/a.md": "# Title\r\n\r\n*text*", "a.html": "<p>page</p>", "no.pdf": "x"})
    assert [(d.id, d.content) for d in make().documents()] == [
        ("a.html", "page"),
        ("b/a.md", "# Title\n\n*text*"),
        ("b/z.txt", "zebra"),
    ]


def test_faulty_files_are_reported_and_the_others_kept(make, write, folder: Path, tmp_path: Path) -> None:
    write(
        {
            "good.txt": "\ufeffgood text",
            "binary.txt": b"text\x00\x01",
            "latin.txt": "Stra\u00dfe".encode("latin-1"),
            "wide.txt": "wide".encode("utf-16"),
            "empty.txt": "",
            "blank.txt": " \n\t ",
            "inside.txt": "inside",
        }
    )
    with (folder / "large.txt").open("wb") as file:
        file.truncate(50_000_000)
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "elsewhere").mkdir()
    (folder / "dangling.txt").symlink_to(folder / "gone.txt")
    (folder / "leaves.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "link.txt").symlink_to(folder / "inside.txt")
    (folder / "elsewhere").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe.txt")
    knowledge_base = make()

    assert [(d.id, d.content) for d in knowledge_base.documents()] == [
        ("good.txt", "good text"),
        ("inside.txt", "inside"),
        ("link.txt", "inside"),
    ]
    found = causes(knowledge_base.skipped_documents())
    assert found.keys() == {
        "binary.txt", "latin.txt", "wide.txt", "empty.txt", "blank.txt", "large.txt", "dangling.txt",
        "leaves.txt", "elsewhere", "pipe.txt",
    }  # fmt: skip
    assert "NUL" in found["binary.txt"]
    assert found["latin.txt"] == "not utf-8: byte 0xdf at offset 4; set `encoding` to that of the files"
    assert "utf-16" in found["wide.txt"]
    assert found["empty.txt"] == "empty"
    assert "blank" in found["blank.txt"]
    assert "50.0 MB, over max_file_mb (10)" in found["large.txt"]
    assert "does not exist" in found["dangling.txt"]
    assert "leaves the folder" in found["leaves.txt"]
    assert "not followed" in found["elsewhere"]
    assert "not a regular file" in found["pipe.txt"]


def test_the_encoding_of_the_files_can_be_set(make, write, folder: Path) -> None:
    write({"latin.txt": "Stra\u00dfe".encode("latin-1")})
    assert [d.content for d in make({"files": folder, "encoding": "latin-1"}).documents()] == ["Stra\u00dfe"]
    write({"latin.txt": "Stra\u00dfe".encode("utf-16")})
    assert [d.content for d in make({"files": folder, "encoding": "utf-16"}).documents()] == ["Stra\u00dfe"]


@pytest.mark.usefixtures("trust_new_files")
def test_an_unreadable_file_is_reported_and_tried_again(make, write, monkeypatch) -> None:
    write({"a.txt": "one", "b.txt": "two"})
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "a.txt":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert causes(make().skipped_documents()) == {"a.txt": "cannot be read: Permission denied"}
    monkeypatch.undo()
    assert make().skipped_documents() == []


def test_file_name_that_is_not_text(make, write, folder: Path) -> None:
    write({"a.txt": "one"})
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("odd")
    assert causes(make().skipped_documents()) == {
        "\\udcff.txt": "the file's name is not valid UTF-8; rename it"
    }


def test_missing_folder_and_no_documents(make, write, folder: Path, tmp_path: Path) -> None:
    absent = make({"files": tmp_path / "absent"})
    for call in (absent.fingerprint, absent.skipped_documents, lambda: list(absent.documents())):
        with pytest.raises(UserError, match=r'absent" does not exist'):
            call()
    write({"a.txt": b"\x00"})
    empty = make()
    for call in (empty.fingerprint, lambda: list(empty.documents()), lambda: empty.search("x", 1)):
        with pytest.raises(UserError, match=r"no document in folder .*left out: a\.txt: binary"):
            call()


def test_the_adapter_is_a_knowledge_base(make) -> None:
    assert isinstance(make(), KnowledgeBase)
    assert make(max_concurrency=3).max_concurrency == 3
    assert make().max_concurrency == os.cpu_count()
    with pytest.raises(UserError, match="name of dots"):
        make(name="..")


@pytest.fixture
def read_files(monkeypatch) -> list[str]:
    names: list[str] = []
    read_bytes = Path.read_bytes

    def record(path: Path) -> bytes:
        names.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", record)
    return names


@pytest.mark.usefixtures("trust_new_files")
def test_unchanged_files_are_not_read_again(make, write, folder: Path, read_files) -> None:
    write({"a.txt": "one", "b.txt": "two", "c.txt": b"\x00"})
    first = make().fingerprint()
    assert sorted(read_files) == ["a.txt", "b.txt", "c.txt"]
    read_files.clear()
    unchanged = make()
    assert unchanged.fingerprint() == first
    assert causes(unchanged.skipped_documents()).keys() == {"c.txt"}
    assert read_files == []
    status = (folder / "b.txt").stat()
    write({"b.txt": "TWO"})
    os.utime(folder / "b.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert make().fingerprint() != first
    assert read_files == ["b.txt"]


def test_files_just_written_are_always_read(make, write, folder: Path, read_files) -> None:
    write({"a.txt": "one", "b.txt": "two"})
    os.utime(folder / "b.txt", (time.time() - 60,) * 2)
    make().fingerprint()
    read_files.clear()
    make().fingerprint()
    assert read_files == ["a.txt"]


@pytest.mark.usefixtures("trust_new_files")
@pytest.mark.parametrize("damage", [b"", b"PAR1 not parquet PAR1", b"\x00" * 1000])
def test_a_damaged_cache_counts_as_empty(make, write, tmp_path: Path, damage: bytes) -> None:
    write({"a.txt": "one"})
    first = make().fingerprint()
    (cache,) = (tmp_path / "index" / "kb").glob("files-*.parquet")
    cache.write_bytes(damage)
    assert make().fingerprint() == first


@pytest.mark.usefixtures("trust_new_files")
def test_a_cut_cache_counts_as_empty(make, write, tmp_path: Path) -> None:
    write({"a.txt": "one"})
    first = make().fingerprint()
    (cache,) = (tmp_path / "index" / "kb").glob("files-*.parquet")
    cache.write_bytes(cache.read_bytes()[:-20])
    assert make().fingerprint() == first


def test_html_without_scripts_keeps_words_and_blocks() -> None:
    page = """<html><head><title>Guide</title><style>p {color: red}</style></head><body>
      <script>alert("x < y")</script><!-- hidden -->
      <h1>First</h1><p>One <b>bo</b>ld
      word &amp; an&nbsp;entity.</p><ul><li>item<li>next</ul>
      <table><tr><td>a</td><td>b</td></tr></table><pre>if x:\n    y</pre>tail<p>unclosed"""
    assert html_to_text(page).split("\n") == [
        "Guide", "", "First", "", "One bold word & an entity.", "", "item", "next", "", "a b", "", "if x:",
        "    y", "tail", "unclosed",
    ]  # fmt: skip


@pytest.mark.parametrize("page", ["<", "<p", "</p></div><![bad[", "&#xFFFFFFFF;", "<div>" * 3000 + "deep"])
def test_malformed_html_does_not_raise(page: str) -> None:
    assert isinstance(html_to_text(page), str)


def test_a_page_after_a_marked_section_is_read() -> None:
    assert html_to_text("<p>one</p><![bad[ x ]]><p>two</p>").endswith("two")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("**/*.md", ["a.md", "x/a.md", "x/y/a.md"], ["a.txt", "a.mdx"]),
        ("*.md", ["a.md"], ["x/a.md"]),
        ("docs/**", ["docs/a", "docs/x/b.md"], ["other/a"]),
        ("a?c[0-9].txt", ["abc1.txt"], ["a/c1.txt", "abcx.txt"]),
        ("[!a].txt", ["b.txt"], ["a.txt", "/.txt"]),
    ],
)
def test_glob_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = glob_to_regex(pattern)
    assert [name for name in matching + others if regex.fullmatch(name)] == matching
