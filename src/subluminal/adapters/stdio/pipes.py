"""The descriptors of a shim and what waits for them: both directions, the server's stderr, and messages in pieces.

Every write is non-blocking; a side is read only while what it produces can be kept.
"""

from __future__ import annotations

import os
import select
import signal
from time import monotonic_ns

from subluminal.adapters.stdio.flow import HIGH_WATER, Outflow
from subluminal.adapters.stdio.oversize import Oversize
from subluminal.host.record.sinks import StreamSink
from subluminal.mcp.exchange import Session
from subluminal.mcp.message import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.parties import Parties
    from subluminal.adapters.stdio.start_up import Prepared
    from subluminal.adapters.upstream.process import Upstream

STDIN, STDOUT, STDERR = 0, 1, 2


class Pipes:
    def __init__(self, server_name: str, upstream: Upstream, prepared: Prepared, parties: Parties) -> None:
        self.upstream = upstream
        self.config = prepared.config
        self.sink = parties.sink
        self.gate = parties.gate
        self.session = Session(
            self.gate,
            server_name,
            refusal_style=prepared.server.refusal_style,
            timeout_ms=prepared.server.timeout_ms or 0,
        )
        self.poller = select.poll()
        self.to_server = Outflow(upstream.stdin)
        self.to_client = Outflow(STDOUT)
        self._client_part = b""
        self._server_part = b""
        self._client_big: Oversize | None = None
        self._server_big: Oversize | None = None
        self._stderr = bytearray()
        self._registered: dict[int, int] = {}
        self._client_open = True
        self._server_open = True
        self._dirty_ns = 0  # since when events have been written that nobody has been told of
        self._wake = -1

    def _watch(self, fd: int, mask: int) -> None:
        """Only tell the poller what has changed."""
        if self._registered.get(fd) != mask:
            self._registered[fd] = mask
            self.poller.register(fd, mask)

    def _unwatch(self, fd: int) -> None:
        if self._registered.pop(fd, None) is not None:
            self.poller.unregister(fd)

    def _balance(self) -> None:
        """Read a side only while what it produces can be kept; wait for room where something waits."""
        to_server, to_client = self.to_server, self.to_client
        if self._client_open:
            full = to_server.size > HIGH_WATER or to_client.size > HIGH_WATER
            self._watch(STDIN, 0 if full else select.POLLIN)
        if self._server_open:
            self._watch(self.upstream.stdout, 0 if to_client.size > HIGH_WATER else select.POLLIN)
        if not to_client.broken:
            self._watch(STDOUT, select.POLLOUT if to_client.waiting else 0)
        if self.upstream.stdin >= 0 and not to_server.broken and to_server.waiting:
            self._watch(self.upstream.stdin, select.POLLOUT)
        else:
            self._unwatch(self.upstream.stdin)
            if not self._client_open:
                self._close_server_stdin()
        if self._stderr:
            self._watch(STDERR, select.POLLOUT)
        else:
            self._unwatch(STDERR)
        wanted = self.sink.wants()
        if wanted >= 0 and wanted != STDERR:
            self._watch(wanted, select.POLLOUT)
        ours = (self.upstream.stdin, self.upstream.stdout, self.upstream.stderr, self._wake, wanted)
        for fd in [fd for fd in self._registered if fd > STDERR and fd not in ours]:
            self._unwatch(fd)

    def _forward(self) -> None:
        out = self.session.to_server
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.to_server.send(data)

    def _to_client(self) -> None:
        """Never in the middle of a large reply that is still passing."""
        out = self.session.to_client
        if out and self._server_big is None:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.to_client.send(data)

    def _hand_over(self) -> None:
        self.sink.write(self.gate.take())
        if not self._dirty_ns:
            self._dirty_ns = monotonic_ns()

    def _close_server_stdin(self) -> None:
        if self.upstream.stdin >= 0:
            self._unwatch(self.upstream.stdin)
            os.close(self.upstream.stdin)
            self.upstream.stdin = -1

    # -- messages in pieces ---------------------------------------------------------------------------------------

    def _big_call(self, part: bytes) -> None:
        hold = self.gate.may_refuse
        self._client_big = Oversize(hold, self.config.max_message_bytes)
        self._feed_big_call(part)

    def _feed_big_call(self, chunk: bytes) -> None:
        big = self._client_big
        assert big is not None
        big.feed(chunk)
        if not big.hold:
            self._forward()
            self.to_server.send(chunk)

    def _more_of_big_call(self, data: bytes, wall_ms: int, now_ns: int) -> bytes:
        """Bytes up to the newline belong to the large message; returns what follows it."""
        end = data.find(b"\n")
        self._feed_big_call(data if end < 0 else data[:end])
        if end < 0:
            return b""
        self._end_big_call(wall_ms, now_ns)
        return data[end + 1 :]

    def _end_big_call(self, wall_ms: int, now_ns: int, newline: bytes = b"\n") -> None:
        big, self._client_big = self._client_big, None
        assert big is not None
        big.scan.finish()
        session = self.session
        self._forward()
        reading = wire.read_scan(big.scan)
        if reading.kind in (wire.CALL, wire.AMBIGUOUS) or big.fault is not None:
            passes = session.judge(reading, big.size, wall_ms, now_ns, None, big.stream_hash(), big.fault)
        else:
            session.note(reading, wall_ms, now_ns)
            passes = True
        if not big.hold:
            if passes:
                self.to_server.send(newline)
            else:
                # The run was terminated while it passed. The server has not seen its end, and must not.
                self.upstream.signal(signal.SIGKILL)
        elif passes:
            self.to_server.send_file(big.release())
            self.to_server.send(newline)
        else:
            big.drop()

    def _big_reply(self, part: bytes) -> None:
        self._server_big = Oversize(False, 0, strict=False)
        self._server_big.feed(part)
        self.to_client.send(part)

    def _more_of_big_reply(self, data: bytes) -> bytes:
        big = self._server_big
        assert big is not None
        end = data.find(b"\n")
        piece = data if end < 0 else data[:end]
        big.feed(piece)
        self.to_client.send(piece)
        if end < 0:
            return b""
        self._end_big_reply()
        return data[end + 1 :]

    def _end_big_reply(self) -> None:
        big, self._server_big = self._server_big, None
        assert big is not None
        big.scan.finish()
        self.to_client.send(b"\n")
        values = big.scan.values
        if "id" in values and "method" not in values:
            entry = self.session.take(values["id"])
            if entry is not None:
                self.session.answered_unread(entry, values, big.size, big.stream_hash())

    # -- stderr ---------------------------------------------------------------------------------------------------

    def _from_stderr(self) -> bool:
        """Always drained, so that a server that talks much is never blocked by a client that does not listen.

        False when there is nothing to read.
        """
        try:
            data = os.read(self.upstream.stderr, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._unwatch(self.upstream.stderr)
            os.close(self.upstream.stderr)
            self.upstream.stderr = -1
            return False
        if isinstance(self.sink, StreamSink) and self.sink.fd == STDERR:
            self.sink.pass_on(data)
            return True
        if len(self._stderr) < HIGH_WATER:
            self._stderr += data
        self._flush_stderr()
        return True

    def _flush_stderr(self) -> None:
        """Small pieces after a poll never block, and fd 2 need not be switched to non-blocking for everyone."""
        while self._stderr:
            poller = select.poll()
            poller.register(STDERR, select.POLLOUT)
            ready = poller.poll(0)
            if not ready:
                return
            try:
                done = os.write(STDERR, self._stderr[:4096])
            except OSError:
                self._stderr.clear()
                return
            del self._stderr[:done]
