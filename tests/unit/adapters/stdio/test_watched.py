"""Whatever descriptors a client gives us are waited for: pipes with epoll, everything where epoll takes none."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from subluminal.adapters.stdio.watched import MOST, Watched

GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for fd in (read_end, write_end):
        try:
            os.close(fd)
        except OSError:
            pass


def test_a_descriptor_is_told_of_once_it_is_ready_and_only_for_what_was_asked(pipe: tuple[int, int]) -> None:
    watched = Watched()
    watched.add(pipe[0], select.POLLIN)
    watched.add(pipe[1], 0)
    assert watched.poll(0.0, MOST) == []
    os.write(pipe[1], b"x")
    assert watched.poll(5.0, MOST) == [(pipe[0], select.POLLIN)]
    watched.add(pipe[0], 0)
    assert watched.poll(0.0, MOST) == []
    watched.add(pipe[1], select.POLLOUT)
    assert watched.poll(5.0, MOST) == [(pipe[1], select.POLLOUT)]
    watched.remove(pipe[1])
    assert watched.poll(0.0, MOST) == []


def test_a_reader_that_goes_is_told_of_without_being_asked_for(pipe: tuple[int, int]) -> None:
    watched = Watched()
    watched.add(pipe[1], 0)
    os.close(pipe[0])
    ((fd, event),) = watched.poll(5.0, MOST)
    assert fd == pipe[1] and event & GONE


def test_a_regular_file_is_always_ready_and_the_others_are_waited_for_as_before(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"{}\n")
    watched = Watched()
    watched.add(pipe[0], select.POLLIN)
    with path.open("rb") as file:
        watched.add(file.fileno(), select.POLLIN)
        assert watched.poll(5.0, MOST) == [(file.fileno(), select.POLLIN)]
        os.write(pipe[1], b"x")
        assert {fd for fd, _ in watched.poll(5.0, MOST)} == {pipe[0], file.fileno()}
        watched.remove(file.fileno())
    assert watched.poll(0.001, MOST) == [(pipe[0], select.POLLIN)]


def test_a_descriptor_that_the_client_has_closed_is_gone(pipe: tuple[int, int]) -> None:
    watched = Watched()
    os.close(pipe[1])
    watched.add(pipe[1], 0)
    assert watched.poll(5.0, MOST) == [(pipe[1], select.POLLNVAL)]


def test_a_descriptor_may_be_closed_before_it_is_removed(pipe: tuple[int, int]) -> None:
    watched = Watched()
    watched.add(pipe[0], select.POLLIN)
    os.close(pipe[0])
    watched.remove(pipe[0])
    read_end, write_end = os.pipe()  # likely the same number
    watched.add(read_end, select.POLLIN)
    os.write(write_end, b"x")
    assert watched.poll(5.0, MOST) == [(read_end, select.POLLIN)]
    os.close(read_end)
    os.close(write_end)
