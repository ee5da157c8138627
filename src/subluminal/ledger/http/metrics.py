"""Figures as the text that Prometheus reads (exposition format 0.0.4)."""

from __future__ import annotations

from itertools import accumulate

from subluminal.ledger.read.figures import Figure, Figures, Labels
from subluminal.ledger.read.tally import BOUNDS_S, Durations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What Prometheus writes at the end of a name for a unit; those in braces are counted things and have none.
_UNITS = {"By": "_bytes", "s": "_seconds"}
_DURATION = "mcp_client_operation_duration_seconds"


def metrics_text(watched: Figures) -> str:
    lines = [line for figure in watched.figures for line in _figure(figure)]
    if watched.durations:
        lines += [f"# HELP {_DURATION} How long MCP tool calls took.", f"# TYPE {_DURATION} histogram"]
        lines += [line for error, one in sorted(watched.durations.items()) for line in _durations(error, one)]
    return "\n".join(lines) + "\n"


def _figure(figure: Figure) -> list[str]:
    name = figure.name.replace(".", "_") + _UNITS.get(figure.unit, "") + ("_total" if figure.kind == "count" else "")
    kind = "counter" if figure.kind == "count" else "gauge"
    head = [f"# HELP {name} {_escaped(figure.about)}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{_labels(labels)} {_number(value)}" for labels, value in figure.points]


def _durations(error: str, durations: Durations) -> list[str]:
    own: Labels = (("mcp_method_name", "tools/call"), *((("error_type", error),) if error else ()))
    bounds = [*(_number(bound) for bound in BOUNDS_S), "+Inf"]
    below = zip(bounds, accumulate(durations.counts), strict=True)
    lines = [f"{_DURATION}_bucket{_labels((*own, ('le', bound)))} {count}" for bound, count in below]
    return [
        *lines,
        f"{_DURATION}_sum{_labels(own)} {_number(durations.sum_s)}",
        f"{_DURATION}_count{_labels(own)} {durations.count}",
    ]


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in labels) + "}" if labels else ""


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
