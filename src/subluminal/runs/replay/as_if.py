"""A recorded run under another policy, without an agent: every call judged again in its order, at its time.

What the agent would have done after a refusal nobody can know: the calls that follow are judged as they were made.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.contracts.decision import Decision
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.core.engine.matchers import selectors_match
from subluminal.policy.replay.backtest import Backtest
from subluminal.runs.replay.tape import ANSWERED, at_servers


class Rejudged(Struct, eq=False):
    """`unknown`: what the record lacks to tell; then nothing is said of what would have been decided."""

    call: RecordedCall
    now: dict[str, str | None] | None
    summary: str
    unknown: str | None

    @property
    def was(self) -> dict[str, str | None]:
        return {"action": self.call.action, "rule_id": self.call.rule_id, "reason_code": self.call.reason_code}

    @property
    def changed(self) -> bool:
        return self.now is not None and self.now != self.was

    @property
    def turned(self) -> bool:
        """It would have been refused where it was not, or the other way round."""
        return self.now is not None and (self.now["action"] == "ALLOW") != (self.was["action"] == "ALLOW")


class AsIf:
    def __init__(self, snapshot: dict[str, Any], run: RecordedRun) -> None:
        self.snapshot = snapshot
        self.run = run
        self.calls: list[Rejudged] = []
        self.selected = selectors_match(snapshot.get("selectors"), run.identity)
        self._at_servers = at_servers(run)
        self._backtest = Backtest(snapshot, self._hear)
        self._backtest.replay(run)

    def _hear(self, call: RecordedCall, decision: Decision, unknown: str | None) -> None:
        if call.transport not in ANSWERED and call.tool_use_id in self._at_servers:
            return  # the same call, before another door
        now = {"action": decision.action, "rule_id": decision.rule_id, "reason_code": decision.reason_code}
        self.calls.append(Rejudged(call, None if unknown else now, decision.summary, unknown))

    @property
    def skipped(self) -> int:
        """Refused by an operator's order, or never decided: no policy's doing."""
        return self._backtest.skipped

    @property
    def differs(self) -> bool:
        return any(call.turned for call in self.calls)

    def as_dict(self) -> dict[str, Any]:
        policy = {name: self.snapshot[name] for name in ("policy_id", "version", "policy_hash")}
        calls = {
            "judged": len(self.calls),
            "skipped": self.skipped,
            "changed": sum(call.changed for call in self.calls),
            "newly_refused": sum(call.turned and call.was["action"] == "ALLOW" for call in self.calls),
            "newly_allowed": sum(call.turned and call.was["action"] != "ALLOW" for call in self.calls),
            "unknown": sum(call.unknown is not None for call in self.calls),
        }
        told = [
            {
                "call_id": each.call.call_id,
                "server_name": each.call.server_name,
                "tool_name": each.call.tool_name,
                "was": each.was,
                "now": each.now,
                "unknown": each.unknown,
            }
            for each in self.calls
        ]
        selected = {"policy": policy, "selected": self.selected}
        return {"run_id": self.run.identity.run_id, **selected, "calls": calls, "timeline": told}
