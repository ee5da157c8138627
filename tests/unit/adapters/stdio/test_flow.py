"""Lines out: whole, in order, and never inside a line that is still passing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from subluminal.adapters.stdio.flow import FileSegment, Outflow


class Pipe:
    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.write_end, False)
        self.out = Outflow(self.write_end)

    def read(self) -> bytes:
        try:
            return os.read(self._read_end, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        os.close(self._read_end)
        os.close(self.write_end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_wait_behind_a_line_that_passes_in_pieces(pipe: Pipe) -> None:
    pipe.out.send_piece(b"large ")
    pipe.out.send_lines([b"refusal"])
    assert pipe.out.lines_wait
    pipe.out.send_piece(b"reply")
    assert pipe.read() == b"large reply"
    pipe.out.end_line()
    assert pipe.read() == b"\nrefusal\n"
    assert not pipe.out.lines_wait


def test_a_held_message_stands_between_the_lines_around_it(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "held"
    path.write_bytes(b"held")
    segment = FileSegment(os.open(path, os.O_RDONLY), 4)
    pipe.out.send_lines([b"one", b"two", segment, b"three"])
    assert pipe.read() == b"one\ntwo\nheld\nthree\n"


def test_a_last_line_that_came_without_a_newline_goes_without_one(pipe: Pipe) -> None:
    pipe.out.newline = b""
    pipe.out.send_lines([b"one", b"two"])
    assert pipe.read() == b"one\ntwo"


def test_what_a_full_reader_does_not_take_is_kept_in_order(pipe: Pipe) -> None:
    lines = [b"%06d" % number for number in range(30_000)]
    for line in lines:
        pipe.out.send_lines([line])
    assert pipe.out.waiting
    got = b""
    while pipe.out.waiting:
        got += pipe.read()
        pipe.out.flush()
    assert (got + pipe.read()).split() == lines
