"""The poll loop between client and server: one thread, and with `pipes` and `ending` the only I/O of the adapter.

Order on one call: judge, forward, hand start and decision to the sink, and only then pass on the reply (a refusal:
hand over, then answer). Whoever has seen an answer can rely on its decision being recorded.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import stat
from time import monotonic_ns, time_ns

from subluminal.adapters.stdio.ending import DRAIN_READS, Ending
from subluminal.adapters.stdio.flow import split_lines
from subluminal.adapters.stdio.parties import Parties
from subluminal.adapters.stdio.pipes import STDERR, STDIN, STDOUT
from subluminal.host.record.doorbell import Notifier
from subluminal.host.run import files as runfiles
from subluminal.host.run.state import SharedState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.options import Options
    from subluminal.adapters.stdio.start_up import Prepared
    from subluminal.adapters.upstream.process import Upstream

# A pipe holds 64 KiB. Much more, and each read would map and unmap its buffer (40 us a call, measured).
READ_BYTES = 64 * 1024
POLICY_CHECK_NS = 400_000_000
TICK_MS = 500
TICK_NS = 5_000_000  # while calls come in, no more often than this
COLLECT_AFTER_OBJECTS = 100_000
HEALTH_NS = 60_000_000_000
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Relay(Ending):
    def __init__(self, options: Options, upstream: Upstream, prepared: Prepared) -> None:
        self.parties = Parties(options, prepared)
        super().__init__(options.server_name, upstream, prepared, self.parties)
        self._signals: list[int] = []
        self._policy_checked_ns = 0
        self._tick_ns = 0
        self._health_ns = self.opened_ns
        self._health_calls = 0
        self._was_busy = False
        self._start(options, prepared)

    def _start(self, options: Options, prepared: Prepared) -> None:
        os.set_blocking(self.upstream.stdin, False)
        os.set_blocking(self.upstream.stdout, False)
        os.set_blocking(self.upstream.stderr, False)
        kind = os.fstat(STDOUT).st_mode
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            os.set_blocking(STDOUT, False)
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.parties.open(options, prepared)
        self._hand_over()
        # Everything made so far lives as long as we do: the collector need not look at it again. Calls make no
        # cycles, so it need not run between them either; `_tick` lets it when there is time.
        gc.collect()
        gc.freeze()
        gc.disable()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        upstream, sink = self.upstream, self.sink
        to_server, to_client = self.to_server, self.to_client
        poll = self.poller.poll
        self._watch(upstream.stdout, select.POLLIN)
        self._watch(upstream.stderr, select.POLLIN)
        self._watch(self._wake, select.POLLIN)
        self._watch(STDOUT, 0)  # tells when the client has gone
        self._watch(STDIN, select.POLLIN)
        self._woken()  # a server that ended before we had a handler sends no signal any more
        while self._server_open or upstream.status is None:
            for fd, event in poll(self._timeout_ms()):
                if fd == STDIN:
                    self._from_client()
                elif fd == upstream.stdout:
                    self._from_server()
                elif fd == upstream.stderr:
                    self._from_stderr()
                elif fd == self._wake:
                    self._woken()
                elif fd == STDOUT:
                    if event & _GONE:
                        self._client_gone()
                    else:
                        self.to_client.flush()
                elif fd == upstream.stdin:
                    if event & _GONE:
                        self.to_server.broken = True
                        self.to_server.drop()
                    else:
                        self.to_server.flush()
                elif fd == STDERR:
                    self._flush_stderr()
                else:
                    self.sink.retry()
            busy = to_server.size or to_client.size or self._stderr or sink.held_bytes
            if busy or self._was_busy or not self._client_open:
                self._was_busy = bool(busy)
                self._balance()
            self._tick()
        return self._end()

    def _timeout_ms(self) -> int:
        if self._closing_ns:
            return max(0, min(TICK_MS, (self._closing_ns - monotonic_ns()) // 1_000_000 + 1))
        if self._dirty_ns:
            return Notifier.DELAY_MS
        return TICK_MS

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        signals, self._signals = self._signals, []
        for number in signals:
            self._interrupted(number)
        if self.upstream.status is None and self.upstream.poll() is not None and self._server_open:
            # A grandchild may hold the pipe open: take what is there, then do not wait for it.
            self._drain_server()

    def _drain_server(self) -> None:
        """What was in the pipe when it ended; not what a grandchild may go on writing for ever."""
        poller = select.poll()
        poller.register(self.upstream.stdout, select.POLLIN)
        left = DRAIN_READS
        while self._server_open and left and poller.poll(0):
            left -= 1
            self._from_server()
        self._server_eof()

    # -- both directions ------------------------------------------------------------------------------------------

    def _from_client(self) -> None:
        try:
            data = os.read(STDIN, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        read_ns = monotonic_ns()
        if not data:
            self._client_eof(read_ns)
            return
        wall_ms = time_ns() // 1_000_000
        if read_ns - self._policy_checked_ns > POLICY_CHECK_NS:
            self._check_policy(read_ns, wall_ms)
        session = self.session
        limit = self.config.max_inspect_bytes
        if self._client_big is not None:
            data = self._more_of_big_call(data, wall_ms, read_ns)
        elif self._client_part:
            data = self._client_part + data
        lines = split_lines(data)
        self._client_part = lines.pop()
        for line in lines:
            if len(line) > limit:
                self._big_call(line)
                self._end_big_call(wall_ms, read_ns)
            else:
                session.client_line(line, wall_ms, read_ns)
                if len(lines) > 64:
                    self._forward()
        if self.audit_before:
            session.announce(wall_ms)
            self._hand_over()
        self._forward()
        session.forwarded(read_ns, monotonic_ns())
        session.announce(wall_ms)
        if session.ended:
            session.settle(wall_ms, monotonic_ns(), read_ns)
        if self.gate.outbox:
            self._hand_over()
        if session.to_client:
            self._to_client()
        if len(self._client_part) > limit:
            part, self._client_part = self._client_part, b""
            self._big_call(part)

    def _from_server(self) -> None:
        try:
            data = os.read(self.upstream.stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        read_ns = monotonic_ns()
        if not data:
            self._server_eof()
            return
        wall_ms = time_ns() // 1_000_000
        session = self.session
        limit = self.config.max_inspect_bytes
        if self._server_big is not None:
            data = self._more_of_big_reply(data)
        elif self._server_part:
            data = self._server_part + data
        lines = split_lines(data)
        self._server_part = lines.pop()
        for line in lines:
            if len(line) > limit:
                self._to_client()
                self._big_reply(line)
                self._end_big_reply()
            else:
                session.server_line(line, wall_ms, read_ns)
        self._to_client()
        if session.ended:
            session.settle(wall_ms, monotonic_ns(), read_ns)
            self._hand_over()
        if len(self._server_part) > limit:
            part, self._server_part = self._server_part, b""
            self._big_reply(part)

    # -- now and then ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_ns = monotonic_ns()
        if now_ns < self._tick_ns and not self._closing_ns:
            return
        self._tick_ns = now_ns + TICK_NS
        if self._dirty_ns and now_ns - self._dirty_ns >= Notifier.DELAY_MS * 1_000_000:
            self._dirty_ns = 0
            self.notifier.ring(now_ns - self.opened_ns)
        if self._closing_ns and now_ns >= self._closing_ns:
            self._go_further(now_ns)
        if now_ns - self._policy_checked_ns > POLICY_CHECK_NS:
            self._check_policy(now_ns, time_ns() // 1_000_000)
        if self.session.timeout_ms:
            self.session.expire(now_ns)
            if self.session.ended:
                self.session.settle(time_ns() // 1_000_000, now_ns, now_ns)
                self._hand_over()
                self._to_client()
        if self.sink.held_bytes:
            self.sink.retry()
        if gc.get_count()[0] > COLLECT_AFTER_OBJECTS:
            gc.collect(1)
        if now_ns - self._health_ns > HEALTH_NS:
            self._health(now_ns)

    def _health(self, now_ns: int) -> None:
        self._health_ns = now_ns
        if isinstance(self.gate.state, SharedState):
            runfiles.keep_fresh(self.gate.state.path)
        if self.gate.calls_total == self._health_calls:
            return
        self._health_calls = self.gate.calls_total
        health = {
            "uptime_ms": (now_ns - self.opened_ns) // 1_000_000,
            "calls_total": self.gate.calls_total,
            "calls_pending": self.session.calls_open,
            "events_held": len(self.sink.held),
            "previews_shed": self.sink.previews_shed,
        }
        self.gate.health_note(health, time_ns() // 1_000_000)
        self._hand_over()

    def _check_policy(self, now_ns: int, wall_ms: int) -> None:
        self._policy_checked_ns = now_ns
        if self._client_big is not None and not self._client_big.hold:
            return  # it passes under the policy that let it begin
        if self.parties.policy.changed():
            self.parties.policy.reload()
            self.parties.note_policies(wall_ms)
            self._hand_over()
