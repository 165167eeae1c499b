"""Connecting to a database: drivers, transactions, and errors without passwords."""

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.pool import NullPool

from kbeval_pipeline.errors import UserError

CONNECT_SECONDS = 10

_SECRET_KEY = re.compile(r"pass|pwd|secret|token|key|credential|odbc_connect", re.IGNORECASE)
_INLINE_SECRET = re.compile(r"(?i)\b((?:pwd|password|passwd|secret|token)\s*=\s*)[^\s;&,]+")
_PACKAGES = {
    "psycopg": "kbeval-pipeline[postgres]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "pymysql": "pymysql",
    "pyodbc": "pyodbc",
    "oracledb": "oracledb",
    "snowflake": "snowflake-sqlalchemy",
    "bigquery": "sqlalchemy-bigquery",
    "redshift": "sqlalchemy-redshift",
    "trino": "trino[sqlalchemy]",
    "databricks": "databricks-sqlalchemy",
    "clickhouse": "clickhouse-sqlalchemy",
    "clickhousedb": "clickhouse-connect",
    "duckdb": "duckdb-engine",
}


def parse_url(name: str, url: SecretStr) -> sa.URL:
    """Read an SQLAlchemy URL and choose PostgreSQL's driver.

    Args:
        name: name of the data source, for messages.
        url: the URL of the project file.

    Returns:
        The URL.

    Raises:
        UserError: when it is not a URL; the message does not repeat it.
    """
    try:
        parsed = sa.make_url(url.get_secret_value())
    except (sa.exc.ArgumentError, ValueError):
        raise UserError(
            f'data source "{name}": the url is not an SQLAlchemy URL, '
            "expected dialect://user:password@host:port/database"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        only_old = _installed("psycopg2") and not _installed("psycopg")
        parsed = parsed.set(drivername="postgresql+psycopg2" if only_old else "postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise UserError(
            f'data source "{name}": the url names no SQLite file, expected sqlite:///path/to/file.db'
        )
    return parsed


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class Database:
    """An engine of one URL; it connects anew for each call, and its errors are `UserError`.

    Args:
        name: name of the data source, for messages.
        url: the database.
    """

    def __init__(self, name: str, url: sa.URL) -> None:
        self.name = name
        self.backend = url.get_backend_name()
        self.url = url
        self._engine: sa.Engine | None = None

    @property
    def sqlite_file(self) -> Path | None:
        """The file of an SQLite database."""
        database = self.url.database
        if self.backend != "sqlite" or database is None or database.startswith("file:"):
            return None
        return Path(database)

    @property
    def described(self) -> str:
        """The data source with its database, without credentials."""
        place = f"{self.url.host}/" if self.url.host else ""
        return f'data source "{self.name}" ({self.backend} {place}{self.url.database or ""})'

    @contextmanager
    def begin(self, *, write: bool = False, keep: bool = True) -> Iterator[sa.Connection]:
        """Run the block in one transaction: committed at its end if it writes, else rolled back.

        Args:
            write: whether the block changes anything; otherwise the database is asked to refuse changes.
            keep: `False` rolls a writing block back.

        Yields:
            The connection.

        Raises:
            UserError: when the database cannot be reached or refuses a statement.
        """
        file = self.sqlite_file
        if file is not None and not write and not file.exists():
            raise UserError(f"{self.described}: there is no such file; correct the url, or write it first")
        try:
            if file is not None and write:
                file.parent.mkdir(parents=True, exist_ok=True)
            with self._get_engine().connect() as connection:
                connection.execution_options(kbeval_write=write)
                if not write and self.backend in ("mysql", "mariadb"):
                    # It applies to transactions that begin later.
                    connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
                    connection.commit()
                with connection.begin() as transaction:
                    if not write:
                        self._make_read_only(connection)
                    yield connection
                    if not (write and keep):
                        transaction.rollback()
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise UserError(f"{self.described}: {self.message(error)}") from None
        except ImportError as error:
            raise self._missing_driver(error) from None

    def message(self, error: BaseException) -> str:
        """Cut an error down to the driver's own words, without credentials.

        Args:
            error: any error of SQLAlchemy or a driver.

        Returns:
            Its first lines.
        """
        cause = getattr(error, "orig", None) or error
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        return self.scrub("; ".join(lines[:3]) or type(cause).__name__)

    def scrub(self, text: str) -> str:
        """Replace every credential of the URL in a text.

        Args:
            text: any text.

        Returns:
            The text with `***` in their places.
        """
        secrets = [self.url.password] if self.url.password else []
        for key, value in self.url.query.items():
            if _SECRET_KEY.search(key):
                secrets += [value] if isinstance(value, str) else list(value)
        forms = {
            form for secret in secrets for form in (str(secret), quote(str(secret)), quote_plus(str(secret)))
        }
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "***")
        return _INLINE_SECRET.sub(r"\1***", text)

    def _get_engine(self) -> sa.Engine:
        if self._engine is None:
            try:
                engine = sa.create_engine(
                    self.url, poolclass=NullPool, hide_parameters=True, connect_args=self._connect_args()
                )
            except sa.exc.NoSuchModuleError:
                raise self._missing_driver(None) from None
            if self.backend == "sqlite":
                _take_over_transactions(engine)
            self._engine = engine
        return self._engine

    def _connect_args(self) -> dict[str, Any]:
        if self.backend == "postgresql" and "connect_timeout" not in self.url.query:
            return {"connect_timeout": CONNECT_SECONDS}
        return {"timeout": CONNECT_SECONDS} if self.backend == "sqlite" else {}

    def _make_read_only(self, connection: sa.Connection) -> None:
        if self.backend == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        elif self.backend == "sqlite":
            connection.exec_driver_sql("PRAGMA query_only=ON")

    def _missing_driver(self, error: ImportError | None) -> UserError:
        module = (error.name or "").split(".")[0] if error else ""
        module = module or (self.url.get_driver_name() if error else self.backend)
        package = _PACKAGES.get(module) or _PACKAGES.get(self.backend) or module
        what = f"the driver {module} is" if error else f'a dialect for "{self.backend}" is'
        return UserError(f'data source "{self.name}": {what} not installed; run: pip install "{package}"')


def _take_over_transactions(engine: sa.Engine) -> None:
    """Begin SQLite's transactions ourselves: the driver would commit before CREATE and DROP."""

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        # A transaction that starts by reading cannot wait for the lock when it comes to write.
        write = connection.get_execution_options().get("kbeval_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
