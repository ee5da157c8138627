"""Calls put to the real engine with no shim, no server and a clock of our own: for `explain` and `test`."""

from __future__ import annotations

import os
from typing import Any

from subluminal.contracts.canonical import canonical_bytes, digest, parse
from subluminal.contracts.decision import Decision
from subluminal.contracts.history import RecordedCall
from subluminal.contracts.identity import Identity
from subluminal.contracts.tool_use import CALL_IDS
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.listing import QUARANTINE_RULE, SCHEMA_RULE
from subluminal.core.engine.stack import Stack, Verdict
from subluminal.core.engine.state import LocalState
from subluminal.core.engine.trace import Tracer, unmatched
from subluminal.host.places import ThisMachine


def as_recorded(call: ToolCall, recorded: RecordedCall) -> None:
    """What of a call decides, beside its tool and its arguments: that several doors saw it, so that it is charged once,
    and that it was only observed."""
    call.ambiguous, call.continues = recorded.ambiguous, recorded.continues
    call.observed, call.transport = recorded.observed, recorded.transport
    if recorded.tool_use_id is not None:
        call.call_context = {CALL_IDS[0]: recorded.tool_use_id}


def read_once(args: bytes) -> tuple[Any, str]:
    """The value of arguments and their hash, for calls that are made again and again."""
    return parse(args), digest(canonical_bytes(args))


class Simulation:
    """One run under one compiled policy, begun in this directory. `start_ms` is the wall clock at `at_ms` 0."""

    def __init__(
        self, snapshot: dict[str, Any], identity: Identity, start_ms: int = 0, *, of_repository: bool = False
    ) -> None:
        self.snapshot = snapshot
        places = ThisMachine(os.environ, os.getcwd())
        self.engine = Engine(snapshot, identity, places, of_repository=of_repository)
        self.stack = Stack([self.engine])
        self.begin(start_ms)

    def begin(self, start_ms: int) -> None:
        """Another run of the same identity, in which nothing is counted yet."""
        self.start_ms = start_ms
        self.state = LocalState()

    def call(
        self, server_name: str, tool_name: str, args: bytes, at_ms: int = 0, risk_classes: frozenset[str] = frozenset()
    ) -> tuple[Verdict, list[dict[str, Any]]]:
        """Judge one call; the trace names every rule of the policy, in order."""
        call = ToolCall(server_name, tool_name, args, len(args), risk_classes=risk_classes)
        return self.judge(call, *read_once(args), at_ms)

    def judge(self, call: ToolCall, value: Any, args_hash: str, at_ms: int) -> tuple[Verdict, list[dict[str, Any]]]:
        """The same of a call whose arguments were read before; None: they are not known."""
        trace: list[dict[str, Any]] = []
        verdict = self.decide(call, value, args_hash, at_ms, trace)
        return verdict, self._with_disabled(trace)

    def decide(
        self,
        call: ToolCall,
        value: Any,
        args_hash: str,
        at_ms: int,
        trace: list[dict[str, Any]] | Tracer | None = None,
    ) -> Verdict:
        """The verdict alone, for whoever needs no trace, or has a tracer of its own."""
        wall_ms = self.start_ms + at_ms
        return self.stack.judge(call, lambda: value, lambda: args_hash, self.state, wall_ms, at_ms, trace)

    def settle(self, verdict: Verdict, *, ok: bool, latency_ms: int, at_ms: int) -> None:
        """Say how the call ended, so that breakers hear of it."""
        self.stack.settle(verdict.watch, ok, latency_ms, self.state, at_ms)

    def _with_disabled(self, trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As the policy has them; what its defaults make rules of stands where it is judged."""
        by_id = {record["rule_id"]: record for record in trace}
        told = [by_id.get(rule["rule_id"]) or self._not_asked(rule) for rule in self.snapshot["rules"]]
        first = [by_id[QUARANTINE_RULE]] if QUARANTINE_RULE in by_id else []
        return [*first, *told, *([by_id[SCHEMA_RULE]] if SCHEMA_RULE in by_id else [])]

    def _not_asked(self, rule: dict[str, Any]) -> dict[str, Any]:
        if not rule["enabled"]:
            why = "disabled"
        elif not self.engine.applies:
            why = "the policy does not apply to this run"
        else:
            why = "not asked: the run was terminated before"
        return unmatched(self.snapshot["policy_id"], rule["rule_id"], rule["kind"], why)


def decision_dict(decision: Decision) -> dict[str, Any]:
    """Contract C's decision object and, beside it, what enforcement would have done (observe mode)."""
    out = decision.as_dict()
    if decision.would is not None:
        out["would"] = decision.would.as_dict()
    return out
