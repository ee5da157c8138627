"""Calls counted per group, with their latencies.

The exact way: SQL counts per group, decision, status and latency, and everything else, quantiles included, is added up
from that here. By the columns of the index `tool_calls_stats` this is one walk along the index; by others SQLite must
sort, so it is done for few calls only, and for many the quantiles are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from subluminal.contracts.counts import ALLOWED, BLOCKED, COUNTERS, THROTTLED, is_error, is_error_sql

Row = dict[str, Any]

# The columns of the index tool_calls_stats before latency_ms, in its order.
STATS = ("server_name", "tool_name", "decision", "status")
# Calls that SQLite sorts within a fraction of a second.
FEW_CALLS = 50_000
COUNTED = "c.latency_ms AS latency_ms, count(*) AS calls"
# `count` of a CASE costs a third less than `sum` of a condition.
MEASURED = (
    "count(*) AS calls, count(c.decision) AS decided, count(nullif(c.decision, 'ALLOW')) AS refused,"
    " count(CASE c.decision WHEN 'THROTTLE' THEN 1 END) AS throttled,"
    f" count(CASE WHEN {is_error_sql('c.decision', 'c.status')} THEN 1 END) AS errors,"
    " sum(c.latency_ms) AS latency_ms_sum, count(c.latency_ms) AS latencies, max(c.latency_ms) AS latency_ms_max"
)
_COUNTS = ("calls", ALLOWED, BLOCKED, THROTTLED, "errors")


class Group:
    __slots__ = ("counts", "histogram", "latencies", "longest", "total_ms")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.histogram: dict[int, int] = {}
        self.total_ms = 0
        self.latencies = 0
        self.longest: int | None = None

    def count(self, calls: int, decision: str | None, status: str | None, latency_ms: int | None) -> None:
        counts = self.counts
        counts["calls"] += calls
        if decision is not None:
            counts[COUNTERS[decision]] += calls
        if is_error(decision, status):
            counts["errors"] += calls
        if latency_ms is not None:
            self.histogram[latency_ms] = self.histogram.get(latency_ms, 0) + calls

    def measure(self, row: Row) -> None:
        """One row of MEASURED."""
        for name in ("calls", "throttled", "errors"):
            self.counts[name] += row[name]
        self.counts["allowed"] += row["decided"] - row["refused"]
        self.counts["blocked"] += row["refused"] - row["throttled"]
        self.total_ms += row["latency_ms_sum"] or 0
        self.latencies += row["latencies"]
        longest = [value for value in (self.longest, row["latency_ms_max"]) if value is not None]
        self.longest = max(longest, default=None)

    def figures(self) -> Row:
        """A latency of nothing is not known, and neither is a quantile that was not worked out."""
        histogram = self.histogram
        if histogram:
            self.latencies = sum(histogram.values())
            self.total_ms = sum(latency * calls for latency, calls in histogram.items())
            self.longest = max(histogram)
        return {
            **self.counts,
            "latency_ms_avg": round(self.total_ms / self.latencies, 3) if self.latencies else None,
            "latency_ms_p50": self._quantile(50),
            "latency_ms_p95": self._quantile(95),
            "latency_ms_max": self.longest,
        }

    def _quantile(self, percent: int) -> int | None:
        """The smallest latency that at least so many percent of the calls did not exceed."""
        if not self.histogram:
            return None
        wanted = -(-self.latencies * percent // 100)
        for latency in sorted(self.histogram):
            wanted -= self.histogram[latency]
            if wanted <= 0:
                return latency
        raise AssertionError("a histogram holds all of its calls")


def add_up(rows: Iterable[Any], fine: list[str], by: list[str], exact: bool) -> list[Row]:
    """Groups, most calls first. `rows` begin with the columns `fine`; COUNTED (`exact`) or MEASURED follows."""
    groups: dict[tuple[Any, ...], Group] = {}
    places = [fine.index(name) for name in by]
    decision, status = (fine.index("decision"), fine.index("status")) if exact else (0, 0)
    for row in rows:
        key = tuple([row[place] for place in places])
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group()
        if exact:
            group.count(row[-1], row[decision], row[status], row[-2])
        else:
            group.measure(row)
    ordered = sorted(groups.items(), key=lambda item: -item[1].counts["calls"])
    return [{**dict(zip(by, key, strict=True)), **group.figures()} for key, group in ordered]
