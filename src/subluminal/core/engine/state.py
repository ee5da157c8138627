"""What a run remembers: counters, token buckets, marks and windows, each a short tuple of integers under a key.

All that one call changes is one list of operations, applied as a whole or not at all. `LocalState` keeps the entries in
the process, for tests and replay; `host.run.state.SharedState` keeps the same entries in a file.

    (RUN, key, values)       a rule with scope `run`: (calls, cost units, 0), or a bucket's (tokens, remainder, at_ms)
    (KEYED, key, values)     the same for a rule with a narrower scope
    (MARK, key, values)      (at_ms, doors): when this key was last seen (dedupe), and by which doors (claims)
    (WINDOW, key, values)    what `windows` makes of it
    (LABEL, key, text)       what an entry is called, for people; no rule reads it
    (TERMINATE, code, message, policy_id, rule_id)

Values are absolute: whoever writes has the state to itself and has just read it. Keys are 16-byte digests.

Wide scopes (`agent`, `principal`, `machine`) outlive the run. Their entries have pools of their own, `pool + WIDE`, and
a time of their own: milliseconds that only go forward, whatever is done to the clock.

Bounds. Each pool is bounded on its own, so that a flood in one (distinct arguments, invented tool names) cannot push
out another. In a pool the least recently written key goes first.

Run time is monotonic milliseconds of this machine. Several processes take it before they get their turn, so a timestamp
may lie slightly ahead of `now`; more than CLOCK_SLACK_MS ahead means the clock was reset, and the entry is void.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    Op = tuple[Any, ...]

RUN, KEYED, MARK, WINDOW, LABEL = range(5)
POOLS = 5
WIDE = POOLS
TERMINATE = 2 * POOLS

KEY_BYTES = 16
# How many keys a pool holds at least. Run-wide entries are as many as the policies have rules.
MAX_KEYS = 4_096
MAX_VALUES = 66  # of one entry
MAX_INTEGER = 1 << 62  # values are stored in 64 bits
CLOCK_SLACK_MS = 60_000
MAX_TERMINATE_CHARS = 500
MAX_LABEL_BYTES = 240


class StateUnavailable(Exception):
    """The state cannot be had right now (its holder does not let go): judge by `decision_on_error`."""


class StateDamaged(StateUnavailable):
    """The state cannot be read any more. `start_afresh` sets it aside, if the policy would rather fail open."""


if TYPE_CHECKING:

    class State(Protocol):
        """What the engine needs of run state. Reads are only meaningful between `begin` and `commit`/`abandon`.

        `terminated` is (code, message) once the run has been terminated, `terminated_by` (policy_id, rule_id) of the
        rule that did, or empty strings after an operator's order.
        """

        reason: str | None
        wide_ms: int

        @property
        def stopped(self) -> bool: ...  # terminated, as far as the last `begin` or `next_seq` saw
        @property
        def terminated(self) -> tuple[str, str] | None: ...
        @property
        def terminated_by(self) -> tuple[str, str] | None: ...
        def begin(self, wide: bool = False) -> None: ...
        def get(self, pool: int, key: bytes) -> tuple[int, ...] | None: ...
        def commit(self, ops: list[Op], count_call: bool = False) -> int: ...
        def abandon(self) -> None: ...
        def next_seq(self) -> int: ...
        def terminate(self, code: str, message: str) -> None: ...
        def start_afresh(self) -> None: ...


class LocalState:
    """State of one process: for tests, replay, in-process servers without a home, and wherever no file can be had
    (`reason`). Without a time of its own for wide scopes (`wide_ms`): theirs is the run's."""

    __slots__ = ("_seq", "_terminated", "pools", "reason", "wide_ms")

    def __init__(self, reason: str | None = None) -> None:
        self.pools: list[dict[bytes, Any]] = [{} for _ in range(2 * POOLS)]
        self.reason = reason
        self.wide_ms = 0
        self._seq = 0
        self._terminated: tuple[str, str, str, str] | None = None

    @property
    def stopped(self) -> bool:
        return self._terminated is not None

    @property
    def terminated(self) -> tuple[str, str] | None:
        return None if self._terminated is None else self._terminated[:2]

    @property
    def terminated_by(self) -> tuple[str, str] | None:
        return None if self._terminated is None else self._terminated[2:]

    def begin(self, wide: bool = False) -> None:
        pass

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        return self.pools[pool].get(key)

    def commit(self, ops: Iterable[Op], count_call: bool = False) -> int:
        """Apply the operations; with `count_call` also take the next call number and return it (else 0)."""
        for op in ops:
            if op[0] == TERMINATE:
                self._terminated = self._terminated or (op[1], op[2], op[3], op[4])
                continue
            pool, key = self.pools[op[0]], op[1]
            if key in pool:
                del pool[key]  # so that it becomes the most recently written one
            elif len(pool) >= MAX_KEYS:
                del pool[next(iter(pool))]
            pool[key] = op[2]
        return self.next_seq() if count_call else 0

    def abandon(self) -> None:
        pass

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def terminate(self, code: str, message: str) -> None:
        self.commit([terminate_op(code, message)])

    def start_afresh(self) -> None:
        for pool in self.pools:
            pool.clear()


def terminate_op(code: str, message: str, policy_id: str = "", rule_id: str = "") -> Op:
    bound = MAX_TERMINATE_CHARS
    return (TERMINATE, code[:bound], message[:bound], policy_id[:bound], rule_id[:bound])
