"""The doorbell rings without ever blocking, and starts ledgerd only when nobody answers and it is time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from subluminal.host.record import doorbell as notify
from subluminal.host.record.doorbell import RETRY_NS, START_AFTER_NS, Notifier


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    calls: list[str] = []
    monkeypatch.setattr(notify, "spawn_ledgerd", calls.append)
    return calls


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sub" / "ledgerd.sock"))
        listener.listen()
        yield listener


def test_a_daemon_that_listens_is_woken_and_not_started(daemon: socket.socket, started: list[str]) -> None:
    bell = Notifier(True)
    bell.ring(0)
    bell.ring(START_AFTER_NS * 2)
    connection, _ = daemon.accept()
    with connection:
        assert connection.recv(1000).count(b"wake") >= 1
    assert started == []


def test_a_daemon_that_does_not_read_never_blocks_us(daemon: socket.socket, started: list[str]) -> None:
    bell = Notifier(True)
    for _ in range(50_000):
        bell.ring(START_AFTER_NS * 2)
    assert started == []
    connection, _ = daemon.accept()
    with connection:
        connection.setblocking(False)
        got = b"".join(iter(lambda: _waiting(connection), b""))
    assert 0 < got.count(b"wake") < 50_000, "what did not fit was left out"


def _waiting(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 20)
    except BlockingIOError:
        return b""


def test_a_missing_daemon_is_started_late_and_seldom(started: list[str]) -> None:
    bell = Notifier(True)
    bell.ring(0)
    assert started == [], "a shim's first moments belong to the agent"
    bell.ring(START_AFTER_NS)
    bell.ring(START_AFTER_NS + 1)
    assert started == [os.environ["SUB_HOME"]]
    bell.ring(START_AFTER_NS + RETRY_NS)
    assert len(started) == 2


def test_a_shim_that_ends_early_still_starts_it(started: list[str]) -> None:
    Notifier(True).ring(0, last=True)
    assert len(started) == 1


def test_a_daemon_that_restarts_is_found_again(daemon: socket.socket, tmp_path: Path, started: list[str]) -> None:
    bell = Notifier(True)
    bell.ring(0)
    daemon.accept()[0].close()
    for _ in range(3):
        bell.ring(0)
    connection, _ = daemon.accept()
    with connection:
        assert b"wake" in connection.recv(100)


def test_a_sink_that_is_no_ledger_rings_nobody(started: list[str]) -> None:
    Notifier(False).ring(START_AFTER_NS * 2, last=True)
    assert started == []
