"""Runs put to the real engine: the compiled policy, a `Stack` and the state of each run, on general places."""

from __future__ import annotations

from typing import Any

from msgspec import json

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW
from subluminal.control.suggest.evidence import Call, Run
from subluminal.control.suggest.tokens import GeneralMachine
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState

_encode = json.Encoder(order="deterministic").encode


class Judge:
    """One compiled policy."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        self._stack = Stack([Engine({**snapshot, "selectors": {}}, Identity("suggest"), GeneralMachine())])

    def refusals(self, run: Run) -> list[tuple[Call, str | None]]:
        """The calls of a run that would be refused, each with its rule, in the order and at the times of the record."""
        state = LocalState()
        refused = []
        now = 0
        for call in run.calls:
            now = max(now, call.at_ms)
            rule_id = self._refused_by(call, state, now)
            if rule_id is not None:
                refused.append((call, rule_id or None))
        return refused

    def alone(self, call: Call) -> str | None:
        """The rule that refuses a call by itself; None: it is let through."""
        return self._refused_by(call, LocalState(), call.at_ms)

    def _refused_by(self, call: Call, state: LocalState, now: int) -> str | None:
        # Only the size of the raw arguments is asked for: the values were read before.
        made = ToolCall(call.server_name, call.tool_name, bytes(min(call.size, 1 << 21)), call.size)
        verdict = self._stack.judge(made, lambda: call.args, lambda: sha256_hex(_encode(call.args)), state, now, now)
        decision = verdict.decision
        return None if decision.action == ALLOW else decision.rule_id or ""
