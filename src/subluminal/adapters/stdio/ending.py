"""How a session ends: a signal, the client's end of file, the server's death; and that nothing stays behind.

The record is finished first, because SIGKILL may follow within milliseconds; then the server is asked, told and made to
end in named waits (`upstream.process`).
"""

from __future__ import annotations

import os
import select
import signal
import sys
from time import monotonic_ns, time_ns

from subluminal.adapters.stdio.stderr import STDERR
from subluminal.adapters.stdio.watched import STDIN, STDOUT
from subluminal.adapters.upstream.process import EOF_GRACE_S, LEFTOVER_GRACE_S, SIGNAL_GRACE_S, TERM_GRACE_S
from subluminal.host.run.files import remove_stale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.relay import Relay

# A pipe holds 64 KiB, and 1 MiB at most where nobody is privileged.
DRAIN_READS = 5
# A client that takes nothing more for so long will not; one that is slow is given time.
END_FLUSH_NS = 500_000_000
END_FLUSH_AT_MOST_NS = 10_000_000_000
# The exit status follows the end of stdout within moments, if it follows at all.
STATUS_WAIT_NS = 50_000_000


class Ending:
    """`at_ns`: when to go one step further in ending the server; 0 while it may live."""

    def __init__(self, relay: Relay) -> None:
        self.at_ns = 0
        self._relay = relay
        self._step = 0
        self._status = "SUCCEEDED"

    def interrupted(self, number: int) -> None:
        """A signal ends the run. The record is finished at once: SIGKILL may follow within milliseconds."""
        self._finish_run(self._status_now(), "the client ended the session")
        self._relay.upstream.signal(number)
        self._step = max(self._step, 2 if number == signal.SIGTERM else 1)
        grace = TERM_GRACE_S if number == signal.SIGTERM else SIGNAL_GRACE_S
        self.at_ns = monotonic_ns() + int(grace * 1e9)

    # -- the client -----------------------------------------------------------------------------------------------

    def client_eof(self, now_ns: int) -> None:
        relay = self._relay
        if not relay.client.open:
            return
        relay.client.open = False
        relay.watched.remove(STDIN)
        relay.client.last_line(now_ns)
        if not relay.to_server.waiting:
            self.close_server_stdin()
        self._end_server_in(EOF_GRACE_S)

    def client_gone(self) -> None:
        """Nobody reads our stdout any more."""
        relay = self._relay
        relay.to_client.broken = True
        relay.to_client.drop()
        relay.watched.remove(STDOUT)
        self.client_eof(monotonic_ns())

    def close_server_stdin(self) -> None:
        upstream = self._relay.upstream
        if upstream.stdin >= 0:
            self._relay.watched.remove(upstream.stdin)
            os.close(upstream.stdin)
            upstream.stdin = -1

    # -- the server -----------------------------------------------------------------------------------------------

    def _end_server_in(self, grace_s: float) -> None:
        self.at_ns = self.at_ns or monotonic_ns() + int(grace_s * 1e9)

    def go_further(self, now_ns: int) -> None:
        """The grace is over: SIGTERM, then SIGKILL. A server that waits because our reader is slow is given time, as it
        would be without us; the client may lose its patience."""
        if self._step == 0 and self._relay.stderr.full:
            self.at_ns = now_ns + STATUS_WAIT_NS
            return
        self._step = max(self._step + 1, 2)
        self._relay.upstream.signal(signal.SIGTERM if self._step == 2 else signal.SIGKILL)
        self.at_ns = now_ns + int(TERM_GRACE_S * 1e9)

    def server_eof(self) -> None:
        relay = self._relay
        if not relay.server.open:
            return
        relay.server.open = False
        relay.watched.remove(relay.upstream.stdout)
        torn = relay.server.last_line()
        relay.upstream.poll()
        # Its stdout is closed: whatever it still does, nobody will hear of it.
        self._end_server_in(EOF_GRACE_S)
        if relay.client.open:
            self._server_lost(torn)

    def _server_lost(self, torn: bool) -> None:
        """The server ended while the client was still there: answer everything that waits."""
        relay = self._relay
        status = self._await_status()
        message = f"The tool server ended ({_describe(status)}) before it answered."
        replies = relay.exchange.unanswered(message)
        failed = bool(replies) or status != 0
        self._finish_run("FAILED" if failed else "SUCCEEDED", message, "ERROR", "transport")
        if torn and (replies or relay.to_client.lines_wait):
            relay.to_client.end_line()
        relay.to_client.send_lines(list(replies))

    def _await_status(self) -> int | None:
        deadline = monotonic_ns() + STATUS_WAIT_NS
        upstream = self._relay.upstream
        while upstream.poll() is None and monotonic_ns() < deadline:
            self._relay.wait_for_signal(5)
        return upstream.status

    # -- the end --------------------------------------------------------------------------------------------------

    def _status_now(self) -> str:
        return "CANCELLED" if self._relay.exchange.calls_open else self._status

    def _finish_run(
        self, status: str, message: str, call_status: str = "CANCELLED", error_class: str = "unknown"
    ) -> None:
        relay = self._relay
        wall_ms, now_ns = time_ns() // 1_000_000, monotonic_ns()
        relay.exchange.abandon(call_status, error_class, message)
        relay.turn.carry_out(wall_ms, now_ns)
        self._status = status
        relay.producer.gate.close(status, wall_ms, now_ns // 1_000_000)
        relay.producer.hand_over()

    def finish(self) -> int:
        """The server has ended. Nothing of its group and nothing unsent may stay behind."""
        relay, upstream = self._relay, self._relay.upstream
        self._finish_run(self._status_now(), "the session ended before the reply")
        self._end_group()
        self._flush_all()
        trouble = relay.producer.close(self._status)
        upstream.release_watchdog()
        remove_stale()
        if trouble is not None:
            print(f"sub: {trouble}", file=sys.stderr)
        return upstream.status or 0

    def _flush_all(self) -> None:
        """What the server has said to its end, on both streams, as far as the client still takes it."""
        relay = self._relay
        to_client, stderr = relay.to_client, relay.stderr
        for _ in range(DRAIN_READS * 4):
            if relay.upstream.stderr < 0 or not stderr.read():
                break
        began = took = now = monotonic_ns()
        while now - took < END_FLUSH_NS and now - began < END_FLUSH_AT_MOST_NS and not relay.interrupted:
            left = to_client.size + stderr.size
            if not left:
                return
            poller = select.poll()
            if to_client.size:
                poller.register(STDOUT, select.POLLOUT)
            if stderr.size:
                poller.register(STDERR, select.POLLOUT)
            poller.poll(50)
            to_client.flush()
            stderr.flush()
            now = monotonic_ns()
            if to_client.size + stderr.size < left:
                took = now

    def _end_group(self) -> None:
        """Grandchildren that outlived the server: asked once, then killed."""
        upstream = self._relay.upstream
        if not upstream.signal(signal.SIGTERM):
            return
        poller = select.poll()
        deadline = monotonic_ns() + int(LEFTOVER_GRACE_S * 1e9)
        while upstream.signal(0):
            if monotonic_ns() > deadline:
                upstream.signal(signal.SIGKILL)
                return
            poller.poll(5)


def _describe(status: int | None) -> str:
    if status is None:
        return "its output was closed"
    return f"signal {status - 128}" if status > 128 else f"exit code {status}"
