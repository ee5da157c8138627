"""The poll loop between client and server: one thread, every write non-blocking, and a side is read only while what it
produces can be kept.

    client    bytes of the client to the exchange        to_server, to_client    lines out
    server    bytes of the server to the exchange        stderr                  the server's own words
    turn      what the exchange puts out, in order       ending                  how it all ends
"""

from __future__ import annotations

import gc
import os
import select
import signal
import stat
from time import monotonic_ns, time_ns

from subluminal.adapters.stdio.client_side import ClientSide
from subluminal.adapters.stdio.ending import DRAIN_READS, Ending
from subluminal.adapters.stdio.flow import HIGH_WATER, Outflow
from subluminal.adapters.stdio.server_side import ServerSide
from subluminal.adapters.stdio.stderr import STDERR, StderrPass
from subluminal.adapters.stdio.watched import MOST, STDIN, STDOUT, Watched
from subluminal.host.record.doorbell import DELAY_MS
from subluminal.host.run.tool_notes import RunToolNotes
from subluminal.mcp.calls import Calls
from subluminal.mcp.exchange import Exchange
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.health import Heartbeat
from subluminal.producer.surfaces import SurfaceOnDemand
from subluminal.producer.turn import ENDS_WAIT_MS, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from subluminal.adapters.upstream.server import Server
    from subluminal.host.config import Config, ServerConfig
    from subluminal.producer.producer import Producer

    class Setup(Protocol):
        """What is known of the server; `words`: its command, or its address."""

        @property
        def config(self) -> Config: ...
        @property
        def server(self) -> ServerConfig: ...
        @property
        def words(self) -> Sequence[str]: ...


