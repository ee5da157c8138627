"""What one change of a policy would have changed: recorded calls judged under both, with the state of each.

Not what was recorded is compared, for other policies may have been in force then: both are asked, and only where they
differ is a call told. Where either cannot be judged by what the record holds, it is unknown.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.decision import Decision
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.vocabulary import ALLOW
from subluminal.core.engine.names import name_match
from subluminal.policy.replay.backtest import Backtest, Groups


class Comparison:
    """`concerns`: the match of the rule that differs. A run without a call that it names is the same under both."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], concerns: dict[str, Any]) -> None:
        self._before, self._after = _Judged(before), _Judged(after)
        self._server = name_match(concerns.get("server_name"))
        self._tool = name_match(concerns.get("tool_name"))
        self._named: dict[tuple[str, str], bool] = {}
        self.runs = 0
        self.calls = 0
        self.newly_allowed = Groups()
        self.newly_refused = Groups()
        self.unknown = 0

    def replay(self, run: RecordedRun) -> None:
        self.runs += 1
        self.calls += len(run.calls)
        if not any(self._names(call) for call in run.calls):
            return
        before, after = self._before.decisions(run), self._after.decisions(run)
        for call in run.calls:
            was, now = before.get(id(call)), after.get(id(call))
            if was is None or now is None:
                self.unknown += call.action is not None and self._names(call)
            elif was.action != ALLOW == now.action:
                self.newly_allowed.at(was.rule_id, was.action, was.reason_code).add(run, call, now.summary)
            elif was.action == ALLOW != now.action:
                self.newly_refused.at(now.rule_id, now.action, now.reason_code).add(run, call, now.summary)

    def _names(self, call: RecordedCall) -> bool:
        key = (call.server_name, call.tool_name)
        known = self._named.get(key)
        if known is None:
            known = (self._server is None or self._server(key[0])) and (self._tool is None or self._tool(key[1]))
            self._named[key] = known
        return known

    def as_dict(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "calls": self.calls,
            "unknown": self.unknown,
            **{f"{name}_total": getattr(self, name).count() for name in ("newly_allowed", "newly_refused")},
            "newly_allowed": [group.as_dict() for group in self.newly_allowed.ordered()],
            "newly_refused": [group.as_dict() for group in self.newly_refused.ordered()],
        }


class _Judged(Backtest):
    """Keeps what was decided of the calls of one run."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        super().__init__(snapshot)
        self._decided: dict[int, Decision] = {}

    def decisions(self, run: RecordedRun) -> dict[int, Decision]:
        """By the identity of the call; what is unknown is not there."""
        self._decided = {}
        self.replay(run)
        return self._decided

    def _compare(self, run: RecordedRun, call: RecordedCall, decision: Decision) -> None:
        self._decided[id(call)] = decision
