"""Bytes to lines to JSON, without I/O, in bounded memory: what every stream of an agent program goes through.

A line that is longer than the limit or does not parse is never shown: it becomes a `BadLine` that knows its size.
Traps: programs write warnings between their JSON lines, cut a line off when they are killed, pass on invalid UTF-8
from tools, and (when written in JavaScript) escape half of a surrogate pair, which strict decoders refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

# Images and file contents travel inside one line, as base64 and often twice; four times the largest one seen.
MAX_LINE_BYTES = 16 * 1024 * 1024

T = TypeVar("T")

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_any_json = msgspec.json.Decoder(msgspec.Raw).decode

_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: kept
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one: replaced
    rb"|\\."  # any other escape, so that an escaped backslash is never taken for the start of one
)


class BadLine(msgspec.Struct, eq=False):
    """A line that cannot be read. `reason` is `oversize`, `not_json` or `unexpected_shape`."""

    reason: str
    size: int


class LineSplitter:
    """Cuts a byte stream at newlines; holds at most `max_line_bytes` of an unfinished line."""

    __slots__ = ("_held", "_held_bytes", "_max", "_skipped")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._skipped = 0

    def feed(self, data: bytes) -> Iterator[bytes | BadLine]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._held or self._skipped or end - start > self._max:
                yield from self._close(data[start:end])
            elif line := data[start:end].strip():
                yield line
            start = end + 1
        if start < len(data):
            self._hold(data[start:])

    def finish(self) -> Iterator[bytes | BadLine]:
        """The last line, when the stream ended without a newline."""
        yield from self._close(b"")

    def _hold(self, piece: bytes) -> None:
        if self._skipped or self._held_bytes + len(piece) > self._max:
            self._skipped += self._held_bytes + len(piece)
            self._held.clear()
            self._held_bytes = 0
        else:
            self._held.append(piece)
            self._held_bytes += len(piece)

    def _close(self, piece: bytes) -> Iterator[bytes | BadLine]:
        self._hold(piece)
        if self._skipped:
            yield BadLine("oversize", self._skipped)
        else:
            line = b"".join(self._held).strip()
            if line:
                yield line
        self._held.clear()
        self._held_bytes = self._skipped = 0


class LineReader(Generic[T]):
    """Splits a stream and decodes each line as `T`; yields the value with the size of its line, or a `BadLine`."""

    __slots__ = ("_decode", "_splitter")

    def __init__(self, shape: type[T], max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._splitter = LineSplitter(max_line_bytes)
        self._decode = msgspec.json.Decoder(shape).decode

    def feed(self, data: bytes) -> Iterator[tuple[T, int] | BadLine]:
        return map(self._read, self._splitter.feed(data))

    def finish(self) -> Iterator[tuple[T, int] | BadLine]:
        return map(self._read, self._splitter.finish())

    def _read(self, line: bytes | BadLine) -> tuple[T, int] | BadLine:
        if isinstance(line, BadLine):
            return line
        try:
            return self._decode(line), len(line)
        except _UNREADABLE:
            return self._read_mended(line)

    def _read_mended(self, line: bytes) -> tuple[T, int] | BadLine:
        mended = mend_json(line)
        try:
            # `[WARN] started` begins like an array: only a line that is JSON to its end has a shape to be unexpected.
            _any_json(mended)
        except _UNREADABLE:
            return BadLine("not_json", len(line))
        try:
            return self._decode(mended), len(line)
        except _UNREADABLE:
            return BadLine("unexpected_shape", len(line))


def mend_json(line: bytes) -> bytes:
    """The line with invalid UTF-8 and escaped lone surrogates replaced by U+FFFD."""
    valid = line.decode("utf-8", "replace").encode()
    return _SURROGATES.sub(lambda found: b"\\ufffd" if found.group(1) else found.group(), valid)
