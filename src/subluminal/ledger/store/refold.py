"""Schema 1 to 2: the rows of calls that were decided more than once, and the ids that clients gave their calls.

Under schema 1 the first decision of a call stood in its row; now the last one does. Only what the change of the rule
concerns is written: a row that was edited by hand before stays as it is, and `sub verify` still finds it. A run whose
record cannot be read is left alone for the same reason.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from subluminal.contracts.counts import Counts, is_error
from subluminal.ledger.fold import reading
from subluminal.ledger.fold.call import begin
from subluminal.ledger.fold.run import TypedCall, json_text
from subluminal.ledger.store.encoding import unpack_lines

_DECISION_COLUMNS = (
    *("decision", "rule_id", "severity", "reason_code", "summary", "backoff_ms", "decision_event"),
    *("would_action", "would_rule_id", "would_reason_code"),
)
_THIS_CALL = "WHERE call_id = ? AND run_id = ?"
_DECIDE = f"UPDATE tool_calls SET {', '.join(name + ' = ?' for name in _DECISION_COLUMNS)} {_THIS_CALL}"
_NAME = f"UPDATE tool_calls SET tool_use_id = ? {_THIS_CALL}"
_HINT = (
    "INSERT OR REPLACE INTO hints (id, call_id, hint_text, suggested_args_json, created_at, hint_kind, retry_advice)"
    f" SELECT id, call_id, ?, ?, ?, ?, ? FROM tool_calls {_THIS_CALL}"
)
_COUNT = (
    "UPDATE runs SET calls_allowed = calls_allowed + ?, calls_blocked = calls_blocked + ?,"
    " calls_throttled = calls_throttled + ?, errors_total = errors_total + ? WHERE run_no = ?"
)


class _Call(TypedCall):
    first: str | None = None  # the decision that stood under schema 1
    was_error = False  # and whether the call was counted as an error
    redecided = False


def refold(connection: sqlite3.Connection) -> None:
    for run_no, run_id in connection.execute("SELECT run_no, run_id FROM runs").fetchall():
        connection.execute("SAVEPOINT refold")
        try:
            _Refolded(connection, run_no, run_id).write()
        except Exception:  # zlib.error, BadEvent: the record is damaged
            connection.execute("ROLLBACK TO refold")
        connection.execute("RELEASE refold")


class _Refolded:
    """One run. Calls are written and forgotten as soon as they are complete."""

    def __init__(self, connection: sqlite3.Connection, run_no: int, run_id: str) -> None:
        self._connection = connection
        self._run_no = run_no
        self._run_id = run_id
        self._open: dict[str, _Call] = {}
        self._change = Counts()

    def write(self) -> None:
        segments = "SELECT first_n, lines FROM segments WHERE run_no = ? ORDER BY first_n"
        for first_n, stored in self._connection.execute(segments, (self._run_no,)):
            for n, line in enumerate(unpack_lines(stored), first_n):
                event = reading.read_event(line)
                if isinstance(event, reading.Start | reading.Decision | reading.End):
                    self._take(event, n)
        for call in self._open.values():
            self._settle(call)
        change = self._change
        figures = (change.allowed, change.blocked, change.throttled, change.errors)
        if any(figures):
            self._connection.execute(_COUNT, (*figures, self._run_no))

    def _take(self, event: Any, n: int) -> None:
        call = self._open.get(event.call.call_id)
        if call is None:
            call = self._open[event.call.call_id] = begin(event, _Call)
        if isinstance(event, reading.Start):
            call.start(event, n)
        elif isinstance(event, reading.Decision):
            call.redecided |= call.decide(event, n) and call.first is not None
            call.first = call.first or event.decision.action
        elif call.end(event, n):
            call.was_error = is_error(call.first, event.status)
        if call.is_complete:
            self._settle(self._open.pop(call.call_id))

    def _settle(self, call: _Call) -> None:
        here = (call.call_id, self._run_id)
        if call.tool_use_id is not None:
            self._connection.execute(_NAME, (call.tool_use_id, *here))
        self._change.errors += is_error(call.decision, call.status) - call.was_error
        if call.redecided and call.decision is not None:
            self._change.decided_again(call.first, call.decision)
            self._connection.execute(_DECIDE, (*(getattr(call, name) for name in _DECISION_COLUMNS), *here))
            hint = call.hint
            if hint is not None:
                args = json_text(hint.suggested_args)
                words = (hint.hint_text, args, call.hint_at, hint.hint_kind, hint.retry_advice)
                self._connection.execute(_HINT, (*words, *here))
