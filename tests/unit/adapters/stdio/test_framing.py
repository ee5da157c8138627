"""Lines: where one ends, and what a CR in one may hide."""

from __future__ import annotations

import pytest

from harness.exchange import scanned
from subluminal.adapters.stdio.framing import read_line, split_lines
from subluminal.mcp.message.reading import AMBIGUOUS, CALL

LINE = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ls","arguments":{}}}'


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\nb", b"\n", b"a\n\nb\n", b"a\r\nb"])
def test_bytes_are_cut_at_newlines_and_nowhere_else(data: bytes) -> None:
    assert split_lines(data) == data.split(b"\n")


def test_one_cr_at_the_very_end_belongs_to_the_line_ending() -> None:
    assert read_line(LINE + b"\r").kind == CALL
    for step in (1, 3, len(LINE), len(LINE) + 1):
        assert scanned(LINE + b"\r", step).kind == CALL


@pytest.mark.parametrize("line", [LINE + b"\r" + LINE, b"\r" + LINE, LINE + b"\r\r", LINE + b"\r "])
def test_a_cr_anywhere_else_is_ambiguous_however_the_line_comes(line: bytes) -> None:
    assert read_line(line).kind == AMBIGUOUS
    for step in (1, 3, len(LINE) + 1, len(line)):
        assert scanned(line, step).kind == AMBIGUOUS
