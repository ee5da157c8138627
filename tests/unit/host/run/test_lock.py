"""The queue for a run's state: held by one, left by the dying, waited for without sleeping."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from fcntl import LOCK_UN, flock
from pathlib import Path

import pytest

from harness.waiting import GENEROUS_S, wait_for
from subluminal.host.run.lock import QueuedLock


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "state").touch()
    return str(tmp_path / "state")


@pytest.fixture
def locks(path: str) -> Iterator[list[QueuedLock]]:
    fds = [os.open(path, os.O_RDWR) for _ in range(3)]
    made = [QueuedLock(fd) for fd in fds]
    yield made
    for lock, fd in zip(made, fds, strict=True):
        lock.close()
        os.close(fd)


def let_go(lock: QueuedLock) -> None:
    flock(lock._fd, LOCK_UN)


def test_one_has_it_and_another_gets_it_when_it_is_free(locks: list[QueuedLock]) -> None:
    one, two, _ = locks
    assert one.take(0)
    assert not two.take(0)
    assert not two.take(0.01)
    let_go(one)
    assert two.take(GENEROUS_S)
    assert not one.take(0)


def test_who_gave_up_waiting_does_not_keep_what_comes_later(locks: list[QueuedLock]) -> None:
    one, two, three = locks
    assert one.take(0)
    assert not two.take(0.01)
    let_go(one)
    assert three.take(GENEROUS_S), "the place in the queue was given up"
    assert not two.take(0.01)
    let_go(three)
    assert two.take(GENEROUS_S), "and taken again"


def test_a_loop_asks_and_is_told(locks: list[QueuedLock]) -> None:
    one, two, _ = locks
    told = threading.Event()
    assert one.take(0)
    two.ask(told.set)
    assert not two.take_asked()
    let_go(one)
    assert told.wait(GENEROUS_S)
    assert two.take_asked()
    assert not one.take(0)


def test_a_loop_that_leaves_the_queue_leaves_the_lock(locks: list[QueuedLock]) -> None:
    one, two, three = locks
    told = threading.Event()
    assert one.take(0)
    two.ask(told.set)
    let_go(one)
    assert told.wait(GENEROUS_S)
    assert two.give_up()
    let_go(two)
    assert three.take(GENEROUS_S)


def test_who_asks_when_it_has_come_for_another_is_told_at_once_and_the_queue_goes_on(locks: list[QueuedLock]) -> None:
    one, two, _ = locks
    for _ in range(3):
        told = [threading.Event(), threading.Event()]
        assert one.take(0)
        two.ask(told[0].set)
        let_go(one)
        assert told[0].wait(GENEROUS_S)
        two.ask(told[1].set)  # before anybody has taken it
        assert told[1].wait(GENEROUS_S)
        assert two.take_asked()
        assert not two.take_asked()
        let_go(two)


def test_the_lock_of_a_killed_process_is_free(path: str, locks: list[QueuedLock]) -> None:
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        held = QueuedLock(os.open(path, os.O_RDWR))
        held.take(0)
        os.write(tell, b".")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"."
        assert not locks[0].take(0)
        locks[0].ask()
        os.kill(child, signal.SIGKILL)
        assert locks[0].take(GENEROUS_S)
    finally:
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)


def test_those_who_wait_get_it_in_turn(path: str) -> None:
    """Nobody starves: each of eight threads with an open file of its own has it as often as it asks."""
    turns: list[int] = []

    def work(number: int) -> None:
        fd = os.open(path, os.O_RDWR)
        lock = QueuedLock(fd)
        for _ in range(50):
            assert lock.take(GENEROUS_S)
            turns.append(number)
            flock(fd, LOCK_UN)
        lock.close()
        os.close(fd)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS_S)
    assert sorted(turns) == sorted(list(range(8)) * 50)


def test_a_closed_lock_leaves_no_thread_and_no_descriptor(path: str) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    one, two = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    first, second = QueuedLock(one), QueuedLock(two)
    assert first.take(0)
    assert not second.take(0.01)
    second.close()
    os.close(two)
    first.close()
    os.close(one)
    if before:
        wait_for(lambda: len(os.listdir("/proc/self/fd")) == before, GENEROUS_S, "the thread to end")
