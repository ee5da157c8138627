"""Figures as the text that Prometheus reads (exposition format 0.0.4): a machine's page and a collector's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from subluminal.contracts.figures import Figure, Histogram, Labels, Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What Prometheus writes at the end of a name for a unit; those in braces are counted things and have none.
_UNITS = {"By": "_bytes", "s": "_seconds"}


def metrics_text(readings: Iterable[Reading]) -> str:
    return "\n".join(line for reading in readings for line in _lines(reading)) + "\n"


def _lines(reading: Reading) -> Iterator[str]:
    figure = reading.figure
    name = _name(figure)
    yield f"# HELP {name} {_escaped(figure.about)}"
    yield f"# TYPE {name} {'counter' if figure.kind == 'count' else figure.kind}"
    for labels, value in reading.points:
        if isinstance(value, Histogram):
            yield from _histogram(name, labels, value)
        else:
            yield f"{name}{_labels(labels)} {_number(value)}"


def _name(figure: Figure) -> str:
    return figure.name.replace(".", "_") + _UNITS.get(figure.unit, "") + ("_total" if figure.kind == "count" else "")


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f"{name}_bucket{_labels((*labels, ('le', bound)))} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.sum)}"
    yield f"{name}_count{_labels(labels)} {sum(histogram.counts)}"


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name.replace(".", "_")}="{_escaped(value, quote=True)}"' for name, value in labels)
    return f"{{{told}}}" if told else ""


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
