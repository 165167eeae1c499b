"""The MindsDB adapter against a stand-in that reads SQL with MindsDB's own parser."""

import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mindsdb_sql_parser import parse_sql

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.project import MindsDBKnowledgeBase
from kbeval_pipeline.resources.knowledge_bases import KnowledgeBase, build_knowledge_base
from kbeval_pipeline.resources.knowledge_bases.mindsdb import PAGE_DOCUMENTS, MindsDBKnowledgeBaseAdapter
from kbeval_pipeline.resources.knowledge_bases.mindsdb_sql import question_literal, text_literal
from tests.mindsdb_server import PASSWORD, USER, MindsDBServer, chunk
from tests.resources.knowledge_bases.conftest import Tables

CHUNKS = [
    chunk("b", 2, 2, 10, "river two three"),
    chunk("b", 1, 2, 0, "the quick river"),
    chunk(2, 1, 1, 0, "apples grow on trees"),
    chunk("o'neil", 1, 1, 0, "boats float"),
]


def adapter(server: MindsDBServer, **more: Any) -> MindsDBKnowledgeBaseAdapter:
    values = {"type": "mindsdb", "url": server.url, "knowledge_base": ".".join(server.table), **more}
    return MindsDBKnowledgeBaseAdapter("docs", MindsDBKnowledgeBase.model_validate(values))


