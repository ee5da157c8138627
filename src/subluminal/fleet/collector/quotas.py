"""How much a tenant may send: a bucket of events for each, filled at its rate. Time is passed in.

An event is `EVENT_BYTES` of what is sent, or one line, whichever makes more: a few lines of a MiB each cost what
thousands of usual ones do.

A tenant with debts is refused before its body is read, so that one which sends a hundred times its quota costs hardly
more than its headers. Each collector counts for itself: with N of them a tenant has up to N quotas.
"""

from __future__ import annotations

# A machine that was away sends its backlog at once: seconds of the rate that a bucket holds.
BURST_S = 30.0
_LONGEST_WAIT_S = 60.0
# Five times the usual line: whoever sends nothing unusual is counted by lines alone.
EVENT_BYTES = 4096


class Quotas:
    """`events_per_s` of a tenant; 0: no limit. `own`: tenants with a rate of their own."""

    def __init__(self, events_per_s: float, own: dict[str, float] | None = None) -> None:
        self._rate = events_per_s
        self._own = own or {}
        self._buckets: dict[str, tuple[float, float]] = {}  # tenant -> (events left, when)

    def wait_s(self, tenant: str, now_s: float) -> float:
        """0: it may send. Else how long until its debts are paid."""
        rate = self._own.get(tenant, self._rate)
        if not rate:
            return 0.0
        left = self._left(tenant, rate, now_s)
        return 0.0 if left > 0 else min(_LONGEST_WAIT_S, (1 - left) / rate)

    def charge(self, tenant: str, events: int, size: int, now_s: float) -> None:
        """`size`: of these events, in bytes."""
        rate = self._own.get(tenant, self._rate)
        if rate:
            cost = max(events, size / EVENT_BYTES)
            self._buckets[tenant] = (self._left(tenant, rate, now_s) - cost, now_s)

    def _left(self, tenant: str, rate: float, now_s: float) -> float:
        full = rate * BURST_S
        left, at = self._buckets.get(tenant, (full, now_s))
        return min(full, left + (now_s - at) * rate)
