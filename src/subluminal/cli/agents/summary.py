"""One line at the end of `sub run`: what its calls came to. From the ledger, if that is there soon enough."""

from __future__ import annotations

import sqlite3

from subluminal.cli.render.moments import short_duration
from subluminal.contracts.errors import SubluminalError
from subluminal.contracts.short_ids import short
from subluminal.ledger.daemon.sync import sync
from subluminal.ledger.read.ledger import open_ledger
from subluminal.reports.printable import count, printable

# Nobody waits longer for a prompt.
_PATIENCE_S = 1.0
_OVERHEAD = "SELECT sum(overhead_us), count(overhead_us) FROM tool_calls WHERE run_id = ?"


def summary(run_id: str) -> str:
    name = printable(short(run_id))
    try:
        caught_up = sync(_PATIENCE_S)
        with open_ledger() as ledger:
            run = ledger.run(run_id)
            total_us, measured = ledger.connection.execute(_OVERHEAD, (run_id,)).fetchone()
    except (SubluminalError, sqlite3.Error):
        return f"run {name} has ended; what it did: sub show {name}"
    if not caught_up:
        return f"run {name} has ended, and its record is still being taken in: sub show {name}"
    if not run["calls_total"]:
        return f"run {name}: no tool was called through Subluminal"
    parts = [count(run["calls_total"], "call")]
    refused = run["calls_blocked"] + run["calls_throttled"]
    parts.append(f"{refused} refused" if refused else "none refused")
    if run["errors_total"]:
        parts.append(count(run["errors_total"], "error"))
    if measured:
        parts.append(f"{short_duration(total_us // measured)} added to each by the shims")
    return f"run {name}: {', '.join(parts)}; sub show {name}"
