"""A message too large for memory, kept in an unlinked file until all of it is there.

So a message goes on whole or not at all: a server that stops in the middle of one neither tears the client's line nor
holds up what others say, and a message can be sent again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from subluminal.host.files import unlinked_file
from subluminal.host.home import spool_dir
from subluminal.mcp.message.scan import MessageScan

PIECE_BYTES = 64 * 1024
# White space in JSON, and the end of a line to whoever reads lines.
ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class Held:
    """`fault`: why it could not be kept. What there is of it is scanned all the same."""

    __slots__ = ("_fd", "_limit", "_translate", "fault", "scan", "size")

    def __init__(self, limit: int, *, one_line: bool = False) -> None:
        self.scan = MessageScan(strict=False)
        self.size = 0
        self.fault: str | None = None
        self._limit = limit
        self._translate = one_line
        self._fd = -1
        try:
            self._fd = unlinked_file(spool_dir())
        except OSError as error:
            self._give_up(f"is too large for memory, and there is no room to keep it: {error.strerror}")

    def feed(self, data: bytes) -> None:
        if self._translate:
            data = data.translate(ONE_LINE)
        self.size += len(data)
        for start in range(0, len(data), PIECE_BYTES):
            self.scan.feed(data[start : start + PIECE_BYTES])
        if self._fd < 0:
            return
        if self.size > self._limit:
            self._give_up(f"is larger than {self._limit} bytes")
            return
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._give_up(f"is too large for memory, and there is no room to keep it: {error.strerror}")

    def finish(self) -> None:
        self.scan.finish()

    def pieces(self) -> Iterator[bytes]:
        """Each time from the beginning."""
        offset = 0
        while self._fd >= 0 and (piece := os.pread(self._fd, PIECE_BYTES, offset)):
            offset += len(piece)
            yield piece

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _give_up(self, fault: str) -> None:
        self.fault = fault
        self.close()


Message = bytes | Held


def weight(message: Message) -> int:
    """What it costs to keep: bytes, or a file and what is known of it."""
    return PIECE_BYTES if isinstance(message, Held) else len(message)


def close(message: Message) -> None:
    if isinstance(message, Held):
        message.close()
