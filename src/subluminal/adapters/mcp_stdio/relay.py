"""The poll loop between client and server: one thread, non-blocking writes both ways, the only I/O of the adapter.

Order on one call: judge, forward, hand start and decision to the sink, and only then pass on the reply (a refusal:
hand over, then answer). Whoever has seen an answer can rely on its decision being recorded.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import stat
import sys
from time import monotonic_ns, time_ns

from subluminal.adapters.mcp_stdio import supervise, wire
from subluminal.adapters.mcp_stdio.flow import HIGH_WATER, Outflow, split_lines
from subluminal.adapters.mcp_stdio.oversize import Oversize
from subluminal.adapters.mcp_stdio.session import Session
from subluminal.core.gate import Gate
from subluminal.core.redact import Redactor
from subluminal.host import runfiles
from subluminal.host.identity import discover, make_source
from subluminal.host.notify import Notifier
from subluminal.host.runstate import SharedState
from subluminal.host.sinks import JournalSink, Sink, StreamSink, open_sink
from subluminal.policy.watch import PolicyWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.mcp_stdio.options import Options
    from subluminal.adapters.mcp_stdio.prepare import Prepared
    from subluminal.adapters.mcp_stdio.supervise import Upstream

# A pipe holds 64 KiB. Much more, and each read would map and unmap its buffer (40 us a call, measured).
READ_BYTES = 64 * 1024
STDIN, STDOUT, STDERR = 0, 1, 2
POLICY_CHECK_NS = 400_000_000
TICK_MS = 500
TICK_NS = 5_000_000  # while calls come in, no more often than this
COLLECT_AFTER_OBJECTS = 100_000
HEALTH_NS = 60_000_000_000
# A pipe holds 64 KiB, and 1 MiB at most where nobody is privileged.
DRAIN_READS = 5
END_FLUSH_NS = 500_000_000
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Relay:
    def __init__(self, options: Options, upstream: Upstream, prepared: Prepared) -> None:
        self.upstream = upstream
        self.config = prepared.config
        self.timeout_ms = prepared.server.timeout_ms or 0
        self.audit_before = prepared.server.audit == "before"
        source = make_source()
        self.sink: Sink = open_sink(options.events or os.environ.get("SUB_EVENTS") or "ledger", source.shim_id)
        identity = discover(os.environ, source.host_id, options.client)
        self.policy = PolicyWatch(os.environ, os.getcwd(), options.policy, identity)
        self.gate = Gate(
            identity,
            source,
            self.policy.stack,
            SharedState.open(identity.run_id),
            Redactor(prepared.secrets, self.config.patterns),
            self.config.max_preview_bytes,
        )
        self.session = Session(
            self.gate,
            options.server_name,
            refusal_style=prepared.server.refusal_style,
            timeout_ms=self.timeout_ms,
        )
        self.notifier = Notifier(isinstance(self.sink, JournalSink) and self.sink.spooled)
        self.poller = select.poll()
        self.to_server = Outflow(upstream.stdin)
        self.to_client = Outflow(STDOUT)
        self.opened_ns = monotonic_ns()
        self._client_part = b""
        self._server_part = b""
        self._client_big: Oversize | None = None
        self._server_big: Oversize | None = None
        self._stderr = bytearray()
        self._registered: dict[int, int] = {}
        self._signals: list[int] = []
        self._client_open = True
        self._server_open = True
        self._closing_ns = 0  # when to go one step further in ending the server; 0 while it may live
        self._closing_step = 0
        self._status = "SUCCEEDED"
        self._policy_checked_ns = 0
        self._tick_ns = 0
        self._health_ns = self.opened_ns
        self._health_calls = 0
        self._dirty_ns = 0
        self._was_busy = False
        self._wake = -1
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
        now = time_ns() // 1_000_000
        mono = monotonic_ns() // 1_000_000
        self.gate.open(now, mono, {"server_name": options.server_name})
        self._note_policies(now)
        for secret in prepared.injections:
            self.gate.secret_note(secret, now)
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

    # -- client to server -----------------------------------------------------------------------------------------

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

    # -- server to client -----------------------------------------------------------------------------------------

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
        if self.timeout_ms:
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
        if self.policy.changed():
            self.policy.reload()
            self._note_policies(wall_ms)
            self._hand_over()

    def _note_policies(self, wall_ms: int) -> None:
        """Tell the gate what is in force; an invalid file keeps the last good policy, or refuses all."""
        policy = self.policy
        if policy.error is None:
            self.gate.use_policies(policy.stack, policy.origin, wall_ms)
            return
        self.gate.policy_note(policy.stack.policies[0], False, policy.origin, policy.error, wall_ms)
        if not policy.ever_loaded:
            self.gate.refuse_all(
                "No tool call is allowed because the policy could not be loaded. Tell the operator to run `sub doctor`."
            )

    # -- the end --------------------------------------------------------------------------------------------------

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

    def _close_server_stdin(self) -> None:
        if self.upstream.stdin >= 0:
            self._unwatch(self.upstream.stdin)
            os.close(self.upstream.stdin)
            self.upstream.stdin = -1

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


def record_failed_start(options: Options, prepared: Prepared) -> None:
    """A server that lacks a secret is not started: the record says so, then the user is told."""
    source = make_source()
    sink = open_sink(options.events or os.environ.get("SUB_EVENTS") or "ledger", source.shim_id)
    identity = discover(os.environ, source.host_id, options.client)
    policy = PolicyWatch(os.environ, os.getcwd(), options.policy, identity)
    redactor = Redactor(prepared.secrets, prepared.config.patterns)
    gate = Gate(identity, source, policy.stack, SharedState.open(identity.run_id), redactor)
    wall_ms, mono_ms = time_ns() // 1_000_000, monotonic_ns() // 1_000_000
    gate.open(wall_ms, mono_ms, {"server_name": options.server_name})
    for injection in prepared.injections:
        gate.secret_note(injection, wall_ms)
    gate.close("FAILED", wall_ms, mono_ms)
    sink.write(gate.take())
    sink.close()
