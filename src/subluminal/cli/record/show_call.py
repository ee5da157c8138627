"""One call (`ledger.read.description`) drawn for a person."""

from __future__ import annotations

from typing import Any

from subluminal.cli.record.show_run import door
from subluminal.cli.render.call_lines import is_told, state_word, wrapped
from subluminal.cli.render.columns import PIPE_CELLS, cut, pad
from subluminal.cli.render.moments import date_and_clock, duration, short_duration
from subluminal.cli.render.output import paint
from subluminal.cli.render.rows import json_text
from subluminal.reports.printable import printable

Row = dict[str, Any]

_MAX_PREVIEW_LINES = 60
_FACT_CELLS = 11
# What a policy without a hint of its own says in the words of the reason.
_ADVICE = ("hint", "retry")


def lines(call: Row, columns: int | None) -> list[str]:
    word, colour = state_word(call)
    found = [paint(f"call {printable(call['call_id'])}  ", None, bold=True) + paint(word, colour)]
    room = None if columns is None else columns - _FACT_CELLS + 7
    told: list[str] = []
    for name, text in _facts(call):
        if not text or (name in _ADVICE and is_told(text, told)):
            continue
        told.append(text)
        first, *more = wrapped(printable(" ".join(text.split())), room)
        found.append(f"  {pad(name, _FACT_CELLS)} {first}")
        found += [" " * (_FACT_CELLS + 3) + line for line in more]
    for title, name in (("arguments", "args_preview"), ("result", "result_preview")):
        if call[name]:
            found += [paint(title, None, bold=True), *_preview(call[name], columns)]
    return found


def _facts(call: Row) -> list[tuple[str, str]]:
    decision, rule_id, policy = call["decision"], call["rule_id"], call["policy"]
    hint = call["hint"] or {}
    return [
        ("tool", f"{call['server_name']}/{call['tool_name']}"),
        ("run", f"{call['run_id']} ({call['agent_id']}, {call['client']}, {call['env']})"),
        ("started", _time(call["created_at"])),
        ("ended", _time(call["ended_at"])),
        ("decision", _decision(decision, rule_id, call["severity"])),
        ("why", f"{call['reason_code']}: {call['summary']}" if call["reason_code"] else ""),
        ("would", _would(call)),
        ("backoff", duration(call["backoff_ms"]) if call["backoff_ms"] else ""),
        ("hint", hint.get("hint_text") or ""),
        ("try", json_text(hint["suggested_args"]) if hint.get("suggested_args") is not None else ""),
        ("retry", hint.get("retry_advice") or ""),
        ("policy", f"{policy['policy_id']} {policy['policy_version']} {policy['policy_hash']}" if policy else ""),
        ("rule", json_text(call["rule"]) if call["rule"] else ""),
        ("status", _status(call)),
        ("latency", _latency(call)),
        ("size", _size(call)),
        ("args_hash", call["args_hash"] or ""),
        ("args bytes", f"SHA-256 {call['args_stream_hash']}" if call["args_stream_hash"] else ""),
        ("result", f"SHA-256 {call['result_stream_hash']}" if call["result_stream_hash"] else ""),
        ("ambiguous", call["ambiguous"] or ""),
        ("continues", call["continues"] or ""),
        ("observed", "it had been carried out elsewhere when it was judged" if call["observed"] else ""),
        ("tags", ", ".join(call["tags"])),
        ("masked", ", ".join(call["redaction_flags"])),
        ("source", f"{call['transport'] or 'transport unknown'}, call {call['seq'] or '?'}, shim {call['shim_id']}"),
        ("seen by", ", ".join(map(door, call["doors"])) if len(call["doors"]) > 1 else ""),
        ("client ids", ", ".join(f"{name} {value}" for name, value in (call["call_context"] or {}).items())),
    ]


def _time(ts: str | None) -> str:
    return f"{date_and_clock(ts)} ({ts})" if ts else ""


def _decision(decision: str | None, rule_id: str | None, severity: str | None) -> str:
    if decision is None:
        return "not known yet"
    by = f"by rule {rule_id}" if rule_id else "by no rule"
    return f"{decision} {by}, severity {severity}"


def _would(call: Row) -> str:
    if not call["would_action"]:
        return ""
    return f"{call['would_action']} by rule {call['would_rule_id']} ({call['would_reason_code']}), had it been enforced"


def _status(call: Row) -> str:
    if call["status"] is None:
        return "still running, or its end was never heard of"
    parts = [part for part in (call["error_class"], call["error_code"]) if part]
    refused = call["decision"] not in (None, "ALLOW")  # then the reason has been told
    message = f": {call['error_message']}" if call["error_message"] and not refused else ""
    error = " ".join(parts) + message
    return str(call["status"]) + (f" ({error})" if error else "")


def _latency(call: Row) -> str:
    if call["latency_ms"] is None:
        return ""
    parts = [f"{duration(call['latency_ms'])} at the server"]
    if call["overhead_us"] is not None:
        parts.append(f"{short_duration(call['overhead_us'])} in the shim (judging, passing on both ways)")
    if call["waited_ms"]:
        parts.append(f"{duration(call['waited_ms'])} between its legs")
    return ", ".join(parts)


def _size(call: Row) -> str:
    sizes = [
        f"{call[name]} bytes {way}"
        for name, way in (("bytes_in", "in"), ("bytes_out", "out"))
        if call[name] is not None
    ]
    return ", ".join(sizes) + ("; a preview was truncated" if call["preview_truncated"] else "")


def _preview(text: str, columns: int | None) -> list[str]:
    """JSON laid out, anything else by its lines; long ones are cut, `--json` has them whole."""
    import json

    try:
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        pass
    room = (PIPE_CELLS if columns is None else columns) - 2
    shown = text.split("\n", _MAX_PREVIEW_LINES)
    found = ["  " + cut(printable(line.expandtabs(4)), room) for line in shown[:_MAX_PREVIEW_LINES]]
    return found if len(shown) <= _MAX_PREVIEW_LINES else [*found, "  … (--json shows all of it)"]
