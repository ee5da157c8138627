"""Which runs, calls and events someone who follows the ledger wants.

An event is answered for by its call, as the ledger has it, but only by what was known when the event came: a condition
on the decision holds a call's events back until it is decided, one on its status until it has ended. An event of no
call (`run_start`, `policy_loaded`) is wanted where only conditions on its run were given. Light enough for `sub tail`.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from subluminal.contracts.filters import CALL, COLUMNS, DECISION, END, EVENT, PREVIEWS, RUN, Filters, known_at
from subluminal.ledger.read.plan import inflated

if TYPE_CHECKING:
    from subluminal.contracts.filters import Row

_RUN_COLUMNS = [name for name, known_from in COLUMNS.items() if known_from == RUN]
_CALL_COLUMNS = [name for name, known_from in COLUMNS.items() if known_from != RUN and name not in PREVIEWS]
_SELECT_RUN = f"SELECT {', '.join(_RUN_COLUMNS)} FROM runs WHERE run_id = ?"
_SELECT_CALL = (
    f"SELECT id, {', '.join(_CALL_COLUMNS)} FROM tool_calls WHERE call_id = ? AND run_id = ?"
    " AND producer_no = (SELECT producer_no FROM producers WHERE shim_id = ? AND run_id = ?)"
)
_SELECT_PREVIEWS = f"SELECT {', '.join(PREVIEWS)} FROM previews WHERE id = ?"


class Wanted:
    def __init__(self, filters: Filters) -> None:
        self._events = filters.known_from(EVENT)
        self._runs = filters.known_from(RUN)
        self._calls = filters.known_from(CALL, DECISION, END)

    def run(self, connection: sqlite3.Connection, run_id: str) -> bool:
        if not self._runs.asked:
            return True
        found = connection.execute(_SELECT_RUN, (run_id,)).fetchone()
        return found is not None and self._runs.match(dict(zip(_RUN_COLUMNS, found, strict=True)))

    def call(self, row: Row) -> bool:
        """Of a run that is wanted."""
        return self._calls.match(row)

    def event(self, connection: sqlite3.Connection, event: dict[str, Any]) -> bool:
        if not self._events.match(event) or not self.run(connection, event["run_id"]):
            return False
        if not self._calls.asked:
            return True
        call = event.get("call")
        # An event type of a newer interface pack may use the name for anything.
        call_id = call.get("call_id") if isinstance(call, dict) else None
        row = self._row(connection, event, call_id) if isinstance(call_id, str) else None
        return row is not None and self._calls.match(known_at(row, event["type"]))

    def _row(self, connection: sqlite3.Connection, event: dict[str, Any], call_id: str) -> Row | None:
        run_id = event["run_id"]
        found = connection.execute(_SELECT_CALL, (call_id, run_id, event["source"]["shim_id"], run_id)).fetchone()
        if found is None:
            return None
        row = dict(zip(_CALL_COLUMNS, found[1:], strict=True))
        if "text" in self._calls.asked:
            previews = connection.execute(_SELECT_PREVIEWS, (found[0],)).fetchone() or (None,) * len(PREVIEWS)
            row.update(zip(PREVIEWS, map(inflated, previews), strict=True))
        return row
