"""A MindsDB server for tests: its HTTP API over chunks in memory; SQL is read by MindsDB's own parser.

Replies have the shapes of MindsDB's documentation: https://docs.mindsdb.com/rest/sql, /rest/authentication
and /mindsdb_sql/knowledge_bases/query. `OFFSET` is not served, as real servers do it without a fixed order.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from mindsdb_sql_parser import parse_sql

USER, PASSWORD = "mindsdb-user", "mdb-s3cret/word"
TOKEN = "pat_0123456789abcdef"
MOST_HITS = 100

Reply = tuple[int, bytes]


def chunk(doc_id: Any, n: int, of: int, start: int, content: str) -> dict[str, Any]:
    end = start + len(content)
    return {
        "id": doc_id,
        "chunk_id": f"{doc_id}:content:{n}of{of}:{start}to{end}",
        "chunk_content": content,
        "metadata": {"_original_doc_id": doc_id, "_content_column": "content", "_start_char": start, "_end_char": end},
    }  # fmt: skip


class MindsDBServer:
    def __init__(
        self,
        chunks: Iterable[dict[str, Any]] = (),
        *,
        table: tuple[str, ...] = ("kb",),
        login: str | None = None,
        latency: float = 0.0,
        relevance: bool = True,
    ) -> None:
        """`login`: how a session is kept, `cookie` or `token`."""
        self.chunks = list(chunks)
        self.table = table
        self.login = login
        self.latency = latency
        self.relevance = relevance
        self.questions: list[str] = []
        self.queries: list[str] = []
        self.logins = 0
        self.sessions: set[str] = set()
        self.override: Callable[[str], Reply] | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cookie = ""
                if self.path == "/api/login":
                    status, reply, cookie = outer._log_in(body)
                elif self.path != "/api/sql/query":
                    status, reply = 404, b"<html>not found</html>"
                elif outer.login and not outer._known(self.headers):
                    status, reply = 401, json.dumps({"title": "Unauthorized"}).encode()
                else:
                    status, reply = outer._query(body["query"])
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                if cookie:
                    self.send_header("Set-Cookie", f"session={cookie}; Path=/")
                self.end_headers()
                self.wfile.write(reply)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _log_in(self, body: dict[str, Any]) -> tuple[int, bytes, str]:
        self.logins += 1
        if body != {"username": USER, "password": PASSWORD}:
            return 401, json.dumps({"title": "Forbidden", "detail": f"not {body['password']}"}).encode(), ""
        session = f"{TOKEN}-{self.logins}"
        self.sessions.add(session)
        if self.login == "token":
            return 200, json.dumps({"token": session}).encode(), ""
        return 200, b"", session

    def _known(self, headers: Any) -> bool:
        given = headers["Authorization" if self.login == "token" else "Cookie"] or ""
        prefix = "Bearer " if self.login == "token" else "session="
        return given.removeprefix(prefix) in self.sessions

    def _query(self, sql: str) -> Reply:
        self.queries.append(sql)
        time.sleep(self.latency)
        if self.override:
            return self.override(sql)
        try:
            return 200, json.dumps(self._select(sql)).encode()
        except Exception as error:
            return 200, json.dumps({"type": "error", "error_code": 0, "error_message": str(error)}).encode()

    def _select(self, sql: str) -> dict[str, Any]:
        query = parse_sql(sql)
        if tuple(query.from_table.parts) != self.table:
            raise ValueError(f"Can't find table: {'.'.join(query.from_table.parts)}")
        assert query.offset is None
        rows = self.chunks
        if query.where is not None:
            column, op, value = query.where.args[0].parts[-1], query.where.op.upper(), query.where.args[1]
            if (column, op) == ("content", "="):
                rows = self._search(value.value, min(query.limit.value, MOST_HITS))
            else:
                assert (column, op) == ("id", "IN")
                wanted = [item.value for item in value.items]
                rows = [row for row in rows if row["id"] in wanted]
        names = [target.parts[-1] for target in query.targets]
        # Servers that send metadata with other columns send it as text.
        data = [
            [json.dumps(row[name]) if name == "metadata" else row.get(name) for name in names] for row in rows
        ]
        return {"type": "table", "column_names": names, "data": data, "context": {"db": "mindsdb"}}

    def _search(self, question: str, limit: int) -> list[dict[str, Any]]:
        self.questions.append(question)
        asked = set(question.lower().split())
        found = []
        for row in self.chunks:
            words = set(row["chunk_content"].lower().split())
            distance = 1 - len(asked & words) / max(1, len(asked))
            found.append(
                {**row, "distance": distance, "relevance": 1 / (1 + distance) if self.relevance else None}
            )
        return sorted(found, key=lambda row: row["distance"])[:limit]
