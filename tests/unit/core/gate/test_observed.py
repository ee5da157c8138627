"""What the gate itself would refuse, of a call that was carried out already."""

from __future__ import annotations

import json
from typing import Any

from harness.engine import compiled
from subluminal.contracts.events import decode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor

SECRET = "correct-horse-battery"


def make() -> Gate:
    identity = Identity("run")
    stack = Stack([Engine(compiled(), identity)])
    return Gate(identity, Source("h", "p", "s"), stack, LocalState(), Redactor([SECRET], []))


def told(gate: Gate, **call: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    record = gate.judge(ToolCall("provider", "web_search", b"{}", 2, "messages_api", **call), 1, 1)
    gate.announce(record, 1)
    lines = gate.take().splitlines(keepends=True)
    for line in lines:
        decode_event(line)
    start, decision = map(json.loads, lines)
    return start["call"], decision["decision"]


def test_the_start_says_that_it_was_observed_and_says_nothing_of_others() -> None:
    gate = make()
    assert told(gate, observed=True)[0]["observed"] is True
    assert "observed" not in told(gate)[0]


def test_no_policy_and_too_large_a_message_refuse_nothing_that_has_happened() -> None:
    gate = make()
    _, decision = told(gate, observed=True, too_large="5 GB")
    assert (decision["action"], decision["would"]["explain"]["reason_code"]) == ("ALLOW", "MESSAGE_TOO_LARGE")
    assert gate.counts.allowed == 1
    gate.refuse_all(f"No policy: {SECRET}")
    _, decision = told(gate, observed=True)
    assert (decision["action"], decision["would"]["explain"]["reason_code"]) == ("ALLOW", "POLICY_INVALID")
    assert SECRET not in json.dumps(decision), "what would have been said is masked too"
    assert told(gate)[1]["action"] == "BLOCK"


def test_a_fault_of_ours_refuses_nothing_that_has_happened() -> None:
    gate = make()

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    gate.stack.judge = broken  # type: ignore[method-assign]
    _, decision = told(gate, observed=True)
    assert (decision["action"], decision["would"]["explain"]["reason_code"]) == ("ALLOW", "EVALUATION_ERROR")
