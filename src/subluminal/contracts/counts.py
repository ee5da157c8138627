"""How calls are counted: allowed, blocked, throttled, errors. The one rule, for the gate, the fold and SQL alike.

An error is a call that was let through and did not end OK. A refused call ends with status ERROR too, but it is counted
by its decision alone. A call whose decision is not known was not refused, as far as anyone knows.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import ACTIONS, ALLOW, THROTTLE

ALLOWED, BLOCKED, THROTTLED = "allowed", "blocked", "throttled"
# The counter of each action.
COUNTERS = dict.fromkeys(ACTIONS, BLOCKED) | {ALLOW: ALLOWED, THROTTLE: THROTTLED}


def is_let_through(action: str | None) -> bool:
    return action is None or action == ALLOW


def is_error(action: str | None, status: str | None) -> bool:
    """`status` is None while the call has not ended."""
    return status is not None and status != "OK" and (action is None or action == ALLOW)


def let_through_sql(decision: str = "decision") -> str:
    """`is_let_through` as a condition on a column."""
    return f"({decision} IS NULL OR {decision} = '{ALLOW}')"


def is_error_sql(decision: str = "decision", status: str = "status") -> str:
    """`is_error` as a condition on columns."""
    return f"{status} <> 'OK' AND {let_through_sql(decision)}"


class Counts:
    """The counts of one run, or of one producer in it. `total` is raised by whoever opens a call."""

    __slots__ = (ALLOWED, BLOCKED, "errors", THROTTLED, "total")

    def __init__(self, total: int = 0, allowed: int = 0, blocked: int = 0, throttled: int = 0, errors: int = 0) -> None:
        self.total = total
        self.allowed = allowed
        self.blocked = blocked
        self.throttled = throttled
        self.errors = errors

    def decided(self, action: str) -> None:
        if action == ALLOW:
            self.allowed += 1
        elif action == THROTTLE:
            self.throttled += 1
        else:
            self.blocked += 1

    def decided_again(self, earlier: str | None, action: str, status: str | None = None) -> None:
        """The decision that stands is another one: a further leg, or a first decision that came after the end."""
        if earlier is not None:
            name = COUNTERS[earlier]
            setattr(self, name, getattr(self, name) - 1)
        self.decided(action)
        self.errors += is_error(action, status) - is_error(earlier, status)

    def ended(self, action: str | None, status: str) -> None:
        if status != "OK" and (action is None or action == ALLOW):
            self.errors += 1

    def as_summary(self, duration_ms: int) -> dict[str, int]:
        """As `run_end` tells it (§1.8)."""
        return {
            "calls_total": self.total,
            "calls_allowed": self.allowed,
            "calls_blocked": self.blocked,
            "calls_throttled": self.throttled,
            "errors_total": self.errors,
            "duration_ms": duration_ms,
        }
