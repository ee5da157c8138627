"""What a run remembers: counters, token buckets, windows and marks, changed by small operations.

One call's effects on the state are one list of operations. `LocalState` applies them in the process;
`host.run.state.SharedState` replicates the very same operations between processes. An operation therefore carries all
that is needed to apply it without the policy: absolute new values, or a timestamp with the bounds of its window.

    (SET_RUN, key, a, b, c)            values of a rule with scope `run`
    (SET, key, a, b, c)                values of a rule with scope `tool` or `server_tool`
    (MARK, key, at_ms, doors, 0)       when this key was last seen (dedupe), and by which doors (claims)
    (PUSH, key, at_ms, window_ms, n)   append to a window; older than window_ms is dropped, the newest n are kept
    (TERMINATE, code, message, policy_id, rule_id)

A counter's values are (calls, cost units, 0), a bucket's (tokens, remainder, at_ms). Keys are 16-byte digests.

Bounds. Each kind of entry has a pool of its own, so that a flood in one (distinct arguments, invented tool names)
cannot push out another. In a pool the least recently written key goes first. Run-wide entries are as many as the
policies have rules; beyond MAX_RUN_KEYS the same holds for them. All pools together fit one arena of the shared file.

Time is monotonic milliseconds of this machine. Several processes take it before they get their turn, so a timestamp
may lie slightly ahead of `now`; more than CLOCK_SLACK_MS ahead means the clock was reset, and the entry is void.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    Op = tuple[Any, ...]

SET_RUN = 1
SET = 2
MARK = 3
PUSH = 4
TERMINATE = 5
WINDOW = 6  # a whole window, only in the compact form of a shared file

KEY_BYTES = 16
MAX_RUN_KEYS = 4_096
MAX_KEYS = 4_096
MAX_MARKS = 4_096
MAX_WINDOWS = 4_096
MAX_TIMESTAMPS = 16_384  # over all windows
MAX_WINDOW = 4_096  # one window; a higher threshold acts as this one
MAX_INTEGER = 1 << 62  # values are stored in 64 bits
CLOCK_SLACK_MS = 60_000
MAX_TERMINATE_CHARS = 500


class StateUnavailable(Exception):
    """The shared state cannot be had right now (its holder does not let go): judge by `decision_on_error`."""


if TYPE_CHECKING:

    class State(Protocol):
        """What the engine needs of run state. Reads are only meaningful between `begin` and `commit`/`abandon`."""

        entries: Entries
        reason: str | None

        @property
        def terminated(self) -> tuple[str, str] | None: ...
        @property
        def terminated_by(self) -> tuple[str, str] | None: ...
        def begin(self) -> None: ...
        def commit(self, ops: list[Op], count_call: bool = False) -> int: ...
        def abandon(self) -> None: ...
        def next_seq(self) -> int: ...
        def terminate(self, code: str, message: str) -> None: ...


class Entries:
    """The entries themselves and how operations change them. An entry is the last operation that set it."""

    __slots__ = ("keyed", "marks", "run_wide", "terminated", "timestamps", "windows")

    def __init__(self) -> None:
        self.run_wide: dict[bytes, Op] = {}
        self.keyed: dict[bytes, Op] = {}
        self.marks: dict[bytes, Op] = {}
        self.windows: dict[bytes, tuple[int, ...]] = {}
        self.timestamps = 0
        self.terminated: tuple[str, str, str, str] | None = None

    def apply(self, ops: Iterable[Op]) -> None:
        for op in ops:
            kind = op[0]
            if kind == SET_RUN:
                pool, bound = self.run_wide, MAX_RUN_KEYS
            elif kind == SET:
                pool, bound = self.keyed, MAX_KEYS
            elif kind == MARK:
                pool, bound = self.marks, MAX_MARKS
            else:
                if kind == PUSH:
                    self._push(op[1], op[2], op[3], op[4])
                elif kind == WINDOW:
                    self._replace(op[1], tuple(op[2]))
                elif kind == TERMINATE and self.terminated is None:
                    self.terminated = (op[1], op[2], op[3], op[4])
                continue
            key = op[1]
            if key in pool:
                del pool[key]  # so that it becomes the most recently written one
            elif len(pool) >= bound:
                del pool[next(iter(pool))]
            pool[key] = op

    def _push(self, key: bytes, at_ms: int, window_ms: int, keep: int) -> None:
        stamps = self.windows.get(key)
        if stamps is None:
            self._replace(key, (at_ms,))
            return
        kept = live(stamps, at_ms, window_ms)
        self._replace(key, (*kept[len(kept) + 1 - keep if len(kept) >= keep else 0 :], at_ms))

    def _replace(self, key: bytes, stamps: tuple[int, ...]) -> None:
        windows = self.windows
        self.timestamps += len(stamps) - len(windows.pop(key, ()))
        windows[key] = stamps
        while len(windows) > MAX_WINDOWS or self.timestamps > MAX_TIMESTAMPS:
            self.timestamps -= len(windows.pop(next(iter(windows))))

    def forget_times(self) -> None:
        """After a reboot every timestamp is meaningless; only counts remain true."""
        self.marks.clear()
        self.windows.clear()
        self.timestamps = 0
        for pool in (self.run_wide, self.keyed):
            for key in [key for key, op in pool.items() if op[4]]:
                del pool[key]

    def as_ops(self) -> list[Op]:
        """The operations that rebuild these entries, least recently written first."""
        ops: list[Op] = [*self.run_wide.values(), *self.keyed.values(), *self.marks.values()]
        ops += [(WINDOW, key, stamps) for key, stamps in self.windows.items()]
        if self.terminated is not None:
            ops.append((TERMINATE, *self.terminated))
        return ops


def live(stamps: tuple[int, ...], now_ms: int, window_ms: int) -> tuple[int, ...]:
    """The timestamps that still lie within the window that ends now."""
    oldest = now_ms - window_ms
    newest = now_ms + CLOCK_SLACK_MS
    if not stamps or (stamps[0] > oldest and stamps[-1] <= newest):
        return stamps
    return tuple([at_ms for at_ms in stamps if oldest < at_ms <= newest])


class LocalState:
    """State of one process: for tests, in-process adapters, and where no shared file can be had (`reason`)."""

    __slots__ = ("_seq", "entries", "reason")

    def __init__(self, reason: str | None = None) -> None:
        self.entries = Entries()
        self.reason = reason
        self._seq = 0

    @property
    def terminated(self) -> tuple[str, str] | None:
        """(code, message) once the run has been terminated."""
        flag = self.entries.terminated
        return None if flag is None else flag[:2]

    @property
    def terminated_by(self) -> tuple[str, str] | None:
        """(policy_id, rule_id) of the rule that terminated the run; empty strings after an operator's order."""
        flag = self.entries.terminated
        return None if flag is None else flag[2:]

    def begin(self) -> None:
        pass

    def commit(self, ops: list[Op], count_call: bool = False) -> int:
        """Apply the operations; with `count_call` also take the next call number and return it (else 0)."""
        self.entries.apply(ops)
        return self.next_seq() if count_call else 0

    def abandon(self) -> None:
        pass

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def terminate(self, code: str, message: str) -> None:
        self.entries.apply([terminate_op(code, message)])


def terminate_op(code: str, message: str, policy_id: str = "", rule_id: str = "") -> Op:
    bound = MAX_TERMINATE_CHARS
    return (TERMINATE, code[:bound], message[:bound], policy_id[:bound], rule_id[:bound])
