"""The doorbell rings without ever blocking, and starts ledgerd only when nobody answers and it is time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from subluminal.host.record import doorbell
from subluminal.host.record.doorbell import DELAY_MS, RETRY_NS, START_AFTER_NS, Doorbell


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    calls: list[str] = []
    monkeypatch.setattr(doorbell, "spawn_ledgerd", calls.append)
    return calls


class Clock:
    def __init__(self) -> None:
        self.ns = 1

    def __call__(self) -> int:
        return self.ns


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(doorbell, "monotonic_ns", clock)
    return clock


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sub" / "ledgerd.sock"))
        listener.listen()
        yield listener


def test_a_daemon_that_listens_is_woken_and_not_started(
    daemon: socket.socket, started: list[str], clock: Clock
) -> None:
    bell = Doorbell(True)
    bell.ring()
    clock.ns += START_AFTER_NS * 2
    bell.ring()
    connection, _ = daemon.accept()
    with connection:
        assert connection.recv(1000).count(b"wake") >= 1
    assert started == []


def test_a_daemon_that_does_not_read_never_blocks_us(daemon: socket.socket, started: list[str], clock: Clock) -> None:
    bell = Doorbell(True)
    clock.ns += START_AFTER_NS * 2
    for _ in range(50_000):  # far more than a socket's buffer holds: a ring that waited would never come back
        bell.ring()
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


def test_a_missing_daemon_is_started_late_and_seldom(started: list[str], clock: Clock) -> None:
    bell = Doorbell(True)
    bell.ring()
    assert started == [], "a shim's first moments belong to the agent"
    clock.ns += START_AFTER_NS
    bell.ring()
    bell.ring()
    assert started == [os.environ["SUB_HOME"]]
    clock.ns += RETRY_NS
    bell.ring()
    assert len(started) == 2


def test_it_rings_once_a_moment_after_it_was_pressed(started: list[str], clock: Clock) -> None:
    bell = Doorbell(True)
    clock.ns += START_AFTER_NS
    bell.ring_if_due(clock.ns)
    assert started == [], "nobody pressed it"
    bell.press()
    bell.ring_if_due(clock.ns)
    assert started == [], "more may follow at once"
    clock.ns += DELAY_MS * 1_000_000
    bell.press()
    bell.ring_if_due(clock.ns)
    bell.ring_if_due(clock.ns)
    assert len(started) == 1


def test_a_shim_that_ends_early_still_starts_it(started: list[str]) -> None:
    Doorbell(True).ring(last=True)
    assert len(started) == 1


def test_a_daemon_that_restarts_is_found_again(daemon: socket.socket, tmp_path: Path, started: list[str]) -> None:
    bell = Doorbell(True)
    bell.ring()
    daemon.accept()[0].close()
    for _ in range(3):
        bell.ring()
    connection, _ = daemon.accept()
    with connection:
        assert b"wake" in connection.recv(100)


def test_a_sink_that_is_no_ledger_rings_nobody(started: list[str], clock: Clock) -> None:
    bell = Doorbell(False)
    clock.ns += START_AFTER_NS * 2
    bell.press()
    bell.ring_if_due(clock.ns + DELAY_MS * 1_000_000)
    bell.ring(last=True)
    assert started == []
