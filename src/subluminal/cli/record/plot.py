"""Calls over time as text: bars for `sub query --plot`, a spark line for each of `sub runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.cli.render.columns import terminal_columns
from subluminal.cli.render.moments import duration, time_of_step
from subluminal.cli.render.output import paint
from subluminal.contracts.filters import Filters

if TYPE_CHECKING:
    from subluminal.cli.record.source import Source

Row = dict[str, Any]

# The coarsest step that still gives a few bars; the finest is the last.
_STEPS = ("day", "hour", "minute")
_FEW = 4
_MOST = 60
_BAR_CELLS = 40
_LEVELS = "▁▂▃▄▅▆▇█"
_PARTS_A_CELL = 3
_WITH_ZONE = {"day": "T00:00:00Z", "hour": ":00:00Z", "minute": ":00Z"}


def over_time(ledger: Source, filters: Filters) -> list[Row]:
    """Counts and latencies for each step of time that has calls, oldest first; at most the latest sixty."""
    rows, step = ledger.group(filters, by=[_STEPS[0]], limit=100_000), _STEPS[0]
    for finer in _STEPS[1:]:
        found = ledger.group(filters, by=[finer], limit=100_000) if len(rows) < _FEW else []
        if not 0 < len(found) <= _MOST:
            break
        rows, step = found, finer
    rows.sort(key=lambda row: str(row[step]))
    return [
        {"time": f"{row[step]}{_WITH_ZONE[step]}", "step": step, **{k: v for k, v in row.items() if k != step}}
        for row in rows[-_MOST:]
    ]


def bars(rows: list[Row]) -> list[str]:
    """What was refused stands at the end of a bar, in another shade."""
    most = max(row["calls"] for row in rows)
    room = max(10, min(_BAR_CELLS, (terminal_columns() or 100) - 40))
    head = f"{'TIME':<11}  {'CALLS':<{room}}  {'CALLS':>6}  {'REFUSED':>7}  {'P95':>7}"
    lines = [paint(head, None, bold=True)]
    for row in rows:
        refused = row["blocked"] + row["throttled"]
        cells = max(1, round(row["calls"] / most * room))
        dark = min(cells, max(1, round(refused / most * room))) if refused else 0
        bar = paint("█" * (cells - dark), "green") + paint("▒" * dark, "red") + " " * (room - cells)
        when = time_of_step(row["time"], row["step"])
        p95 = duration(row["latency_ms_p95"])
        lines.append(f"{when:<11}  {bar}  {row['calls']:>6}  {refused:>7}  {p95:>7}")
    return lines


def spark(parts: list[int] | None) -> str:
    """When in its time a run called its tools (`ledger.read.sparks`); empty for fewer than two calls."""
    if parts is None or sum(parts) < 2:
        return ""
    counts = [sum(parts[at : at + _PARTS_A_CELL]) for at in range(0, len(parts), _PARTS_A_CELL)]
    most = max(counts)
    return "".join(" " if not n else _LEVELS[(n * len(_LEVELS) - 1) // most] for n in counts)
