"""What a collector has counted since it started (`contracts.figures` names it)."""

from __future__ import annotations

import threading

from subluminal.contracts.figures import Figure, Histogram, Reading
from subluminal.ledger.http.metrics import metrics_text


class Metrics:
    """Thread-safe. A label is one (name, value)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Figure, dict[tuple[tuple[str, str], ...], float]] = {}
        self._histograms: dict[Figure, Histogram] = {}

    def count(self, figure: Figure, amount: float = 1, *label: tuple[str, str]) -> None:
        with self._lock:
            values = self._values.setdefault(figure, {})
            values[label] = values.get(label, 0) + amount

    def set(self, figure: Figure, value: float) -> None:
        with self._lock:
            self._values[figure] = {(): value}

    def observe(self, figure: Figure, value: float) -> None:
        with self._lock:
            self._histograms.setdefault(figure, Histogram(figure.bounds)).add(value)

    def text(self) -> str:
        with self._lock:
            readings = [Reading(figure, list(values.items())) for figure, values in self._values.items()]
            readings += [Reading(figure, [((), whole)]) for figure, whole in self._histograms.items()]
            return metrics_text(sorted(readings, key=lambda reading: reading.figure.name))
