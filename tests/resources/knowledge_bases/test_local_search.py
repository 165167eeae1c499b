import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from kbeval_pipeline.project import ChunkingSettings
from kbeval_pipeline.resources.knowledge_bases.chunking import make_chunker
from kbeval_pipeline.resources.knowledge_bases.tokens import Analyzer, prepare


def ids(hits) -> list[str]:
    return [hit.doc_id for hit in hits]


def test_hits_are_complete(make, write) -> None:
    write({"a.txt": "The boats are sailing", "b.txt": "A boat, a boat", "c.txt": "nothing here"})
    hits = make().search("Which BOAT sails?", 10)
    assert [(hit.rank, hit.chunk_id, hit.doc_id, hit.content) for hit in hits] == [
        (1, "a.txt#0", "a.txt", "The boats are sailing"),
        (2, "b.txt#0", "b.txt", "A boat, a boat"),
    ]
    assert hits[0].score > hits[1].score > 0
    assert all(isinstance(hit.score, float) and math.isfinite(hit.score) for hit in hits)
    assert ids(make().search("boat", 1)) == ["b.txt"]
    with pytest.raises(ValueError, match="k is 0"):
        make().search("boat", 0)


def test_equal_scores_are_in_the_order_of_documents_at_the_cut_too(make, write) -> None:
    write({f"{n:03}.txt": "same words here" for n in range(300)} | {"zzz.txt": "same same same words"})
    expected = ["zzz.txt"] + [f"{n:03}.txt" for n in range(300)]
    for k in (1, 5, 150, 301, 1000):
        assert ids(make().search("same words", k)) == expected[:k]


@pytest.mark.parametrize(
    "question",
    ["boat AND (sail", "content:boat", "boat^3 ~2 \"open", "-boat +boat", "[boat TO x]", "boat\\", "boat*",
     "'boat' OR \u201eboat\u201c", "boat\x00", "boat \ud800", "\N{GRINNING FACE} boat", "boat " * 5000],
)  # fmt: skip
def test_a_question_has_no_syntax(make, write, question: str) -> None:
    write({"a.txt": "a boat", "b.txt": "a cloud", "c.txt": "content"})
    assert "a.txt" in ids(make().search(question, 3))
    assert "b.txt" not in ids(make().search(question, 3))


@pytest.mark.parametrize("question", ["", "  \n", "?!", "the of and", "unknownword", "x" * 100_000])
def test_a_question_without_a_known_term_finds_nothing(make, write, question: str) -> None:
    write({"a.txt": f"the boat of the sea {'x' * 100_000}"})
    assert make().search(question, 5) == []


def test_a_question_of_thousands_of_words(make, write) -> None:
    write({"a.txt": "w4999 boat"})
    assert ids(make().search(" ".join(f"w{n}" for n in range(5000)), 5)) == ["a.txt"]


def test_cjk_needs_no_setting(make, write) -> None:
    write(
        {
            "zh.txt": "\u9ed1\u8c79\u961f\u7684\u9632\u5b88\u53ea\u4e22\u4e86 308 \u5206\u3002",
            "ja.txt": "\u6771\u4eac\u306e\u5929\u6c17\u306f\u6674\u308c\u3002\uff76\uff9e\uff97\uff7d",
            "ko.txt": "\uc11c\uc6b8\uc758 \ub0a0\uc528\ub294 \ub9d1\uc2b5\ub2c8\ub2e4",
            "mixed.txt": "Polars\u306e\u4f7f\u3044\u65b9 and Python3\u5165\u9580",
            "one.txt": "Das Zeichen \u732b steht allein",
        }
    )
    knowledge_base = make()
    assert ids(knowledge_base.search("\u8c79\u961f\u4e22\u4e86\u591a\u5c11\u5206\uff1f", 1)) == ["zh.txt"]
    assert ids(knowledge_base.search("\u6771\u4eac\u5929\u6c17", 1)) == ["ja.txt"]
    assert ids(knowledge_base.search("\u30ac\u30e9\u30b9", 1)) == ["ja.txt"]
    assert ids(knowledge_base.search("\ub0a0\uc528", 1)) == ["ko.txt"]
    assert ids(knowledge_base.search("polars", 5)) == ["mixed.txt"]
    assert ids(knowledge_base.search("python3 \u5165\u9580", 5)) == ["mixed.txt"]
    assert ids(knowledge_base.search("\u732b", 5)) == ["one.txt"]


