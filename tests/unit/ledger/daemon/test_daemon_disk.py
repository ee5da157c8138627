"""The daemon on a disk of its own that is full or read-only: it says so, goes on, and catches up. Needs a mount."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.command_line import run_sub
from harness.disks import mount, resize, small_disk
from harness.ledger import EventMaker, ledgerd, spool_of, start_ledgerd
from harness.waiting import wait_for
from subluminal.doctor.ledger import check_ledger
from subluminal.ledger.daemon.health import ledger_health


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of one megabyte, and a spool beside it with room."""
    home = tmp_path / "home"
    with small_disk(home, "1m"), small_disk(home / "spool", "32m"):
        monkeypatch.setenv("SUB_HOME", str(home))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield home


def write_journal(home: Path, calls: int) -> Path:
    journal = spool_of(home) / "shim-1.jsonl"
    journal.write_bytes(b"".join(line + b"\n" for line in EventMaker("run-1", "shim-1").whole_run(calls)))
    return journal


def test_a_disk_that_is_full_is_told_and_every_event_arrives_when_there_is_room(home: Path) -> None:
    journal = write_journal(home, 3000)
    with ledgerd(home) as process:
        error = wait_for(lambda: ledger_health()["last_error"], what="the daemon noticed the full disk")
        assert "full" in error or "disk" in error
        assert "ledgerd-error" in [finding.code for finding in check_ledger().findings]
        assert f"last error: {error}" in run_sub(home, "ledgerd", "--status").stderr
        assert process.poll() is None and journal.exists()
        resize(home, "64m")
        wait_for(lambda: not journal.exists(), 60, "the journal was taken in")
        wait_for(lambda: ledger_health()["last_error"] is None)
    database = sqlite3.connect(home / "ledger.db")
    assert database.execute("SELECT event_count, status FROM runs").fetchall() == [(9002, "SUCCEEDED")]
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert run_sub(home, "verify", "--all").returncode == 0


def test_a_home_that_is_read_only_is_a_sentence_and_its_journals_are_taken_in_later(home: Path) -> None:
    journal = write_journal(home, 3)
    assert mount("-o", "remount,ro", str(home))
    done = run_sub(home, "ledgerd", "--foreground")
    assert done.returncode == 2 and "Read-only file system" in done.stderr and "Traceback" not in done.stderr
    assert start_ledgerd(home).wait(20) == 2
    assert journal.exists()
    assert mount("-o", "remount,rw", str(home))
    with ledgerd(home):
        wait_for(lambda: not journal.exists(), what="the journal was taken in")
