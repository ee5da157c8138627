"""The door of this process to the gate: one producer of events, with its policies, run state, sink and clock.

The only module of this package that does I/O. What a shim does around its poll loop is done here around a call:

    record = door.judge(call)        decided, and on record before it returns
    door.settle(record, "OK", ...)   the end of an allowed call

Opened at the first use, so that importing a server leaves no trace. The journal is a plain append of microseconds, so
events are written where they arise, on the event loop; ledgerd is woken from a thread of its own, because starting it
takes milliseconds. A process that forks gets a door of its own: two producers must not share one name.

Events of the gate are strictly ordered, so one lock covers judging and writing. It is held for microseconds.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from time import monotonic_ns, time_ns

from subluminal.contracts.vocabulary import ALLOW
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.host.config import load_config
from subluminal.host.identity import borrow_environment, discover, make_source
from subluminal.host.record.doorbell import Notifier
from subluminal.host.record.sinks import JournalSink, open_sink
from subluminal.host.run.state import SharedState
from subluminal.producer.policies import PolicyWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.state import State
    from subluminal.core.gate.gate import CallRecord

TRANSPORT = "in_process"
POLICY_CHECK_NS = 400_000_000
REFUSE_ALL = "No tool call is allowed because the policy could not be loaded. Tell the operator to run `sub doctor`."


class Door:
    """`policy` is a path (hot reload; the organisation's policy is always in force as well), a compiled snapshot
    (exactly that), or None: the policies found as for a shim. `events` names a sink as `--events` does.
    """

    def __init__(
        self,
        policy: str | os.PathLike[str] | dict[str, Any] | None = None,
        *,
        server_name: str = "in-process",
        events: str | None = None,
        client: str | None = None,
    ) -> None:
        self.server_name = server_name
        self._policy = policy
        self._events = events
        self._client = client
        self._lock = threading.Lock()
        self._pid = 0
        self._closed = False
        _start_anew_after_fork(self)

    # -- opening and closing ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Read settings and policy, and announce the run. Harmless when already open."""
        with self._lock:
            self._ensure_open()

    def open_once(self) -> None:
        """`open`, at the price of a comparison when it is open already."""
        if self._pid != os.getpid():
            self.open()

    def _ensure_open(self) -> None:
        if self._pid == os.getpid():
            return
        borrow_environment(os.environ)
        self.config = load_config(os.environ)
        source = make_source()
        events = self._events or os.environ.get("SUB_EVENTS") or "ledger"
        self.sink = open_sink(events, source.shim_id)
        identity = discover(os.environ, source.host_id, self._client)
        self._watch: PolicyWatch | None = None
        if isinstance(self._policy, dict):
            stack = Stack([Engine(self._policy, identity)])
        else:
            explicit = None if self._policy is None else os.fspath(self._policy)
            self._watch = PolicyWatch(os.environ, os.getcwd(), explicit, identity)
            stack = self._watch.stack
        state: State = SharedState.open(identity.run_id)
        redactor = Redactor((), self.config.patterns)
        self.gate = Gate(identity, source, stack, state, redactor, self.config.max_preview_bytes)
        self._bell = _Doorbell(isinstance(self.sink, JournalSink) and events == "ledger")
        self._policy_checked_ns = monotonic_ns()
        self._closed = False
        self._pid = os.getpid()
        self._announce_run()
        _close_at_exit(self)

    def _announce_run(self) -> None:
        for warning in self.config.warnings:
            _say(warning)
        wall_ms = time_ns() // 1_000_000
        self.gate.open(wall_ms, monotonic_ns() // 1_000_000, {"server_name": self.server_name})
        if self._watch is None:
            self.gate.policy_note(self.gate.stack.policies[0], True, "snapshot", None, wall_ms)
        else:
            self._note_policies(self._watch, wall_ms)
        self._hand_over()

    def close(self, status: str = "SUCCEEDED") -> None:
        """`run_end`, once, and nothing unsent stays behind. Called at exit by itself."""
        with self._lock:
            if self._pid != os.getpid() or self._closed:
                return
            self._closed = True
            self.gate.close(status, time_ns() // 1_000_000, monotonic_ns() // 1_000_000)
            self._hand_over()
            self.sink.close()
            trouble = getattr(self.sink, "trouble", None)
            self._bell.last_ring()
            if trouble is not None:
                _say(f"events could not be recorded: {trouble}")
            # A call after the end opens the door anew, as another producer.
            self._pid = 0

    # -- a call -----------------------------------------------------------------------------------------------

    def judge(self, call: ToolCall, wall_ms: int | None = None, mono_ms: int | None = None) -> CallRecord:
        """Decide, and hand start and decision to the sink. A refused call is settled by `refuse`."""
        with self._lock:
            wall, mono = self._times(wall_ms, mono_ms)
            record = self.gate.judge(call, wall, mono)
            self.gate.announce(record, wall)
            if record.decision.action == ALLOW:
                self._hand_over()
            return record

    def judge_again(self, record: CallRecord, call: ToolCall) -> None:
        """A further leg of the same call."""
        with self._lock:
            wall, mono = self._times(None, None)
            self.gate.judge_again(record, call, wall, mono)
            if record.decision.action == ALLOW:
                self._hand_over()

    def refusal(self, record: CallRecord) -> tuple[int, str, dict[str, Any]]:
        """Code, message and data for the caller (contract C)."""
        with self._lock:
            return self.gate.refusal(record)

    def refuse(self, record: CallRecord, bytes_out: int, wall_ms: int | None = None) -> None:
        """End a refused call, before its caller hears of it."""
        with self._lock:
            wall = time_ns() // 1_000_000 if wall_ms is None else wall_ms
            self.gate.settle_refused(record, wall, record.started_mono_ms, bytes_out)
            self._hand_over()

    def settle(
        self,
        record: CallRecord,
        status: str,
        *,
        latency_ms: int,
        bytes_out: int = 0,
        result_raw: bytes | None = b"",
        result_stream_hash: str | None = None,
        error: dict[str, Any] | None = None,
        overhead_us: int | None = None,
    ) -> None:
        """Nothing, if the call is not ours to end: it was judged before a fork, or before the run was closed."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self.gate.settle(
                record,
                status,
                time_ns() // 1_000_000,
                monotonic_ns() // 1_000_000,
                latency_ms=latency_ms,
                bytes_out=bytes_out,
                result_raw=result_raw,
                result_stream_hash=result_stream_hash,
                error=error,
                overhead_us=overhead_us,
                waited_ms=record.waited_ms or None,
            )
            self._hand_over()

    def _times(self, wall_ms: int | None, mono_ms: int | None) -> tuple[int, int]:
        """Also the moment to notice a new process and a new policy."""
        if self._pid != os.getpid():
            self._ensure_open()
        now_ns = monotonic_ns()
        wall = time_ns() // 1_000_000 if wall_ms is None else wall_ms
        if now_ns - self._policy_checked_ns > POLICY_CHECK_NS:
            self._policy_checked_ns = now_ns
            self._check_policy(wall)
        return wall, now_ns // 1_000_000 if mono_ms is None else mono_ms

    def _hand_over(self) -> None:
        self.sink.write(self.gate.take())
        self._bell.push()

    # -- policy -----------------------------------------------------------------------------------------------

    @property
    def policy_hashes(self) -> list[str]:
        with self._lock:
            self._times(None, None)
            return [policy.policy_hash for policy in self.gate.stack.policies]

    def _check_policy(self, wall_ms: int) -> None:
        watch = self._watch
        if watch is not None and watch.changed():
            watch.reload()
            self._note_policies(watch, wall_ms)
            self._hand_over()

    def _note_policies(self, watch: PolicyWatch, wall_ms: int) -> None:
        """An invalid file keeps the last good policy, or refuses everything."""
        if watch.error is None:
            self.gate.use_policies(watch.stack, watch.origin, wall_ms)
            return
        _say(watch.error)
        self.gate.policy_note(watch.stack.policies[0], False, watch.origin, watch.error, wall_ms)
        if not watch.ever_loaded:
            self.gate.refuse_all(REFUSE_ALL)


class _Doorbell:
    """Wakes ledgerd a moment after something was written, from a thread that ends with the process."""

    def __init__(self, enabled: bool) -> None:
        self._notifier = Notifier(enabled)
        self._enabled = enabled
        self._pushed = threading.Event()
        self._opened_ns = monotonic_ns()
        self._thread: threading.Thread | None = None

    def push(self) -> None:
        if not self._enabled or self._pushed.is_set():
            return
        self._pushed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._ring, name="subluminal-doorbell", daemon=True)
            self._thread.start()

    def _ring(self) -> None:
        quiet = threading.Event()
        while True:
            self._pushed.wait()
            quiet.wait(Notifier.DELAY_MS / 1000)
            self._pushed.clear()
            self._notifier.ring(monotonic_ns() - self._opened_ns)

    def last_ring(self) -> None:
        self._enabled = False
        self._notifier.ring(monotonic_ns() - self._opened_ns, last=True)


def _start_anew_after_fork(door: Door) -> None:
    """A child holds neither the parent's locks nor its files: a lock lives as long as any copy of its descriptor."""
    reference = weakref.ref(door)

    def let_go() -> None:
        living = reference()
        if living is None:
            return
        living._lock = threading.Lock()
        if living._pid == 0:
            return
        if isinstance(living.sink, JournalSink) and living.sink.fd >= 0:
            os.close(living.sink.fd)
            living.sink.fd = -1
        if isinstance(living.gate.state, SharedState):
            living.gate.state.close()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=let_go)


def _close_at_exit(door: Door) -> None:
    """Without keeping the door alive for that."""
    reference = weakref.ref(door)

    def close() -> None:
        living = reference()
        if living is not None:
            living.close()

    atexit.register(close)


def _say(message: str) -> None:
    """To stderr: stdout may belong to the protocol."""
    print(f"sub: {message}", file=sys.stderr)
