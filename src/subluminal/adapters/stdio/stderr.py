"""The server's stderr on its way to ours: always drained, so that a server that talks much is never blocked."""

from __future__ import annotations

import os
import select

from subluminal.adapters.stdio.flow import HIGH_WATER
from subluminal.host.record.sinks import StreamSink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.upstream.process import Upstream
    from subluminal.host.record.sinks import Sink

STDERR = 2
READ_BYTES = 65536


class StderrPass:
    """`waiting` is what our own stderr has not taken yet."""

    __slots__ = ("_sink", "_upstream", "waiting")

    def __init__(self, upstream: Upstream, sink: Sink) -> None:
        self.waiting = bytearray()
        self._upstream = upstream
        # Events on stderr share the stream: whole lines of the server between whole events.
        self._sink = sink if isinstance(sink, StreamSink) and sink.fd == STDERR else None

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
        if self._sink is not None:
            self._sink.pass_on(data)
            return True
        if len(self.waiting) < HIGH_WATER:
            self.waiting += data
        self.flush()
        return True

    def flush(self) -> None:
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
