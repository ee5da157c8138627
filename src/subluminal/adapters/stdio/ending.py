"""How a session ends: a signal, the client's end of file, the server's death; and that nothing stays behind.

The record is finished first, because SIGKILL may follow within milliseconds; then the server is asked, told and made to
end in named waits (`supervise`).
"""

from __future__ import annotations

import select
import signal
import sys
from time import monotonic_ns, time_ns

from subluminal.adapters.stdio.pipes import STDERR, STDIN, STDOUT, Pipes
from subluminal.adapters.upstream import process as supervise
from subluminal.host.record.doorbell import Notifier
from subluminal.host.record.sinks import JournalSink
from subluminal.host.run import files as runfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.parties import Parties
    from subluminal.adapters.stdio.start_up import Prepared
    from subluminal.adapters.upstream.process import Upstream

# A pipe holds 64 KiB, and 1 MiB at most where nobody is privileged.
DRAIN_READS = 5
END_FLUSH_NS = 500_000_000


class Ending(Pipes):
    def __init__(self, server_name: str, upstream: Upstream, prepared: Prepared, parties: Parties) -> None:
        super().__init__(server_name, upstream, prepared, parties)
        self.audit_before = prepared.server.audit == "before"
        self.notifier = Notifier(isinstance(self.sink, JournalSink) and self.sink.spooled)
        self.opened_ns = monotonic_ns()
        self._closing_ns = 0  # when to go one step further in ending the server; 0 while it may live
        self._closing_step = 0
        self._status = "SUCCEEDED"

    def _interrupted(self, number: int) -> None:
        """A signal ends the run. The record is finished at once: SIGKILL may follow within milliseconds."""
        self._finish_run("CANCELLED" if self.session.calls_open else self._status, "the client ended the session")
        self.upstream.signal(number)
        self._closing_step = max(self._closing_step, 2 if number == signal.SIGTERM else 1)
        grace = supervise.TERM_GRACE_S if number == signal.SIGTERM else supervise.SIGNAL_GRACE_S
        self._closing_ns = monotonic_ns() + int(grace * 1e9)

    def _client_eof(self, now_ns: int) -> None:
        if not self._client_open:
            return
        self._client_open = False
        self._unwatch(STDIN)
        if self._client_part or self._client_big is not None:
            self._last_client_line(now_ns)
        if not self.to_server.waiting:
            self._close_server_stdin()
        self._end_server_in(supervise.EOF_GRACE_S)

    def _last_client_line(self, now_ns: int) -> None:
        """Some servers process a last line without a newline, so it is judged like any other."""
        session = self.session
        wall_ms = time_ns() // 1_000_000
        if self._client_big is not None:
            self._end_big_call(wall_ms, now_ns, newline=b"")
        else:
            part, self._client_part = self._client_part, b""
            session.client_line(part, wall_ms, now_ns)
            if session.to_server:
                session.to_server[-1] = session.to_server[-1][:-1]
        if self.audit_before:
            session.announce(wall_ms)
            self._hand_over()
        self._forward()
        session.forwarded(now_ns, monotonic_ns())
        session.announce(wall_ms)
        self._hand_over()
        self._to_client()

    def _client_gone(self) -> None:
        """Nobody reads our stdout any more."""
        self.to_client.broken = True
        self.to_client.drop()
        self._unwatch(STDOUT)
        if self._client_open:
            self._client_eof(monotonic_ns())

    def _end_server_in(self, grace_s: float) -> None:
        if not self._closing_ns:
            self._closing_ns = monotonic_ns() + int(grace_s * 1e9)

    def _go_further(self, now_ns: int) -> None:
        """The grace is over: SIGTERM, then SIGKILL."""
        self._closing_step += 1
        if self._closing_step <= 2:
            self._closing_step = 2
            self.upstream.signal(signal.SIGTERM)
            self._closing_ns = now_ns + int(supervise.TERM_GRACE_S * 1e9)
        else:
            self.upstream.signal(signal.SIGKILL)
            self._closing_ns = now_ns + int(supervise.TERM_GRACE_S * 1e9)

    def _server_eof(self) -> None:
        if not self._server_open:
            return
        self._server_open = False
        self._unwatch(self.upstream.stdout)
        torn = self._server_big is not None
        if self._server_part:
            torn = self._last_server_line()
        self.upstream.poll()
        # Its stdout is closed: whatever it still does, nobody will hear of it.
        self._end_server_in(supervise.EOF_GRACE_S)
        if self._client_open:
            self._server_lost(torn)

    def _last_server_line(self) -> bool:
        """Passed on as it is, without a newline; True if the client's stream now ends inside a line."""
        part, self._server_part = self._server_part, b""
        out = self.session.to_client
        self.session.server_line(part, time_ns() // 1_000_000, monotonic_ns())
        torn = out[-1] == part + b"\n"
        if torn:
            out[-1] = part
        self._to_client()
        return torn

    def _server_lost(self, torn: bool) -> None:
        """The server ended while the client was still there: answer everything that waits."""
        status = self._await_status()
        message = f"The tool server ended ({_describe(status)}) before it answered."
        replies = self.session.unanswered(message)
        failed = bool(replies) or status != 0
        self._finish_run("FAILED" if failed else "SUCCEEDED", message, "ERROR", "transport")
        self._server_big = None
        if torn and replies:
            self.to_client.send(b"\n")
        for reply in replies:
            self.to_client.send(reply)

    def _await_status(self) -> int | None:
        """The exit status follows the end of stdout within moments, if it follows at all."""
        deadline = monotonic_ns() + 50_000_000
        while self.upstream.poll() is None and monotonic_ns() < deadline:
            poller = select.poll()
            poller.register(self._wake, select.POLLIN)
            poller.poll(5)
        return self.upstream.status

    def _finish_run(
        self, status: str, message: str, call_status: str = "CANCELLED", error_class: str = "unknown"
    ) -> None:
        session = self.session
        if session.to_server and self.upstream.stdin >= 0:
            self._forward()
        wall_ms = time_ns() // 1_000_000
        now_ns = monotonic_ns()
        session.announce(wall_ms)
        session.abandon(call_status, error_class, message)
        session.settle(wall_ms, now_ns, now_ns)
        self._status = status
        self.gate.close(status, wall_ms, now_ns // 1_000_000)
        self._hand_over()

    def _end(self) -> int:
        """The server has ended. Nothing of its group and nothing unsent may stay behind."""
        upstream = self.upstream
        self._finish_run("CANCELLED" if self.session.calls_open else self._status, "the session ended before the reply")
        self._end_group()
        self._flush_all(monotonic_ns() + END_FLUSH_NS)
        self.sink.close()
        self.notifier.ring(monotonic_ns() - self.opened_ns, last=True)
        upstream.release_watchdog()
        runfiles.remove_stale()
        if isinstance(self.sink, JournalSink) and self.sink.trouble is not None:
            print(f"sub: events could not be recorded: {self.sink.trouble}", file=sys.stderr)
        return upstream.status or 0

    def _flush_all(self, deadline_ns: int) -> None:
        """What the server has said to its end, on both streams, as far as the client still takes it."""
        for _ in range(DRAIN_READS * 4):
            if self.upstream.stderr < 0:
                break
            if not self._from_stderr():
                break
        while monotonic_ns() < deadline_ns:
            waiting = self.to_client.waiting and not self.to_client.broken
            if not waiting and not self._stderr:
                return
            poller = select.poll()
            if waiting:
                poller.register(STDOUT, select.POLLOUT)
            if self._stderr:
                poller.register(STDERR, select.POLLOUT)
            poller.poll(50)
            self.to_client.flush()
            self._flush_stderr()

    def _end_group(self) -> None:
        """Grandchildren that outlived the server: asked once, then killed."""
        upstream = self.upstream
        if not upstream.signal(signal.SIGTERM):
            return
        poller = select.poll()
        deadline = monotonic_ns() + int(supervise.LEFTOVER_GRACE_S * 1e9)
        while upstream.signal(0):
            if monotonic_ns() > deadline:
                upstream.signal(signal.SIGKILL)
                return
            poller.poll(5)


def _describe(status: int | None) -> str:
    if status is None:
        return "its output was closed"
    return f"signal {status - 128}" if status > 128 else f"exit code {status}"
