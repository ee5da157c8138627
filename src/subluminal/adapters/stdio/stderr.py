"""The server's stderr on its way to ours. A reader that is slow holds the server up, as it would without us, and gets
all of it; one that takes nothing does not: then what the server says is read and dropped, and the reader is told so.
"""

from __future__ import annotations

import os
import select
from time import monotonic_ns

from subluminal.adapters.stdio.flow import HIGH_WATER
from subluminal.host.record.sinks import StreamSink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.upstream.server import Server
    from subluminal.host.record.sinks import Sink

STDERR = 2
READ_BYTES = 65536
# A reader that has taken nothing for so long is not slow. Not much longer: a server may be waiting for us to read.
STALL_NS = 1_000_000_000


class StderrPass:
    """`waiting` is what our own stderr has not taken yet."""

    __slots__ = ("_dropped", "_sink", "_took_ns", "_upstream", "waiting")

    def __init__(self, upstream: Server, sink: Sink) -> None:
        self.waiting = bytearray()
        self._upstream = upstream
        # Events on stderr share the stream: whole lines of the server between whole events.
        self._sink = sink if isinstance(sink, StreamSink) and sink.fd == STDERR else None
        self._took_ns = 0
        self._dropped = 0

    @property
    def size(self) -> int:
        return len(self.waiting) if self._sink is None else self._sink.held_bytes

    @property
    def full(self) -> bool:
        """Nothing more is to be read until our reader has taken some."""
        return self.size >= HIGH_WATER and not self._stalled

    @property
    def _stalled(self) -> bool:
        return monotonic_ns() - self._took_ns >= STALL_NS

    def read(self) -> bool:
        """False when there is nothing to read; at the end of file the descriptor is closed and -1."""
        try:
            data = os.read(self._upstream.stderr, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            os.close(self._upstream.stderr)
            self._upstream.stderr = -1
            return False
        if not self.size:
            self._took_ns = monotonic_ns()
        if self._dropped or (self.size >= HIGH_WATER and self._stalled):
            self._dropped += len(data)
        else:
            self._pass_on(data)
        self.flush()
        return True

    def _pass_on(self, data: bytes) -> None:
        if self._sink is None:
            self.waiting += data
        else:
            self._sink.pass_on(data)

    def flush(self) -> None:
        before = self.size
        if self._sink is None:
            self._write()
        else:
            self._sink.retry()
        if self.size < before:
            self._took_ns = monotonic_ns()
            if self._dropped:
                lost, self._dropped = self._dropped, 0
                self._pass_on(b"\nsub: %d bytes of the server's stderr are missing here: nobody was reading\n" % lost)

    def _write(self) -> None:
        """Small pieces after a poll never block, and fd 2 need not be switched to non-blocking for everyone."""
        while self.waiting:
            poller = select.poll()
            poller.register(STDERR, select.POLLOUT)
            if not poller.poll(0):
                return
            try:
                done = os.write(STDERR, self.waiting[:4096])
            except OSError:
                self.waiting.clear()
                return
            del self.waiting[:done]
