"""The counts of a run, for reading: a call that several doors saw is one.

The row of the run counts what each of its producers did, as their events say; `sub verify` proves it so.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from subluminal.contracts.counts import COUNTERS, is_error

_OTHERS = (
    "SELECT c.decision, c.status, count(*) FROM joined j CROSS JOIN tool_calls c ON c.id = j.id"
    " WHERE j.run_id = ? GROUP BY c.decision, c.status"
)


def counted_once(connection: sqlite3.Connection, run: dict[str, Any]) -> dict[str, Any]:
    for decision, status, calls in connection.execute(_OTHERS, (run["run_id"],)):
        run["calls_total"] -= calls
        if decision is not None:
            run[f"calls_{COUNTERS[decision]}"] -= calls
        if is_error(decision, status):
            run["errors_total"] -= calls
    return run
