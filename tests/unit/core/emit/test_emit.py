"""Templates write the bytes that the contract's own types would write, whatever text stands in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.contracts.decision import Decision, Hint, PolicyRef
from subluminal.contracts.events import decode_event, encode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.jsontext import quote
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.emit.emitter import Emitter

WALL = 1_765_800_896_789
ODD = [
    "plain",
    "",
    'quo"te',
    "back\\slash",
    "new\nline\r\t\x00\x1f\x7f",
    "é ü",
    "\u2028\u2029\x85",
    "😀",
    "</script>",
    "\ufeff",
    "%s {} {0}",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def lines(text: str, number: int = 3) -> list[str]:
    """One event of every type, with this text wherever text may stand."""
    policy = PolicyRef(text, text, "0" * 64)
    emitter = Emitter(
        Identity(text, text, "claude", "ci", text, {"user": text, "n": [number, None, True, {"deep": text}]}),
        Source(text, text, text),
    )
    call = ToolCall(
        text,
        text,
        b"{}",
        number,
        "mcp_stdio",
        {"callId": text},
        args_stream_hash="a" * 64,
        args_raw_hash="b" * 64,
        ambiguous=text,
        continues=text,
        timeout_ms=number,
        observed=True,
    )
    hint = Hint(text, "BUDGET", {"a": text, "b": [1, {"c": number}]}, text)
    would = Decision("BLOCK", None, "critical", text, text, policy=policy)
    shown = (quote(text), True, (text, "token"))
    decisions = [
        Decision(policy=policy, would=would, summary=text),
        Decision("THROTTLE", text, "warn", text, text, policy=policy, backoff_ms=number),
        Decision("REJECT_WITH_HINT", text, "warn", text, text, policy=policy, hint=hint),
        Decision("TERMINATE_RUN", text, "warn", text, text, policy=policy, terminate=(text, text)),
    ]
    summary = dict.fromkeys(
        ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total", "duration_ms"), number
    )
    health = dict.fromkeys(("uptime_ms", "calls_total", "calls_pending", "events_held", "previews_shed"), number)
    trip: dict[str, Any] = {"rule_id": text, "reason_code": text, "scope": "run", "threshold": number, "window_ms": 10}
    opened = emitter.run_start(WALL, "guardrails", [policy, policy], {"server_name": text})
    nothing, _ = emitter.tool_call_start(WALL + 1, call, "c1", "b" * 64, 1 + number, (None, False, ()), [text, "b"])
    plain = (quote(text), False, ())
    started, ref = emitter.tool_call_start(WALL + 1, call, "c1", "b" * 64, 1 + number, plain, [])
    return [
        opened,
        nothing,
        started,
        emitter.tool_call_end(WALL + 1, ref, "OK", number, number, plain),
        *(emitter.tool_call_decision(WALL + 2, ref, decision) for decision in decisions),
        emitter.tool_call_end(WALL + 3, ref, "OK", number, number, shown, None, "c" * 64, 5, 6),
        emitter.tool_call_end(
            WALL + 3, ref, "ERROR", number, number, shown, {"class": "transport", "message": text, "code": text}
        ),
        emitter.hint_issued(WALL, "c1", hint),
        emitter.policy_loaded(WALL, policy, False, text, text),
        emitter.secret_injection(WALL, text, text, "env", True),
        emitter.settings_change(WALL, text, True, text),
        emitter.model_message(WALL, {"message_id": text, "input_tokens": number, "cached_in_input": True, "api": text}),
        emitter.shim_health(WALL, health),
        emitter.breaker_trip(WALL, ref, trip),
        emitter.run_end(WALL, "SUCCEEDED", summary),
        emitter.run_end(WALL, "SUCCEEDED", summary, of_run=True),
    ]


def check(text: str, number: int = 3) -> None:
    for line in lines(text, number):
        raw = line.encode()
        assert raw.count(b"\n") == 1 and raw.endswith(b"\n"), "one line, whatever the text"
        assert encode_event(decode_event(raw)) == raw


@pytest.mark.parametrize("text", ODD)
def test_every_event_is_byte_for_byte_what_the_contract_writes(text: str) -> None:
    check(text)


@given(TEXT, st.integers(0, 2**60))
def test_that_holds_for_any_text_and_number(text: str, number: int) -> None:
    check(text, number)


def test_events_are_numbered_from_one_without_a_gap() -> None:
    seqs = [decode_event(line.encode()).source.seq for line in lines("x")]
    assert seqs == list(range(1, len(seqs) + 1))


def test_milliseconds_follow_within_one_second_and_across_it() -> None:
    emitter = Emitter(Identity("r"), Source("h", "p", "s"))
    stamps = [
        decode_event(emitter.secret_injection(at, "A", "r", "env", True).encode()).ts for at in (999, 1000, 1001, 0)
    ]
    assert [stamp[17:] for stamp in stamps] == ["00.999Z", "01.000Z", "01.001Z", "00.000Z"]
