"""A call folded from events as they were read, without their types, in the words of the ledger's rows."""

from __future__ import annotations

from subluminal.ledger.fold.call import Call, Plain, begin
from subluminal.ledger.read.ledger import CALL_COLUMNS, Row

# What stands beside the columns of the ledger.
_COLUMNS = [name for name in CALL_COLUMNS if name != "tags_json"] + ["args_preview", "result_preview", "hint"]


def as_row(call: Call) -> Row:
    row = {name: getattr(call, name) for name in _COLUMNS}
    row["preview_truncated"] = bool(call.preview_truncated)
    row["observed"] = bool(call.observed)
    row["tags"] = call.tags or []
    return row


def recall(row: Row) -> Call:
    """From `Ledger.call`."""
    events = [Plain(event) for event in row["events"]]
    call = begin(events[0], Call)
    for event in events:
        call.hear(event)
    if row["hint"] is not None:
        call.hinted(row["hint"], call.created_at)
    return call
