"""One call as tail and show know it: the columns of the ledger, filled in event by event.

The same facts as the fold of the ledger (`ledger/projection.py`), but of what has arrived and without its types, which
take longer to import than `sub tail` may take to start.
"""

from __future__ import annotations

from typing import Any

from subluminal.ledger.read.ledger import CALL_COLUMNS

Event = dict[str, Any]
Row = dict[str, Any]

STARTED, DECIDED, ENDED = "started", "decided", "ended"
# Beside the columns of the ledger.
_MORE = ("args_preview", "result_preview", "hint")
_COLUMNS = [name for name in CALL_COLUMNS if name != "tags_json"]


class CallState:
    __slots__ = ("row", "state")

    def __init__(self, row: Row, state: str) -> None:
        self.row = row
        self.state = state

    @property
    def key(self) -> tuple[str, str]:
        return self.row["run_id"], self.row["call_id"]

    def as_json(self) -> Row:
        return {"state": self.state, **self.row}


def from_row(row: Row) -> CallState:
    """From `Ledger.call`."""
    state = ENDED if row["status"] else DECIDED if row["decision"] else STARTED
    return CallState({name: row.get(name) for name in (*_COLUMNS, *_MORE, "tags")}, state)


def from_event(event: Event) -> CallState:
    """The first that is heard of a call; `apply` fills in the rest."""
    row: Row = dict.fromkeys((*_COLUMNS, *_MORE))
    call = event["call"]
    row.update(run_id=event["run_id"], preview_truncated=False, created_at=event["ts"], tags=[])
    for name in ("call_id", "server_name", "tool_name", "args_hash"):
        row[name] = call.get(name) or ""
    return CallState(row, STARTED)


def apply(call: CallState, event: Event) -> bool:
    """True if the event says something about the call."""
    fill = _FILLS.get(event["type"])
    if fill is None:
        return False
    fill(call, event)
    return True


def _start(call: CallState, event: Event) -> None:
    row, said = call.row, event["call"]
    row["created_at"] = event["ts"]
    for name in ("bytes_in", "seq", "transport", "args_stream_hash", "ambiguous", "continues"):
        row[name] = said.get(name)
    row["tags"] = said.get("tags") or []
    _preview(row, said.get("preview"), "args_preview")


def _decision(call: CallState, event: Event) -> None:
    row, said = call.row, event["decision"]
    would = said.get("would") or {}
    row.update(
        decision=said["action"],
        rule_id=said.get("rule_id"),
        severity=said.get("severity"),
        reason_code=said["explain"]["reason_code"],
        summary=said["explain"]["summary"],
        backoff_ms=said.get("backoff_ms"),
        would_action=would.get("action"),
        would_rule_id=would.get("rule_id"),
        would_reason_code=(would.get("explain") or {}).get("reason_code"),
    )
    if said.get("hint"):
        row["hint"] = said["hint"]
    if call.state == STARTED:
        call.state = DECIDED


def _hint(call: CallState, event: Event) -> None:
    if not call.row["hint"]:
        call.row["hint"] = event["hint"]


def _end(call: CallState, event: Event) -> None:
    row, error = call.row, event.get("error") or {}
    code = error.get("code")
    row.update(
        status=event["status"],
        latency_ms=event["latency_ms"],
        bytes_out=event["bytes_out"],
        ended_at=event["ts"],
        error_class=error.get("class"),
        error_message=error.get("message"),
        error_code=None if code is None else str(code),
    )
    for name in ("overhead_us", "waited_ms", "result_stream_hash"):
        row[name] = event.get(name)
    _preview(row, event.get("preview"), "result_preview")
    call.state = ENDED


def _preview(row: Row, preview: Any, name: str) -> None:
    if preview:
        row[name] = preview.get(name)
        row["preview_truncated"] = row["preview_truncated"] or bool(preview.get("truncated"))


_FILLS = {
    "tool_call_start": _start,
    "tool_call_decision": _decision,
    "hint_issued": _hint,
    "tool_call_end": _end,
}
