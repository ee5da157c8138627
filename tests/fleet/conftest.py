"""Each store that is installed here, real: chDB (ClickHouse's engine in the collector's process) and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.stores import PostgresServer, chdb_dsn, need, postgres, postgres_programs


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


def new_database(request: pytest.FixtureRequest) -> str:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.database()


@pytest.fixture(params=["chdb", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The DSN of an empty store."""
    need("zstandard")
    return chdb_dsn(tmp_path) if request.param == "chdb" else new_database(request)


@pytest.fixture
def chdb_store(tmp_path: Path) -> str:
    need("zstandard")
    return chdb_dsn(tmp_path)


@pytest.fixture
def one_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where it does not matter which: Postgres, whose collector starts in half the time, if it is here."""
    need("zstandard")
    is_here = find_spec("psycopg") is not None and postgres_programs() is not None
    return new_database(request) if is_here else chdb_dsn(tmp_path)
