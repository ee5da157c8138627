"""A message that was too large for memory, on its way out of the unlinked file it waited in (`host.oversize`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subluminal.http.outbound import Outbound

_PIECE = 64 * 1024


class Held:
    """`pump` it into a connection; `more` goes on when that has room."""

    __slots__ = ("_at", "_fd", "_outbound", "size")

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._at = 0
        self._outbound: Outbound | None = None
        self.size = size

    def read(self, count: int) -> bytes:
        piece = os.pread(self._fd, count, self._at) if self._fd >= 0 else b""
        self._at += len(piece)
        return piece

    def pump(self, outbound: Outbound) -> None:
        """As much as the server takes."""
        self._outbound = outbound
        self.more()

    def more(self) -> None:
        outbound = self._outbound
        while outbound is not None and not outbound.is_full:
            piece = self.read(_PIECE)
            if not piece:
                self.close()
                return
            outbound.send(piece)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
