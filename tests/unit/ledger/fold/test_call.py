"""The fold of one call, from typed events and from plain ones."""

from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import HealthCheck, given, settings

from harness.histories import histories
from harness.ledger import EventMaker
from subluminal.contracts import events as ev
from subluminal.ledger.fold.call import CALL_COLUMNS, Call, Plain, begin
from subluminal.ledger.fold.reading import read_event
from subluminal.ledger.fold.run import TypedCall


def plain(lines: list[bytes]) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for line in lines:
        event = Plain(json.loads(line))
        if event["type"].startswith("tool_call_"):
            calls.setdefault(event.call.call_id, begin(event, Call)).hear(event)
        elif event["type"] == "hint_issued" and event.call.call_id in calls:
            calls[event.call.call_id].hear(event)
    return calls


def typed(lines: list[bytes]) -> dict[str, TypedCall]:
    calls: dict[str, TypedCall] = {}
    for event in map(read_event, lines):
        if isinstance(event, ev.ToolCallStart | ev.ToolCallDecision | ev.ToolCallEnd):
            call = calls.setdefault(event.call.call_id, begin(event, TypedCall))
            if isinstance(event, ev.ToolCallStart):
                call.start(event)
            elif isinstance(event, ev.ToolCallDecision):
                call.decide(event)
            else:
                call.end(event)
        elif isinstance(event, ev.HintIssued) and event.call.call_id in calls:
            calls[event.call.call_id].hinted(event.hint, event.ts)
    return calls


def facts(call: Call) -> dict[str, object]:
    hint = (
        call.hint
        if isinstance(call.hint, dict | None)
        else {n: getattr(call.hint, n) for n in ev.Hint.__struct_fields__}
    )
    names = (*CALL_COLUMNS, "tags", "args_preview", "result_preview", "redaction_flags", "hint_at", "state")
    return {**{name: getattr(call, name) for name in names}, "hint": hint}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_typed_and_plain_events_give_the_same_call(lines: list[bytes]) -> None:
    assert {key: facts(call) for key, call in typed(lines).items()} == {
        key: facts(call) for key, call in plain(lines).items()
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_hearing_everything_again_changes_nothing(lines: list[bytes]) -> None:
    once = {key: facts(call) for key, call in plain(lines).items()}
    assert {key: facts(call) for key, call in plain([*lines, *lines]).items()} == once


def test_everything_that_a_plain_event_can_tell_is_read_as_a_typed_one_is() -> None:
    maker = EventMaker("run-1", "shim-1")
    start = json.loads(maker.start())
    start["call"] |= {"tags": [], "args_stream_hash": "s", "ambiguous": "", "continues": "c"}
    start["call"]["call_context"] = {"threadId": "t", "callId": "call_9", "itemId": "item_2"}
    start["call"]["preview"] |= {"truncated": True, "redaction_flags": ["b", "a"]}
    start["ts"] = "2026-01-01T00:00:00Z"
    end = json.loads(
        maker.end("ERROR", error={"class": "timeout", "code": 0, "message": ""}, overhead_us=0, waited_ms=0)
    )
    end["preview"]["redaction_flags"] = ["c", "a"]
    lines = [json.dumps(start).encode(), maker.decision(backoff_ms=0), json.dumps(end).encode()]
    (one,), (other,) = plain(lines).values(), typed(lines).values()
    assert facts(one) == facts(other)
    assert (one.tool_use_id, one.created_at, one.backoff_ms, one.overhead_us) == (
        "call_9",
        "2026-01-01T00:00:00.000Z",
        0,
        0,
    )
    assert (one.error_class, one.error_code, one.error_message, one.ambiguous) == ("timeout", "0", "", "")
    assert (one.redaction_flags, one.preview_truncated, one.tags) == (["a", "b", "c"], 1, [])


def test_a_decision_that_was_overtaken_does_not_come_back() -> None:
    maker = EventMaker("run-1", "shim-1")
    start, first, last = maker.start(), maker.decision(), maker.decision("BLOCK")
    for lines in ([start, first, last, first], [start, last, first]):
        (call,) = plain(lines).values()
        assert call.decision == "BLOCK"


def test_the_fold_of_plain_events_imports_nothing_heavy() -> None:
    heavy = ("msgspec", "asyncio", "click", "sqlite3")
    script = f"import sys; import subluminal.ledger.fold.joined; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
