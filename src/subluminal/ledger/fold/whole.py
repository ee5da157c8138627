"""Most calls are told by three events in a row and hold nothing but what every call has: their columns in one go.

    columns = whole(start, decision, end, n)      by COLUMNS, as `Call.start`, `decide` and `end` would fill them in

None: there is more to this call, or they are not of one. The events are those of `familiar`: moments in normal form.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

COLUMNS = (
    "call_id", "server_name", "tool_name", "args_hash", "created_at", "bytes_in", "seq", "transport", "start_event",
    "decision", "severity", "reason_code", "summary", "decision_event", "status", "latency_ms", "bytes_out", "ended_at",
    "end_event", "preview_truncated", "rule_id", "overhead_us",
)  # fmt: skip


def whole(start: Any, decision: Any, end: Any, n: int) -> tuple[Any, ...] | None:
    """`n`: the number of the start in its run. The columns that come last may be None."""
    call, decided = start.call, decision.decision
    args, result = call.preview, end.preview
    call_id = call.call_id
    if (
        decision.call.call_id != call_id
        or end.call.call_id != call_id
        or end.error is not UNSET
        or call.call_context is not UNSET
        or call.tags is not UNSET
        or call.continues is not UNSET
        or call.observed is not UNSET
        or call.ambiguous is not UNSET
        or call.args_stream_hash is not UNSET
        or args.args_preview is UNSET
        or args.redaction_flags is not UNSET
        or decided.would is not UNSET
        or decided.hint is not UNSET
        or decided.backoff_ms is not UNSET
        or result.result_preview is UNSET
        or result.redaction_flags is not UNSET
        or end.result_stream_hash is not UNSET
        or end.waited_ms is not UNSET
    ):
        return None
    explain = decided.explain
    return (
        call_id, call.server_name, call.tool_name, call.args_hash, start.ts, call.bytes_in, call.seq, call.transport, n,
        decided.action, decided.severity, explain.reason_code, explain.summary, n + 1, end.status, end.latency_ms,
        end.bytes_out, end.ts, n + 2, int(args.truncated or result.truncated), decided.rule_id,
        None if end.overhead_us is UNSET else end.overhead_us,
    )  # fmt: skip
