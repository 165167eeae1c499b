"""The HTTP API of a MindsDB server."""

import threading
from collections.abc import Sequence
from typing import Any

import httpx

from kbeval_pipeline.project import MindsDBKnowledgeBase
from kbeval_pipeline.resources.llms.redaction import redact

_LONGEST_MESSAGE = 300


class MindsDBError(ConnectionError):
    """The server did not answer as it should; the message holds its own, and no password."""


class MindsDBServer:
    """A server; it is reached, and logged in to, with the first request. Safe to use from several threads.

    Args:
        settings: where it is, and the user.

    Attributes:
        url: where it is, without a password, for messages.
    """

    def __init__(self, settings: MindsDBKnowledgeBase) -> None:
        self._settings = settings
        self._base = settings.url.rstrip("/")
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()
        self.url = redact(self._base)

    def select(self, table: str, columns: Sequence[str], rest: str) -> list[list[Any]]:
        """Run a SELECT.

        Args:
            table: the quoted name.
            columns: names of the columns.
            rest: the clauses after the table.

        Returns:
            The rows, each with the columns as asked.

        Raises:
            MindsDBError: when the server does not answer, or with an error or no such table.
        """
        query = f"SELECT {', '.join(columns)} FROM {table}{rest}"  # noqa: S608
        reply = self._post("/api/sql/query", {"query": query})
        names, rows = reply.get("column_names"), reply.get("data")
        if reply.get("type") != "table" or not isinstance(names, list) or not isinstance(rows, list):
            raise self._error(f"replied with {reply.get('type')!r} and no table")
        places = {str(name).lower(): place for place, name in enumerate(names)}
        missing = [column for column in columns if column not in places]
        if missing:
            raise self._error(f"returned no column {', '.join(missing)}; it has {', '.join(places)}")
        try:
            return [[row[places[column]] for column in columns] for row in rows]
        except (IndexError, TypeError, KeyError):
            raise self._error("returned a row that does not fit its columns") from None

    def _post(self, path: str, body: dict[str, Any], *, again: bool = True) -> dict[str, Any]:
        client = self._opened()
        response = self._send(client, path, body)
        if response.status_code in (401, 403) and self._settings.user is not None and again:
            self._log_in(client)
            return self._post(path, body, again=False)
        return self._parsed(response)

    def _opened(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                limits = httpx.Limits(max_connections=self._settings.max_concurrency)
                client = httpx.Client(timeout=self._settings.timeout_seconds, limits=limits)
                if self._settings.user is not None:
                    self._log_in(client)
                self._client = client
            return self._client

    def _log_in(self, client: httpx.Client) -> None:
        password = self._settings.password
        body = {
            "username": self._settings.user,
            "password": password.get_secret_value() if password else "",
        }
        response = self._send(client, "/api/login", body)
        if response.status_code in (401, 403):
            raise self._error(f'refused the login of user "{self._settings.user}"; check user and password')
        if response.is_error:
            self._parsed(response)
        # Servers keep the session in a cookie, newer ones return a token.
        try:
            token = response.json().get("token")
        except (ValueError, AttributeError):
            token = None
        if isinstance(token, str):
            client.headers["Authorization"] = f"Bearer {token}"

    def _send(self, client: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            return client.post(self._base + path, json=body)
        except httpx.TimeoutException:
            seconds = self._settings.timeout_seconds
            problem = f"did not answer within {seconds:g} s (timeout_seconds)"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"cannot be reached: {error or type(error).__name__}; check `url` and that it runs"
        raise self._error(problem)

    def _parsed(self, response: httpx.Response) -> dict[str, Any]:
        status = f"replied with HTTP {response.status_code}"
        try:
            reply = response.json()
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise self._error(f"{status} and no JSON object; is `url` that of a MindsDB server?")
        told = reply.get("error_message") or reply.get("detail") or reply.get("title") or ""
        if reply.get("type") == "error":
            raise self._error(f"replied: {told or 'an error without a message'}")
        if response.status_code != httpx.codes.OK:
            raise self._error(f"{status}: {told}" if told else status)
        return reply

    def _error(self, problem: str) -> MindsDBError:
        password = self._settings.password
        secrets = [password.get_secret_value()] if password else []
        text = redact(f"MindsDB at {self.url} {problem}", secrets)
        return MindsDBError(text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}...")
