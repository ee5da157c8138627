"""What `sub doctor` can ask about the ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.ledger import EventMaker, create_journal, ledgerd, spool_of
from harness.waiting import wait_for
from subluminal.ledger.daemon.health import ledger_health


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("SUB_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    return home


def test_nothing_there_yet_is_no_problem(home: Path) -> None:
    health = ledger_health()
    assert (health["exists"], health["daemon_pid"], health["problem"]) == (False, None, None)


def test_a_ledger_at_work_tells_its_figures(home: Path) -> None:
    spool = spool_of(home)
    journal = create_journal(str(spool), "shim-1")
    lines = EventMaker("run-1", "shim-1").whole_run(2)
    os.write(journal, b"".join(line + b"\n" for line in lines) + b"not an event\n")
    with ledgerd(home) as process:
        wait_for(lambda: ledger_health()["events"] == 8)
        health = ledger_health()
    os.close(journal)
    assert (health["daemon_pid"], health["runs"], health["calls"]) == (process.pid, 1, 2)
    assert (health["journals"], health["lag_bytes"], health["rejected_lines"]) == (1, 0, 1)
    assert (health["home_mode"], health["socket_mode"], health["database_mode"]) == ("0700", "0600", "0600")
    assert health["problem"] is None


def test_rights_that_are_too_wide_and_a_broken_database_are_named(home: Path) -> None:
    spool_of(home)
    (home / "ledger.db").write_bytes(b"no database " * 200)
    home.chmod(0o755)
    (home / "ledger.db").chmod(0o644)
    health = ledger_health()
    assert "cannot be read" in health["problem"]
    assert (health["home_mode"], health["database_mode"]) == ("0755", "0644")


def test_what_waits_in_the_spool_is_its_lag(home: Path) -> None:
    spool = spool_of(home)
    (spool / "shim-1.jsonl").write_bytes(b"x" * 1000)
    assert ledger_health()["lag_bytes"] == 1000
