"""A ledger of which a daemon has just made the file: nothing is in it yet, and nobody is told of an earlier version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from harness.command_line import run_sub
from subluminal.contracts.errors import LedgerError
from subluminal.ledger.store.schema import NoLedger, open_reader


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    (home / "ledger.db").touch(mode=0o600)
    return home


@pytest.mark.parametrize("command", [["runs"], ["query"], ["tail", "--no-follow"]], ids=" ".join)
def test_it_is_read_as_empty(home: Path, command: list[str]) -> None:
    done = run_sub(home, *command)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Nothing has been recorded yet" in done.stderr and "schema" not in done.stderr


def test_a_database_of_somebody_else_is_not(home: Path) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as other, other:
        other.execute("CREATE TABLE theirs (x)")
    with pytest.raises(LedgerError, match="schema 0") as refused:
        open_reader(str(home / "ledger.db"))
    assert not isinstance(refused.value, NoLedger)
