"""Every figure that is watched from outside, under its name: Prometheus' pages of a machine and of a collector
(`ledger.http.metrics`) and OpenTelemetry (`fleet.telemetry.points`) are written from these.

No run, agent or pod is a label: their number has no bound, and what is watched must stay small for those who keep it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]


class Figure(NamedTuple):
    """`unit`: UCUM's word, as OpenTelemetry writes it. A count only grows; a gauge is as it is now. `bounds`: of a
    histogram."""

    name: str
    about: str
    unit: str
    kind: Literal["count", "gauge", "histogram"]
    bounds: tuple[float, ...] = ()


class Histogram:
    """`counts` has one place more than there are bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Reading(NamedTuple):
    """What a figure is just now, for each of its labels. A label without a dot is one of ours."""

    figure: Figure
    points: list[tuple[Labels, float | Histogram]]


def one(figure: Figure, value: float) -> Reading:
    return Reading(figure, [((), value)])


# What happened, wherever it is told: on a machine or at a collector.
CALLS = Figure("subluminal.calls", "Calls decided, by decision.", "{call}", "count")
ERRORS = Figure("subluminal.errors", "Calls that ended with an error, by class.", "{call}", "count")

# A machine's. The name of the first and its bounds are those of OpenTelemetry's conventions.
DURATION = Figure(
    "mcp.client.operation.duration",
    "How long MCP tool calls took.",
    "s",
    "histogram",
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
JOURNALS_LAG = Figure("subluminal.ingest.lag", "Bytes of journals that are not in the ledger yet.", "By", "gauge")
SPOOL = Figure("subluminal.spool", "Bytes of all journals.", "By", "gauge")
REJECTED_LINES = Figure(
    "subluminal.rejected.lines", "Lines that were no events, as the ledger keeps them.", "{line}", "gauge"
)

# Those of a machine that has joined a fleet.
SNAPSHOT_VALID = Figure(
    "subluminal.snapshot.valid",
    "1 while what the fleet has laid is whole and not overdue; 0: calls are refused, or fail as their class says.",
    "1",
    "gauge",
)
SNAPSHOT_AGE = Figure(
    "subluminal.snapshot.age", "Since the policy of the fleet was last found to be current.", "s", "gauge"
)
SNAPSHOT_VERSION = Figure(
    "subluminal.snapshot.version", "Version of the fleet's policy that is in force.", "1", "gauge"
)
STOP_ACTIVE = Figure("subluminal.stop.active", "Stops that are in force.", "{stop}", "gauge")
UNACKED_EVENTS = Figure(
    "subluminal.unacked.events", "Events of the ledger that no collector has acknowledged.", "{event}", "gauge"
)

# A collector's.
EVENTS = Figure(
    "subluminal.collector.events",
    "Events committed to the store, by tenant; those that were there already among them.",
    "{event}",
    "count",
)
SEGMENTS = Figure("subluminal.collector.segments", "Segments, by what became of them.", "{segment}", "count")
PENDING_EVENTS = Figure(
    "subluminal.collector.pending.events", "Events that wait for the next commit.", "{event}", "gauge"
)
COMMIT = Figure(
    "subluminal.collector.commit",
    "How long a commit took.",
    "s",
    "histogram",
    (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
STORE_FAILURES = Figure(
    "subluminal.collector.store.failures",
    "Commits that the store refused or never answered.",
    "{commit}",
    "count",
)
REJECTED_SEGMENTS = Figure(
    "subluminal.collector.rejected.segments",
    "Segments refused for what they hold, by reason.",
    "{segment}",
    "count",
)
DUPLICATES = Figure(
    "subluminal.collector.duplicates", "Events that the store had already, where it tells.", "{event}", "count"
)
CONFLICTS = Figure(
    "subluminal.collector.conflicts",
    "Events that the store had with other bytes, or of a shim of another machine: all are kept.",
    "{event}",
    "count",
)
ARRIVAL_LAG = Figure(
    "subluminal.ingest.lag",
    "From an event's own time to its arrival.",
    "s",
    "histogram",
    (1.0, 5.0, 30.0, 60.0, 300.0, 3600.0, 86400.0),
)
