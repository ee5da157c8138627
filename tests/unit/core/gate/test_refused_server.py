"""One server refused whatever policies say: also after they were loaded anew, or could not be."""

from __future__ import annotations

from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.redact.redactor import Redactor
from subluminal.policy.sources import BUILTIN_OBSERVE


def test_others_are_judged_and_a_policy_that_does_not_load_refuses_them_too() -> None:
    identity = Identity("run-1")
    stack = Stack([Engine(BUILTIN_OBSERVE, identity)])
    gate = Gate(identity, Source("h", "p", "s1"), stack, LocalState(), Redactor())

    def codes() -> list[str]:
        return [gate.judge(ToolCall(name, "t", b"{}", 2), 0, 0).decision.reason_code for name in ("builtin", "fs")]

    gate.refuse_server("builtin", "REPLAYED", "Not here.")
    assert codes() == ["REPLAYED", "DEFAULT_ALLOW"]
    gate.use_policies(stack, "", 0)
    assert codes() == ["REPLAYED", "DEFAULT_ALLOW"]
    gate.refuse_all("No policy.")
    assert codes() == ["POLICY_INVALID", "POLICY_INVALID"]
    gate.use_policies(stack, "", 0)
    assert codes() == ["REPLAYED", "DEFAULT_ALLOW"]
