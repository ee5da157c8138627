"""A producer inside somebody else's process: a tool server written in Python, or a host with its own chain.

    with runtime as producer: ...        open, up to date and ours alone; what was written is handed over at the end
    record, refused = runtime.ask(...)   decided, and on record before it returns
    runtime.settle(record, "OK", ...)    the end of an allowed call

Opened at the first use, so that importing a server leaves no trace. The journal is a plain append of microseconds, so
events are written where they arise, on the event loop; ledgerd is woken from a thread of its own, because starting it
takes milliseconds. A process that forks gets a producer of its own: two must not share one name.

Events of the gate are strictly ordered, so one lock covers judging and writing. It is held for microseconds.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from time import monotonic_ns, time_ns

from subluminal.host.config import Config, load_config
from subluminal.host.identity import borrow_environment
from subluminal.host.run.state import SharedState
from subluminal.producer.asking import ask
from subluminal.producer.producer import Producer, assemble
from subluminal.producer.state_queue import StateQueue, give_up_at, try_turn
from subluminal.producer.thread_doorbell import ThreadDoorbell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.gate.record import CallRecord
    from subluminal.producer.asking import Told

TRANSPORT = "in_process"


class Runtime:
    """`policy` is a path (hot reload), a compiled snapshot, or None, as for `producer.assemble`."""

    config: Config

    def __init__(
        self,
        policy: str | os.PathLike[str] | dict[str, Any] | None = None,
        *,
        server_name: str = "in-process",
        events: str | None = None,
        client: str | None = None,
    ) -> None:
        self.server_name = server_name
        self._policy = policy if policy is None or isinstance(policy, dict) else os.fspath(policy)
        self._events = events
        self._client = client
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._turn_taken = False  # the run's state stays locked for the next `with`
        self._waiting = StateQueue()
        _start_anew_after_fork(self)

    def __enter__(self) -> Producer:
        self._lock.acquire()
        try:
            if self._producer is None:
                return self._open()
            producer = self._producer
            now_ns = monotonic_ns()
            if now_ns >= producer.check_at_ns:
                self._check_policies(producer, now_ns)
            return producer
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        producer = self._producer
        try:
            if producer is not None:
                producer.hand_over()
                if not self._turn_taken and isinstance(producer.state, SharedState):
                    producer.state.let_go()
        finally:
            self._turn_taken = False
            self._lock.release()

    def _check_policies(self, producer: Producer, now_ns: int) -> None:
        if producer.check_policies(now_ns, time_ns() // 1_000_000) and producer.policy_error:
            _say(producer.policy_error)

    def _open(self) -> Producer:
        borrow_environment(os.environ)
        self.config = load_config(os.environ)
        producer = assemble(
            os.environ, client=self._client, events=self._events, policy=self._policy, config=self.config
        )
        self._producer = producer
        for warning in [*self.config.warnings, producer.policy_error]:
            if warning:
                _say(warning)
        producer.doorbell = ThreadDoorbell(producer.doorbell.enabled)
        producer.open({"server_name": self.server_name})
        _close_at_exit(self)
        return producer

    def close(self, status: str = "SUCCEEDED") -> None:
        """`run_end`, once. Called at exit by itself; a call after the end opens anew, as another producer."""
        with self._lock:
            producer, self._producer = self._producer, None
            if producer is None:
                return
            trouble = producer.close(status)
            producer.doorbell.enabled = False  # for the thread that still waits
            producer.doorbell.close()
            if trouble is not None:
                _say(trouble)

    # -- a call -----------------------------------------------------------------------------------------------

    async def turn(self, wait: Callable[[Callable[[Callable[[], None]], None], float], Awaitable[None]]) -> None:
        """Wait for the run's state without blocking the loop. The next `with` has it, if nothing else is waited for.

        `wait(start, seconds)` returns when what it gave to `start` was called, from another thread, or time is over.
        """
        give_up_ns = give_up_at()
        while not self._try_lock(give_up_ns):
            told: list[Callable[[], None]] = []

            def start(tell: Callable[[], None], told: list[Callable[[], None]] = told) -> None:
                told.append(tell)
                self._stand_in_queue(tell)

            try:
                await wait(start, max(0.0, (give_up_ns - monotonic_ns()) / 1e9))
            except BaseException:
                self._leave_queue(told)
                with self:  # what has come meanwhile goes again
                    raise
            self._leave_queue(told)

    def _stand_in_queue(self, tell: Callable[[], None]) -> None:
        with self as producer:
            self._waiting.stand(producer.state, tell)  # type: ignore[arg-type]  # only files are waited for

    def _leave_queue(self, told: list[Callable[[], None]]) -> None:
        producer = self._producer
        with self._lock:
            for tell in told:
                self._waiting.leave(None if producer is None else producer.state, tell)

    def take_no_turn(self) -> None:
        """For who cannot wait: where the run's state is not to be had at once, the next `with` does without it."""
        self._try_lock(0)

    def _try_lock(self, give_up_ns: int) -> bool:
        with self as producer:
            self._turn_taken = try_turn(producer, give_up_ns)
            return self._turn_taken

    def ask(
        self,
        call: ToolCall,
        words: Callable[[int, str, dict[str, Any]], tuple[Told, int]],
        wall_ms: int | None = None,
        mono_ms: int | None = None,
    ) -> tuple[CallRecord, Told | None]:
        """As `asking.ask`, now."""
        with self as producer:
            wall = time_ns() // 1_000_000 if wall_ms is None else wall_ms
            mono = monotonic_ns() // 1_000_000 if mono_ms is None else mono_ms
            return ask(producer, call, wall, mono, words)

    def settle(self, record: CallRecord, status: str, *, latency_ms: int, error: dict[str, Any] | None = None) -> None:
        if self.owns(record):
            with self as producer:
                wall_ms, mono_ms = time_ns() // 1_000_000, monotonic_ns() // 1_000_000
                producer.gate.settle(record, status, wall_ms, mono_ms, latency_ms=latency_ms, error=error)

    def owns(self, record: CallRecord) -> bool:
        """Not a call that was judged before a fork, or before the run was closed: that is not ours to end."""
        producer = self._producer
        return producer is not None and producer.gate.owns(record)

    @property
    def policy_hashes(self) -> list[str]:
        with self as producer:
            return [policy.policy_hash for policy in producer.gate.stack.policies]


def _start_anew_after_fork(runtime: Runtime) -> None:
    """A child holds neither the parent's locks nor its files: a lock lives as long as any copy of its descriptor."""
    reference = weakref.ref(runtime)

    def let_go() -> None:
        living = reference()
        if living is None:
            return
        living._lock = threading.Lock()
        living._turn_taken = False
        producer, living._producer = living._producer, None
        if producer is not None:
            producer.drop()

    os.register_at_fork(after_in_child=let_go)


def _close_at_exit(runtime: Runtime) -> None:
    """Without keeping it alive for that."""
    reference = weakref.ref(runtime)

    def close() -> None:
        living = reference()
        if living is not None:
            living.close()

    atexit.register(close)


def _say(message: str) -> None:
    """To stderr: stdout may belong to the protocol."""
    print(f"sub: {message}", file=sys.stderr)