# A pipe holds 64 KiB. Much more, and each read would map and unmap its buffer (40 us a call, measured).
READ_BYTES = 64 * 1024
TICK_S = 0.5
ENDS_WAIT_S, DELAY_S = ENDS_WAIT_MS / 1000, DELAY_MS / 1000
ENDS_WAIT_NS = ENDS_WAIT_MS * 1_000_000
TICK_NS = 5_000_000  # while calls come in, no more often than this
COLLECT_AFTER_OBJECTS = 100_000
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Relay:
    """`make_calls`, `clock`: for a replay, whose calls have the times of the record."""

    def __init__(
        self,
        server_name: str,
        upstream: Server,
        setup: Setup,
        producer: Producer,
        *,
        make_calls: Callable[..., Calls] = Calls,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        server, config = setup.server, setup.config
        self.upstream = upstream
        self.producer = producer
        self.to_server = Outflow(upstream.stdin)
        self.to_client = Outflow(STDOUT)
        notes = ToolNotes(RunToolNotes(producer.gate.identity.run_id, server_name))
        SurfaceOnDemand(producer, server_name, setup.words, notes)
        calls = make_calls(
            producer.gate,
            server_name,
            "mcp_stdio",
            notes,
            refusal_style=server.refusal_style,
            timeout_ms=server.timeout_ms or None,
        )
        self.exchange = Exchange(calls)
        self.turn = Turn(
            producer,
            calls,
            self.to_server.send_lines,
            self.to_client.send_lines,
            audit_before=server.audit == "before",
            ends_wait=True,
            clock=clock,
        )
        self.client = ClientSide(self.exchange, self.turn, producer, self.to_server, upstream, config)
        self.server = ServerSide(self.exchange, self.turn, self.to_client, config)
        self.stderr = StderrPass(upstream, producer.sink)
        self.watched = Watched()
        self.ending = Ending(self)
        self._signals: list[int] = []
        self._wake = -1
        self.heartbeat = Heartbeat(producer, config.health_ms, monotonic_ns())
        self._tick_ns = 0
        self._was_busy = False

    def _start(self) -> None:
        for fd in (self.upstream.stdin, self.upstream.stdout, self.upstream.stderr):
            os.set_blocking(fd, False)
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

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        self._start()
        # Everything made so far lives as long as we do: the collector need not look at it again. Calls make no
        # cycles, so it need not run between them either; `_tick` lets it when there is time.
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            self._loop()
        finally:
            self.producer.hand_over()  # whatever ends us: the ends that waited are on record
        return self.ending.finish()

    def _loop(self) -> None:
        upstream, sink = self.upstream, self.producer.sink
        to_server, to_client, stderr = self.to_server, self.to_client, self.stderr
        watched = self.watched
        watched.add(upstream.stdout, select.POLLIN)
        watched.add(upstream.stderr, select.POLLIN)
        watched.add(self._wake, select.POLLIN)
        watched.add(STDOUT, 0)  # tells when the client has gone
        watched.add(STDIN, select.POLLIN)
        self._woken()  # a server that ended before we had a handler sends no signal any more
        server, client, ending, doorbell = self.server, self.client, self.ending, self.producer.doorbell
        unwritten, ends_ns = self.producer.gate.outbox, 0
        while server.open or upstream.status is None:
            if unwritten:
                wait_s = ENDS_WAIT_S
            elif ending.at_ns:
                wait_s = self._until_s(ending.at_ns)
            else:
                wait_s = DELAY_S if doorbell.pressed_ns else TICK_S
            now_ns = 0
            for fd, event in watched.poll(wait_s, MOST):
                if fd == STDIN:
                    now_ns = self._from_client()
                elif fd == upstream.stdout:
                    now_ns = self._from_server()
                else:
                    self._ready(fd, event)
            busy = to_server.size or to_client.size or stderr.waiting or sink.held_bytes
            if busy or self._was_busy or not client.open:
                self._was_busy = bool(busy)
                self._balance()
            if not now_ns:
                now_ns = monotonic_ns()
            if not unwritten:
                ends_ns = 0
            elif not ends_ns:
                ends_ns = now_ns
            elif now_ns - ends_ns >= ENDS_WAIT_NS:
                self.producer.hand_over()
                ends_ns = 0
            if now_ns >= self._tick_ns or ending.at_ns:
                self._tick(now_ns)

    def _ready(self, fd: int, event: int) -> None:
        upstream = self.upstream
        if fd == upstream.stderr:
            if not self.stderr.read() and upstream.stderr < 0:
                self.watched.remove(fd)
        elif fd == self._wake:
            self._woken()
        elif fd == STDOUT:
            if event & _GONE:
                self.ending.client_gone()
            else:
                self.to_client.flush()
        elif fd == upstream.stdin:
            if event & _GONE:
                self.to_server.broken = True
                self.to_server.drop()
            else:
                self.to_server.flush()
        elif fd == STDERR:
            self.stderr.flush()
        else:
            self.producer.sink.retry()

    def _until_s(self, at_ns: int) -> float:
        return max(0.0, min(TICK_S, (at_ns - monotonic_ns()) / 1e9))

    @property
    def interrupted(self) -> bool:
        """A signal has come that nobody has looked at yet."""
        return bool(self._signals)

    def wait_for_signal(self, ms: int) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.poll(ms)

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        signals, self._signals = self._signals, []
        for number in signals:
            self.ending.interrupted(number)
        if self.upstream.status is None and self.upstream.poll() is not None and self.server.open:
            # A grandchild may hold the pipe open: take what is there, then do not wait for it.
            self._drain_server()

    def _drain_server(self) -> None:
        """What was in the pipe when it ended; not what a grandchild may go on writing for ever."""
        poller = select.poll()
        poller.register(self.upstream.stdout, select.POLLIN)
        left = DRAIN_READS
        while self.server.open and left and poller.poll(0):
            left -= 1
            self._from_server()
        self.ending.server_eof()

    # -- both directions ------------------------------------------------------------------------------------------

    def _from_client(self) -> int:
        """When it was read; zero where nothing was."""
        try:
            data = os.read(STDIN, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        read_ns = monotonic_ns()
        if not data:
            self.ending.client_eof(read_ns)
            return 0
        wall_ms = time_ns() // 1_000_000
        if read_ns >= self.producer.check_at_ns:
            self._check_policies(read_ns, wall_ms)
        self.client.feed(data, wall_ms, read_ns)
        return read_ns

    def _from_server(self) -> int:
        try:
            data = os.read(self.upstream.stdout, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.ending.server_eof()
            return 0
        read_ns = monotonic_ns()
        self.server.feed(data, time_ns() // 1_000_000, read_ns)
        return read_ns

    def _balance(self) -> None:
        """Read a side only while what it produces can be kept; wait for room where something waits."""
        to_server, to_client, watched, upstream = self.to_server, self.to_client, self.watched, self.upstream
        if self.client.open:
            full = to_server.size > HIGH_WATER or to_client.size > HIGH_WATER
            watched.add(STDIN, 0 if full else select.POLLIN)
        if self.server.open:
            watched.add(upstream.stdout, 0 if to_client.size > HIGH_WATER else select.POLLIN)
        if not to_client.broken:
            watched.add(STDOUT, select.POLLOUT if to_client.waiting else 0)
        if upstream.stdin >= 0 and not to_server.broken and to_server.waiting:
            watched.add(upstream.stdin, select.POLLOUT)
        else:
            watched.remove(upstream.stdin)
            if not self.client.open:
                self.ending.close_server_stdin()
        wanted = self.producer.sink.wants()
        if upstream.stderr >= 0:
            watched.add(upstream.stderr, 0 if self.stderr.full else select.POLLIN)
        if self.stderr.waiting or wanted == STDERR:
            watched.add(STDERR, select.POLLOUT)
        else:
            watched.remove(STDERR)
        if wanted >= 0 and wanted != STDERR:
            watched.add(wanted, select.POLLOUT)
        ours = (upstream.stdin, upstream.stdout, upstream.stderr, self._wake, wanted)
        for fd in [fd for fd in watched.masks if fd > STDERR and fd not in ours]:
            watched.remove(fd)

    # -- now and then ---------------------------------------------------------------------------------------------

    def _tick(self, now_ns: int) -> None:
        self._tick_ns = now_ns + TICK_NS
        producer = self.producer
        producer.doorbell.ring_if_due(now_ns)
        if self.ending.at_ns and now_ns >= self.ending.at_ns:
            self.ending.go_further(now_ns)
        self._check_policies(now_ns, time_ns() // 1_000_000)
        if self.exchange.timeout_ms:
            self.exchange.expire(now_ns)
            self.turn.carry_out(time_ns() // 1_000_000, now_ns)
        if producer.sink.held_bytes:
            producer.sink.retry()
        if gc.get_count()[0] > COLLECT_AFTER_OBJECTS:
            gc.collect(1)
        if now_ns >= self.heartbeat.next_ns and not self.ending.at_ns:
            self.heartbeat.beat(now_ns, self.exchange.calls_open)

    def _check_policies(self, now_ns: int, wall_ms: int) -> None:
        if not self.client.streaming:
            self.producer.check_policies(now_ns, wall_ms)
