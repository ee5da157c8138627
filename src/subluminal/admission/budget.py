"""What evaluating one rule may cost. Not a budget of calls: those are policy rules.

Equal to the limit passes; one more raises `BudgetExceeded`. Counters are per rule (`begin_rule`); `at` counts ticks
over the tracker's whole life and is no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    BudgetListener = Callable[["BudgetTick"], None]

INTEGER_OPS = "integer_ops"
CALL_DEPTH = "call_depth"
ARG_COUNT = "arg_count"


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    integer_ops: int = 10_000
    call_depth: int = 16
    arg_count: int = 8


@dataclass(frozen=True, slots=True)
class BudgetTick:
    """One charge, as listeners see it."""

    axis: str
    observed: int
    limit: int
    rule_name: str
    at: int


class BudgetExceeded(Exception):
    def __init__(self, which: str, limit: int, observed: int) -> None:
        super().__init__(f"{which}: {observed} is more than {limit}")
        self.which = which
        self.limit = limit
        self.observed = observed


class BudgetTracker:
    __slots__ = ("_at", "_depth", "_limits", "_listeners", "_ops", "_rule_name")

    def __init__(self, limits: BudgetLimits | None = None) -> None:
        self._limits = BudgetLimits() if limits is None else limits
        self._listeners: list[BudgetListener] = []
        self._at = 0
        self.begin_rule("")

    def begin_rule(self, rule_name: str) -> None:
        """All counters start again at zero."""
        self._rule_name = rule_name
        self._ops = 0
        self._depth = 0

    def charge(self, ops: int = 1) -> None:
        self._ops += ops
        self._tick(INTEGER_OPS, self._ops, self._limits.integer_ops)

    def enter_call(self, arg_count: int) -> None:
        self._tick(ARG_COUNT, arg_count, self._limits.arg_count)
        self._depth += 1
        self._tick(CALL_DEPTH, self._depth, self._limits.call_depth)

    def leave_call(self) -> None:
        self._depth -= 1

    def subscribe(self, listener: BudgetListener) -> Callable[[], None]:
        """`listener` sees every tick; what it raises is swallowed. Returns the way to unsubscribe."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def _tick(self, axis: str, observed: int, limit: int) -> None:
        self._at += 1
        if self._listeners:
            tick = BudgetTick(axis, observed, limit, self._rule_name, self._at)
            for listener in tuple(self._listeners):
                try:
                    listener(tick)
                except Exception:  # an observer must not change what is observed
                    continue
        if observed > limit:
            raise BudgetExceeded(axis, limit, observed)