def test_terms() -> None:
    assert prepare("plain text") == "plain text"
    assert prepare("\u4f60\u597d\u4e16\u754cABC\u732b").split() == [
        "\u4f60\u597d", "\u597d\u4e16", "\u4e16\u754c", "ABC", "\u732b"
    ]  # fmt: skip
    assert Analyzer("english").terms("Running, the RUNNER runs C++ on caf\u0065\u0301s") == [
        "run", "runner", "c", "caf\u00e9"
    ]  # fmt: skip
    assert Analyzer("none").terms("The The snake_case") == ["the", "snake", "case"]
    assert Analyzer("german").terms("Die H\u00e4user") == ["haus"]
    assert Analyzer("tamil").terms("\u0ba4\u0bae\u0bbf\u0bb4\u0bcd") == ["\u0ba4\u0bae\u0bbf\u0bb4\u0bcd"]


@pytest.mark.parametrize("language", ["arabic", "greek", "romanian", "turkish", "russian", "hungarian"])
def test_every_language_finds_its_own_words(make, write, language: str) -> None:
    write({"a.txt": "\u0643\u062a\u0627\u0628 \u03b2\u03b9\u03b2\u03bb\u03af\u03bf kitap k\u00f6nyv"})
    for question in (
        "\u0643\u062a\u0627\u0628",
        "\u03b2\u03b9\u03b2\u03bb\u03af\u03bf",
        "kitap",
        "k\u00f6nyv",
    ):
        assert ids(make(search={"language": language}).search(question, 1)) == ["a.txt"]


def test_chunks_are_numbered_within_their_document(make, write) -> None:
    write({"a.txt": "First paragraph on apples.\n\nSecond paragraph on boats.", "b.txt": "Short on boats."})
    knowledge_base = make(chunking={"size": 30, "overlap": 0})
    hits = knowledge_base.search("boats", 10)
    assert [(hit.chunk_id, hit.content) for hit in hits] == [
        ("b.txt#0", "Short on boats."),
        ("a.txt#1", "Second paragraph on boats."),
    ]


def test_chunking() -> None:
    whole = make_chunker(ChunkingSettings(size=0))
    assert whole("a b " * 1000) == ["a b " * 1000]
    chinese = make_chunker(ChunkingSettings(size=12, overlap=0))
    assert chinese(
        "\u4f60\u597d\u4e16\u754c\u3002\u4eca\u5929\u5929\u6c17\u5f88\u597d\uff0c\u6211\u4eec\u51fa\u53bb\u73a9\u3002"
    ) == [
        "\u4f60\u597d\u4e16\u754c\u3002",
        "\u4eca\u5929\u5929\u6c17\u5f88\u597d\uff0c",
        "\u6211\u4eec\u51fa\u53bb\u73a9\u3002",
    ]
    english = make_chunker(ChunkingSettings(size=24, overlap=0))
    assert english("One sentence here. And another one! Is it?") == [
        "One sentence here.", "And another one! Is it?"
    ]  # fmt: skip
    overlapping = make_chunker(ChunkingSettings(size=20, overlap=10))
    pieces = overlapping("one two three four five six seven eight nine")
    assert all(len(piece) <= 20 for piece in pieces)
    assert any(piece.split()[-1] in following.split() for piece, following in pairwise(pieces))
    markdown = make_chunker(ChunkingSettings(size=40, overlap=0, splitter="markdown"))
    assert markdown("# One\n\ntext of one\nmore\n## Two\n\ntext of two, longer") == [
        "# One\n\ntext of one\nmore", "## Two\n\ntext of two, longer"
    ]  # fmt: skip
    assert make_chunker(ChunkingSettings(size=10, overlap=0))("x" * 25) == ["x" * 10, "x" * 10, "x" * 5]


def test_two_builds_give_identical_hits(make, write) -> None:
    write({f"{n}.txt": f"boat number {n} and apple {n % 7} cloud {n % 5}" for n in range(200)})
    questions = ["boat 5", "apple 3 cloud 2", "number", "cloud"]
    one, other = make(name="one"), make(name="other")
    assert [one.search(q, 50) for q in questions] == [other.search(q, 50) for q in questions]


def test_twenty_threads_get_the_same_results(make, write) -> None:
    write({f"{n}.txt": f"boat number {n} and apple {n % 7} cloud {n % 5}" for n in range(200)})
    questions = [f"boat {n} apple {n % 7}" for n in range(100)]
    expected = [make(name="serial").search(q, 20) for q in questions]
    parallel = make(name="parallel")
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda q: parallel.search(q, 20), questions)) == expected
