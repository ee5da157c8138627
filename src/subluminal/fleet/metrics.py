"""Counters, gauges and histograms as Prometheus reads them, and every name that we give one. No labels by run, agent or
pod: a label's values must be few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The collector's.
EVENTS = "subluminal_collector_events_total"
SEGMENTS = "subluminal_collector_segments_total"
PENDING_EVENTS = "subluminal_collector_pending_events"
COMMIT_SECONDS = "subluminal_collector_commit_seconds"
STORE_FAILURES = "subluminal_collector_store_failures_total"
REJECTED = "subluminal_collector_rejected_segments_total"
DUPLICATES = "subluminal_collector_duplicates_total"
CONFLICTS = "subluminal_collector_conflicts_total"
# What happened, wherever it is told: a machine or the collector.
CALLS = "subluminal_calls_total"
ERRORS = "subluminal_errors_total"
INGEST_LAG = "subluminal_ingest_lag_seconds"
# A machine's.
SPOOL_BYTES = "subluminal_spool_bytes"
UNACKED_EVENTS = "subluminal_unacked_events"
SNAPSHOT_AGE = "subluminal_snapshot_age_seconds"
SNAPSHOT_VERSION = "subluminal_snapshot_version"
STOP_ACTIVE = "subluminal_stop_active"

HELP = {
    EVENTS: "Events committed to the store, by tenant; those that were there already among them.",
    SEGMENTS: "Segments, by what became of them.",
    PENDING_EVENTS: "Events that wait for the next commit.",
    COMMIT_SECONDS: "How long a commit took.",
    STORE_FAILURES: "Commits that the store refused or never answered.",
    REJECTED: "Segments refused for what they hold, by reason.",
    DUPLICATES: "Events that the store had already, where it tells.",
    CONFLICTS: "Events that the store had with other bytes: both lines are kept.",
    CALLS: "Calls decided, by decision.",
    ERRORS: "Calls that ended with an error, by its class.",
    INGEST_LAG: "From an event's own time to its arrival.",
    SPOOL_BYTES: "Bytes of the ledger that no collector has acknowledged.",
    UNACKED_EVENTS: "Events of the ledger that no collector has acknowledged.",
    SNAPSHOT_AGE: "Since the policy of the fleet was last found to be current.",
    SNAPSHOT_VERSION: "Version of the fleet's policy that is in force.",
    STOP_ACTIVE: "1 while a stop is in force.",
}
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BUCKETS = {COMMIT_SECONDS: _SECONDS, INGEST_LAG: (1.0, 5.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)}


class Metrics:
    """Thread-safe. A label is one (name, value)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, str] = {}
        self._values: dict[str, dict[tuple[str, str] | None, float]] = {}
        self._sums: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, label: tuple[str, str] | None = None) -> None:
        with self._lock:
            self._kinds[name] = "counter"
            values = self._values.setdefault(name, {})
            values[label] = values.get(label, 0) + amount

    def set(self, name: str, value: float, label: tuple[str, str] | None = None) -> None:
        with self._lock:
            self._kinds[name] = "gauge"
            self._values.setdefault(name, {})[label] = value

    def observe(self, name: str, value: float) -> None:
        with self._lock:
            self._kinds[name] = "histogram"
            values = self._values.setdefault(name, {})
            for bound in BUCKETS[name]:
                label = ("le", _number(bound))
                values[label] = values.get(label, 0) + (value <= bound)
            whole = ("le", "+Inf")
            values[whole] = values.get(whole, 0) + 1
            self._sums[name] = self._sums.get(name, 0.0) + value

    def value(self, name: str, label: tuple[str, str] | None = None) -> float:
        with self._lock:
            return self._values.get(name, {}).get(label, 0)

    def text(self) -> str:
        with self._lock:
            return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterable[str]:
        for name, kind in sorted(self._kinds.items()):
            yield f"# HELP {name} {HELP[name]}"
            yield f"# TYPE {name} {kind}"
            suffix = "_bucket" if kind == "histogram" else ""
            for label, value in self._values[name].items():
                told = "" if label is None else f'{{{label[0]}="{_escaped(label[1])}"}}'
                yield f"{name}{suffix}{told} {_number(value)}"
            if kind == "histogram":
                yield f"{name}_sum {_number(self._sums[name])}"
                yield f"{name}_count {_number(self._values[name][('le', '+Inf')])}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
