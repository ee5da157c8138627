"""A run with everything that the record tells of it, as one value: what a page without a daemon needs.

From events alone, in the words of the HTTP API (`ledger.http.schemas`), so that a bundle does as well as a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from subluminal.contracts.errors import UsageError
from subluminal.ledger.fold.call import Plain
from subluminal.ledger.fold.joined import JoinedCall
from subluminal.ledger.read.call_row import as_row
from subluminal.ledger.read.description import rule_of
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.timeline import Builder, doors

# What a browser opens within a second or two, and somebody still reads.
MAX_CALLS = 10_000
_OF_RUN = ("agent_id", "client", "env", "principal", "mode")
_OF_CALL = ("tool_call_start", "tool_call_decision", "tool_call_end")
Rule = Callable[[Row | None, str | None], Row | None]


def whole_run(ledger: Ledger, run_id: str) -> Row:
    run = ledger.run(run_id)
    if run["calls_total"] > MAX_CALLS:
        hint = "Export it as a bundle (without --html): `sub ingest` takes it anywhere, and `sub ui` shows it there."
        raise UsageError(f"Run {run_id} has {run['calls_total']:,} calls; a page holds {MAX_CALLS:,}.", hint=hint)
    return gathered(run, ledger.timeline(run_id), lambda policy, rule_id: rule_of(ledger, policy, rule_id))


def gathered(run: Row, events: Iterable[Row], rule: Rule) -> Row:
    """`run`, `timeline` and `calls`, the newest first."""
    builder, by_call = Builder(), dict[tuple[str, str], list[Row]]()
    for event in events:
        builder.take(Plain(event))
        call = event.get("call")
        if event["type"] in _OF_CALL and isinstance(call, dict):
            by_call.setdefault((event["source"]["shim_id"], call["call_id"]), []).append(event)
    calls = [_call(run, joined, by_call, rule) for joined in builder.joined()]
    timeline = {"items": [_light(item) for item in builder.items()], "whole": True}
    return {"run": run, "timeline": timeline, "calls": calls[::-1]}


def _light(item: Row) -> Row:
    """Previews stand with their call."""
    return {name: value for name, value in item.items() if name not in ("args_preview", "result_preview", "hint")}


def _call(run: Row, joined: JoinedCall, by_call: dict[tuple[str, str], list[Row]], rule: Rule) -> Row:
    call = joined.standing
    events = by_call.get((call.shim_id, call.call_id), [])
    told = {event["type"]: event for event in events}
    decided, started = told.get("tool_call_decision"), told.get("tool_call_start")
    policy = decided["decision"]["policy"] if decided else None
    return {
        **as_row(call),
        "shim_id": call.shim_id,
        "redaction_flags": call.redaction_flags or [],
        "events": events,
        **{name: run[name] for name in _OF_RUN},
        "policy": policy,
        "rule": rule(policy, call.rule_id),
        "call_context": started["call"].get("call_context") if started else None,
        "doors": doors(joined),
        "cursor": f"{call.shim_id}/{call.call_id}",
    }
