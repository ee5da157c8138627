"""Each store that is installed here, real: chDB (ClickHouse's engine in the collector's process) and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.stores import PostgresServer, chdb_dsn, need, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(params=["chdb", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The DSN of an empty store."""
    need("zstandard")
    if request.param == "chdb":
        return chdb_dsn(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.database()


@pytest.fixture
def one_store(tmp_path: Path) -> str:
    """Where it does not matter which."""
    need("zstandard")
    return chdb_dsn(tmp_path)
