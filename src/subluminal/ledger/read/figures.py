"""The figures that are watched from outside, as values: Prometheus' page (`ledger.http.metrics`) and OpenTelemetry
(`fleet.telemetry`) are both made from them.

No run, agent or pod is a label: their number has no bound, and what is watched must stay small for those who keep it.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from subluminal.host.home import ledger_db, spool_dir
from subluminal.host.record.journal import list_journals
from subluminal.ledger.read.tally import Durations, Tally
from subluminal.ledger.store.schema import open_reader

Labels = tuple[tuple[str, str], ...]


class Figure(NamedTuple):
    """`unit`: UCUM's word, as OpenTelemetry writes it. A count only grows; a gauge is as it is now."""

    name: str
    about: str
    unit: str
    kind: Literal["count", "gauge"]
    points: list[tuple[Labels, float]]


class Figures(NamedTuple):
    """`durations`: those of `mcp.client.operation.duration`, by error class."""

    figures: list[Figure]
    durations: dict[str, Durations]


class Watch:
    """Counts from when it was made. For one thread at a time."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = ledger_db(home)
        connection = open_reader(self._path)
        try:
            self._tally = Tally(connection)
        finally:
            connection.close()

    def look(self) -> Figures:
        connection = open_reader(self._path)
        try:
            self._tally.advance(connection)
            offsets = {row[0]: row[1] for row in connection.execute("SELECT name, offset FROM journals")}
            rejected = connection.execute("SELECT count(*) FROM rejected").fetchone()[0]
        finally:
            connection.close()
        sizes = _sizes(spool_dir(self._home))
        lag = sum(max(0, size - offsets.get(name, 0)) for name, size in sizes.items())
        return Figures([*self._counts(), *_gauges(lag, sum(sizes.values()), rejected)], self._tally.durations)

    def _counts(self) -> list[Figure]:
        tally = self._tally
        return [
            Figure(
                "subluminal.calls",
                "Calls decided, by decision.",
                "{call}",
                "count",
                [((("decision", action),), count) for action, count in tally.decisions.items()],
            ),
            Figure(
                "subluminal.errors",
                "Calls that ended with an error, by class.",
                "{call}",
                "count",
                [((("class", name),), count) for name, count in tally.errors.items()],
            ),
        ]


def gauge(name: str, about: str, unit: str, value: float, labels: Labels = ()) -> Figure:
    return Figure(name, about, unit, "gauge", [(labels, value)])


def _gauges(lag: int, spool: int, rejected: int) -> list[Figure]:
    return [
        gauge("subluminal.ingest.lag", "Bytes of journals that are not in the ledger yet.", "By", lag),
        gauge("subluminal.spool", "Bytes of all journals.", "By", spool),
        gauge("subluminal.rejected.lines", "Lines that were no events, as the ledger keeps them.", "{line}", rejected),
    ]


def _sizes(spool: str) -> dict[str, int]:
    sizes = {}
    try:
        names = list_journals(spool)
    except OSError:
        return {}
    for name in names:
        try:
            sizes[name] = os.stat(os.path.join(spool, name)).st_size
        except OSError:  # taken in meanwhile
            pass
    return sizes
