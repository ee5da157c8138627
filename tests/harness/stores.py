"""Stores for the fleet's tests: chDB in a directory, and a Postgres of one's own. What is not installed is a skip."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.waiting import GENEROUS_S, wait_for

# `make test-fleet`: everything at its full size.
WHOLE = os.environ.get("FLEET_PROFILE") == "whole"


def need(*modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (requirements/fleet.txt)")


def postgres_programs() -> str | None:
    """Where Debian keeps them, or where the path leads."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    on_path = shutil.which("initdb")
    return found[-1] if found else os.path.dirname(on_path) if on_path else None


class PostgresServer:
    """On a unix socket in a directory of its own; `kill` and `start` as often as one likes."""

    def __init__(self, programs: str, directory: str) -> None:
        self._programs, self._directory = programs, directory
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self.dsn = f"postgresql:///postgres?host={directory}" + ("&user=postgres" if self._user else "")

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [os.path.join(self._programs, program), *arguments],
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
        )

    def prepare(self) -> None:
        data = os.path.join(self._directory, "data")
        assert self._run("initdb", "-D", data, "-A", "trust", "-N").wait(60) == 0

    def start(self) -> None:
        data = os.path.join(self._directory, "data")
        self._process = self._run("postgres", "-D", data, "-k", self._directory, "-c", "listen_addresses=")
        wait_for(self._answers, what="a Postgres that answers")

    def database(self) -> str:
        """A new one; its DSN."""
        import psycopg

        self._databases += 1
        name = f"fleet_{self._databases}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.dsn.replace("/postgres?", f"/{name}?")

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True

    def kill(self, number: int = signal.SIGQUIT) -> None:
        """SIGQUIT: at once and without a checkpoint; what was committed is recovered at the next start."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(GENEROUS_S)
            self._process = None


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    need("psycopg")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no Postgres is installed here (Debian: postgresql)")
    directory = tempfile.mkdtemp(prefix="sub-pg-")
    server = PostgresServer(programs, directory)
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def chdb_dsn(directory: Path) -> str:
    need("chdb", "clickhouse_connect")
    return f"chdb://{directory / 'chdb'}"
