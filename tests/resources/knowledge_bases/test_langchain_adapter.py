"""The LangChain adapter over real stores: in memory, Chroma, Qdrant in this process, pgvector."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import LangChainKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases import KnowledgeBase, build_knowledge_base
from kbeval_pipeline.resources.knowledge_bases.langchain import LangChainKnowledgeBaseAdapter
from tests.postgres import postgres_url  # noqa: F401
from tests.resources.knowledge_bases.conftest import Tables

HERE = __name__
EMBEDDINGS = {"model": "tests.hashed_embeddings:HashedEmbeddings"}
TEXTS = {
    "a": "apples grow on old trees",
    "b": "boats float down the river",
    "c": "clouds bring rain to the river",
    "d": "drums and boats and apples",
}
SECRET = "sk-very-secret-value"


def chunks(with_ids: bool = True) -> list[Document]:
    ids = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in TEXTS}
    return [
        Document(page_content=text, metadata={"doc_id": name}, id=ids[name] if with_ids else None)
        for name, text in TEXTS.items()
    ]


def memory(embedding: Embeddings, api_key: str = "") -> VectorStore:
    store = InMemoryVectorStore(embedding)
    store.add_documents(chunks())
    return store


def chroma(embedding_function: Embeddings, space: str = "cosine") -> VectorStore:
    from langchain_chroma import Chroma

    store = Chroma(
        f"test-{uuid.uuid4().hex}",
        embedding_function,
        collection_configuration={"hnsw": {"space": space}},  # type: ignore[typeddict-item]
    )
    store.add_documents(chunks())
    return store


def qdrant(embedding: Embeddings) -> VectorStore:
    from langchain_qdrant import QdrantVectorStore

    return QdrantVectorStore.from_documents(chunks(), embedding, location=":memory:", collection_name="test")


def pgvector(embeddings: Embeddings, connection: str) -> VectorStore:
    from langchain_postgres import PGVector

    store = PGVector(embeddings, connection=connection, collection_name="test", pre_delete_collection=True)
    store.add_documents(chunks())
    return store


class Inverted(InMemoryVectorStore):
    """Takes a distance for a score, as some stores do."""

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: 1.0 - score


def inverted(embedding: Embeddings) -> VectorStore:
    store = Inverted(embedding)
    store.add_documents(chunks())
    return store


class Listing(BaseRetriever):
    """Returns its documents as they are, `k` of them."""

    found: list[Document]
    k: int = 1

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.found[: self.k]


class Unlimited(Listing):
    k: int = 99


def as_retriever(embedding: Embeddings) -> BaseRetriever:
    return memory(embedding).as_retriever(search_kwargs={"k": 1})


def refuses(api_key: str) -> None:
    raise ValueError(f"bad key {api_key}")


def nothing() -> int:
    return 3


@pytest.fixture
def make(tmp_path: Path, tables: Tables) -> Callable[..., LangChainKnowledgeBaseAdapter]:
    def make_adapter(class_path: str, **more: Any) -> LangChainKnowledgeBaseAdapter:
        path = class_path if ":" in class_path else f"{HERE}:{class_path}"
        values = {"type": "langchain", "class_path": path, **more}
        settings = LangChainKnowledgeBase.model_validate(values)
        return LangChainKnowledgeBaseAdapter("docs", settings, tables, tmp_path / "index")

    return make_adapter


Make = Callable[..., LangChainKnowledgeBaseAdapter]


def check_store(store: LangChainKnowledgeBaseAdapter) -> None:
    hits = store.search("boats on the river", 3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert (hits[0].doc_id, hits[0].content) == ("b", TEXTS["b"])
    assert hits[0].chunk_id == str(uuid.uuid5(uuid.NAMESPACE_OID, "b"))
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    with ThreadPoolExecutor(8) as pool:
        assert all(
            found == hits for found in pool.map(lambda _: store.search("boats on the river", 3), range(24))
        )
    assert len(store.search("boats", 99)) == 4


def test_in_memory(make: Make) -> None:
    store = make("memory", embeddings=EMBEDDINGS)
    check_store(store)
    assert [hit.score for hit in store.search("rain", 3)] == [1, 1 / 2, 1 / 3]


@pytest.mark.parametrize("space", ["cosine", "l2"])
def test_chroma(make: Make, space: str) -> None:
    pytest.importorskip("langchain_chroma")
    check_store(make("chroma", embeddings=EMBEDDINGS, arguments={"space": space}))


def test_qdrant(make: Make) -> None:
    pytest.importorskip("langchain_qdrant")
    check_store(make("qdrant", embeddings=EMBEDDINGS))


def test_qdrant_by_a_method_of_its_class(make: Make, tmp_path: Path) -> None:
    module = pytest.importorskip("langchain_qdrant")
    from tests.hashed_embeddings import HashedEmbeddings

    path = str(tmp_path / "qdrant")
    filled = module.QdrantVectorStore.from_documents(
        chunks(), HashedEmbeddings(), path=path, collection_name="c"
    )
    filled.client.close()
    arguments = {"path": path, "collection_name": "c"}
    store = make(
        "langchain_qdrant:QdrantVectorStore.from_existing_collection",
        arguments=arguments,
        embeddings=EMBEDDINGS,
    )
    assert store.search("clouds rain", 1)[0].doc_id == "c"


def test_pgvector(make: Make, postgres_url: str) -> None:  # noqa: F811
    pytest.importorskip("langchain_postgres")
    connection = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    check_store(make("pgvector", embeddings=EMBEDDINGS, arguments={"connection": connection}))


def test_scores_that_rise_are_not_used(make: Make) -> None:
    hits = make("inverted", embeddings=EMBEDDINGS).search("boats on the river", 3)
    assert hits[0].doc_id == "b"
    assert [hit.score for hit in hits] == [1, 1 / 2, 1 / 3]


def test_a_store_s_retriever_returns_k(make: Make) -> None:
    check_store(make("as_retriever", embeddings=EMBEDDINGS))


def test_retrievers(make: Make) -> None:
    found = chunks(with_ids=False)
    assert len(make("Listing", arguments={"found": found}).search("x", 3)) == 3
    hits = make("Unlimited", arguments={"found": [found[0], found[0], found[1]]}).search("x", 2)
    assert [hit.doc_id for hit in hits] == ["a", "a"]
    assert hits[0].chunk_id == hits[1].chunk_id
    assert hits[0].chunk_id.startswith("a#")
    assert [hit.score for hit in hits] == [1, 1 / 2]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [([0.9, 0.4], [0.9, 0.4]), ([0.1, 0.4], [1, 0.5]), ([0.9, "x"], [1, 0.5]), ([True, False], [1, 0.5])],
)
def test_scores_in_the_metadata(make: Make, stored: list[Any], expected: list[float]) -> None:
    found = [Document(page_content=str(n), metadata={"doc_id": n, "score": s}) for n, s in enumerate(stored)]
    assert [hit.score for hit in make("Unlimited", arguments={"found": found}).search("x", 2)] == expected


def test_a_chunk_without_a_document_id(make: Make) -> None:
    found = [Document(page_content="x", metadata={"source": "s", "page": 2.0})]
    with pytest.raises(ValueError, match=r'under "doc_id" \(doc_id_key\); keys found: page, source'):
        make("Unlimited", arguments={"found": found}).search("x", 2)
    assert make("Unlimited", arguments={"found": found}, doc_id_key="page").search("x", 2)[0].doc_id == "2"


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("langchain_nowhere.sub:X", {}, "pip install langchain-nowhere"),
        (f"{HERE}:memroy", {}, 'did you mean "memory"'),
        (f"{HERE}:Inverted.from_txts", {}, 'did you mean "from_texts"'),
        ("nothing_but_a_module", {}, "module:Class"),
        (f"{HERE}:HERE", {}, "neither a class nor a function"),
        (f"{HERE}:nothing", {}, "gave a int"),
        (f"{HERE}:nothing", {"embeddings": EMBEDDINGS}, "no parameter named embedding or"),
        (f"{HERE}:memory", {"embeddings": EMBEDDINGS, "arguments": {"embedding": 1}}, "given twice"),
        (f"{HERE}:memory", {"embeddings": {"model": f"{HERE}:nothing"}}, "no LangChain Embeddings"),
        (f"{HERE}:refuses", {"arguments": {"api_key": SECRET}}, r"\(api_key\): ValueError"),
    ],
)
def test_what_cannot_be_made(make: Make, path: str, more: dict[str, Any], message: str) -> None:
    store = make_raw(make, path, more)
    with pytest.raises(UserError, match=message) as caught:
        store.prepare()
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)
    assert SECRET not in repr(store)


def make_raw(make: Make, path: str, more: dict[str, Any]) -> LangChainKnowledgeBaseAdapter:
    store = make("memory", **more)
    store._settings = store._settings.model_copy(update={"class_path": path})
    return store


def test_documents_and_fingerprint(make: Make, tables: Tables, folder: Path) -> None:
    (folder / "a.txt").write_text("apples")
    store = make("memory", embeddings=EMBEDDINGS, documents={"files": folder})
    assert [(document.id, document.content) for document in store.documents()] == [("a.txt", "apples")]
    first = store.prepare()
    assert store.fingerprint() == first
    (folder / "empty.txt").write_text("")
    assert store.fingerprint() == first
    assert store.skipped_documents()[0].where == "empty.txt"
    (folder / "a.txt").write_text("pears and apples")
    assert store.fingerprint() != first
    (folder / "a.txt").unlink()
    for call in (store.fingerprint, lambda: list(store.documents())):
        with pytest.raises(UserError, match="has no document in folder"):
            call()


def test_fingerprint_by_sql(make: Make, tables: Tables) -> None:
    tables.frames = {"docs": pl.DataFrame({"id": [1, 2], "changed": ["x", "y"]})}
    sql = "SELECT * FROM docs"
    store = make("memory", embeddings=EMBEDDINGS, fingerprint_sql=sql)
    first = store.prepare()
    tables.frames["docs"] = tables.frames["docs"].reverse()
    assert store.fingerprint() == first
    assert make("memory", fingerprint_sql=sql, search_arguments={"filter": 1}).fingerprint() != first
    tables.frames["docs"] = pl.DataFrame({"id": [1, 2], "changed": ["x", "z"]})
    assert store.fingerprint() != first
    tables.frames["docs"] = tables.frames["docs"].clear()
    with pytest.raises(UserError, match="no row"):
        store.fingerprint()


def test_without_documents(make: Make) -> None:
    store = make("memory", embeddings=EMBEDDINGS)
    with pytest.raises(UserError, match="set `documents`"):
        list(store.documents())
    with pytest.raises(UserError, match="set `fingerprint_sql` or `documents`"):
        store.prepare()
    assert store.skipped_documents() == []


def test_built_from_settings(tmp_path: Path) -> None:
    settings = LangChainKnowledgeBase(type="langchain", class_path="nowhere:X")
    built = build_knowledge_base("docs", settings, Tables(), tmp_path)
    assert isinstance(built, LangChainKnowledgeBaseAdapter)
    assert isinstance(built, KnowledgeBase)