def test_search_returns_hits_by_relevance() -> None:
    with MindsDBServer(CHUNKS) as server:
        hits = adapter(server).search("apples trees", 3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert (hits[0].doc_id, hits[0].content, hits[0].score) == ("2", "apples grow on trees", 1.0)
    assert hits[0].chunk_id == "2:content:1of1:0to20"
    assert hits[1].score == 0.5


def test_search_without_relevance_scores_by_distance() -> None:
    with MindsDBServer(CHUNKS, relevance=False) as server:
        assert [hit.score for hit in adapter(server).search("apples trees river", 2)] == pytest.approx(
            [2 / 3, 1 / 3]
        )


def test_a_name_with_a_project_and_odd_characters() -> None:
    with MindsDBServer(CHUNKS, table=("my project", "select")) as server:
        assert adapter(server).search("boats", 1)[0].doc_id == "o'neil"


@pytest.mark.parametrize("name", ["", "a.", ".a", "a`; DROP TABLE x", "`a`b"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is no name"):
        adapter(MindsDBServer(), knowledge_base=name)


@pytest.mark.parametrize(
    "question",
    [
        "'; DROP TABLE kb; --",
        "x' OR '1'='1",
        r"ends with \' OR 1=1 --",
        "'starts and ends'",
        "it''s ''twice''",
        r"C:\dir\ ",
        "ends in a backslash \\",
        'say "no" \\" and more',
        '"double"',
        "line\nbreak; -- comment /* x */ :name ? %s `t`",
        "\u4e2d\u6587\uff1f \U0001f600",
    ],
)
def test_questions_come_back_intact(question: str) -> None:
    with MindsDBServer(CHUNKS) as server:
        adapter(server).search(question, 2)
        assert server.questions == [question]


def test_any_text_survives_mindsdbs_parser() -> None:
    source = random.Random(7)
    for _ in range(1500):
        text = "".join(source.choices("''\"\"\\\\a ;\n-`?:", k=source.randint(0, 9)))
        literal, expected = text_literal(text), text
        if literal is None:
            assert text[:1] + text[-1:] in ("'\"", "\"'")
            literal, expected = question_literal(text), f" {text} "
        query = parse_sql(f"SELECT id FROM kb WHERE id IN ({literal}, {literal}, 'x')")
        assert [item.value for item in query.where.args[1].items] == [expected, expected, "x"]


def test_documents_are_put_together_in_the_order_of_ids() -> None:
    with MindsDBServer(CHUNKS) as server:
        found = [(document.id, document.content) for document in adapter(server).documents()]
    # The two chunks share characters 10 to 15 of the document.
    assert found == [
        ("2", "apples grow on trees"),
        ("b", "the quick river two three"),
        ("o'neil", "boats float"),
    ]


def test_documents_come_in_pages() -> None:
    many = [chunk(f"d{n}", m, 12, m * 100, f"part {m} of {n}") for n in range(250) for m in range(12, 0, -1)]
    for row in many:
        row["metadata"] = {}
    with MindsDBServer(many) as server:
        documents = list(adapter(server).documents())
        assert len(server.queries) == 1 + -(-250 // PAGE_DOCUMENTS)
    assert [document.id for document in documents] == sorted(f"d{n}" for n in range(250))
    assert documents[0].content == "\n".join(f"part {m} of 0" for m in range(1, 13))


def test_a_change_while_reading_is_an_error() -> None:
    with MindsDBServer(CHUNKS) as server:
        documents = adapter(server)
        listed = documents._listed()
        server.chunks = server.chunks[1:]
        documents._listed = lambda: listed  # type: ignore[method-assign]
        with pytest.raises(UserError, match='"b" was listed with 2 chunks and read with 1'):
            list(documents.documents())


def test_fingerprint_follows_the_content_only() -> None:
    with MindsDBServer(CHUNKS) as server:
        first = adapter(server).fingerprint()
        server.chunks.reverse()
        assert adapter(server).prepare() == first
        server.chunks[0] = {**server.chunks[0], "chunk_content": "changed"}
        assert adapter(server).fingerprint() != first


def test_an_empty_knowledge_base_and_chunks_without_an_id() -> None:
    with MindsDBServer([{**CHUNKS[0], "id": None}]) as server:
        documents = adapter(server)
        with pytest.raises(UserError, match="has no document"):
            list(documents.documents())
        assert "the id is null" in documents.skipped_documents()[0].cause
        with pytest.raises(ValueError, match="rank 1 has no document id"):
            documents.search("x", 1)
        server.chunks = []
        with pytest.raises(UserError, match="has no document"):
            documents.fingerprint()


@pytest.mark.parametrize("kind", ["cookie", "token"])
def test_login(kind: str) -> None:
    with MindsDBServer(CHUNKS, login=kind) as server:
        found = adapter(server, user=USER, password=PASSWORD, max_concurrency=8)
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: found.search("boats", 1), range(32)))
        assert server.logins == 1
        server.sessions.clear()
        assert found.search("boats", 1)
        assert server.logins == 2


def test_a_refused_login_does_not_show_the_password() -> None:
    with MindsDBServer(CHUNKS, login="cookie") as server:
        wrong = adapter(server, user=USER, password="wr0ng-password")
        with pytest.raises(ConnectionError, match='refused the login of user "mindsdb-user"') as caught:
            wrong.search("x", 1)
        assert "wr0ng" not in str(caught.value)
        with pytest.raises(UserError, match="refused the login"):
            wrong.fingerprint()
        with pytest.raises(ConnectionError, match="HTTP 401: Unauthorized"):
            adapter(server).search("x", 1)


def test_the_servers_message_is_shown_without_the_password() -> None:
    with MindsDBServer(CHUNKS) as server:
        with pytest.raises(ConnectionError, match="Can't find table: other"):
            adapter(server, knowledge_base="other").search("x", 1)
        reply = {"type": "error", "error_message": f"connect with {PASSWORD} failed"}
        server.override = lambda sql: (200, json.dumps(reply).encode())
        with pytest.raises(UserError, match=r"connect with \*\*\* failed") as caught:
            adapter(server, password=PASSWORD).fingerprint()
        assert caught.value.__context__ is None


REPLIES: list[tuple[Callable[[str], tuple[int, bytes]], str]] = [
    (lambda _: (200, b"<html>hello</html>"), "no JSON object"),
    (lambda _: (200, b"[1]"), "no JSON object"),
    (lambda _: (502, b"<html>bad gateway</html>"), "HTTP 502"),
    (lambda _: (500, b'{"title": "Boom", "detail": "out of memory"}'), "HTTP 500: out of memory"),
    (lambda _: (200, b'{"type": "ok"}'), "no table"),
    (lambda _: (200, b'{"type": "table", "column_names": ["id"], "data": [[1]]}'), "no column chunk_id"),
    (
        lambda _: (
            200,
            b'{"type": "table", "column_names": ["id", "chunk_id", "chunk_content"], "data": [[1]]}',
        ),
        "does not fit",
    ),
]


@pytest.mark.parametrize(("reply", "message"), REPLIES)
def test_replies_that_are_no_table(reply: Callable[[str], tuple[int, bytes]], message: str) -> None:
    with MindsDBServer(CHUNKS) as server:
        server.override = reply
        with pytest.raises(UserError, match=message):
            adapter(server).fingerprint()
        if message != "does not fit":
            with pytest.raises(ConnectionError, match=message):
                adapter(server).search("x", 1)


def test_a_slow_server_and_none_at_all() -> None:
    with MindsDBServer(CHUNKS, latency=2) as server:
        started = time.monotonic()
        with pytest.raises(ConnectionError, match=r"within 0.2 s \(timeout_seconds\)"):
            adapter(server, timeout_seconds=0.2).search("x", 1)
        assert time.monotonic() - started < 1.5
    with pytest.raises(ConnectionError, match="cannot be reached"):
        adapter(server).search("x", 1)


def test_built_from_settings(tmp_path: Path) -> None:
    settings = MindsDBKnowledgeBase(type="mindsdb", knowledge_base="kb")
    built = build_knowledge_base("docs", settings, Tables(), tmp_path)
    assert isinstance(built, MindsDBKnowledgeBaseAdapter)
    assert isinstance(built, KnowledgeBase)
    with pytest.raises(ValueError, match="k is 0"):
        built.search("x", 0)
