"""What a report says of a run, folded from its events as they come: bounded, whatever the agent does.

Counts are exact. Lists are not endless: the refused calls, tools and latest calls that are kept have bounds, and what
is beyond them is counted. A figure that is not known is absent.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from msgspec import UNSET, Struct, field

from subluminal.contracts import events as ev
from subluminal.contracts.vocabulary import ALLOW, RUN_STATUS_SEVERITY, SEVERITIES, THROTTLE
from subluminal.ledger.fold.reading import AnyEvent

MAX_REFUSALS = 500
MAX_TOOLS = 500
MAX_RECENT = 200
MAX_OPEN = 10_000
MAX_POLICY_ERRORS = 20
OTHER_TOOLS = ("(others)", "(others)")


class Refusal(Struct):
    """One call that was not let through."""

    ts: str
    call_id: str
    server_name: str
    tool_name: str
    action: str
    rule_id: str | None
    severity: str
    reason_code: str
    summary: str
    advice: str
    policy_id: str


class CallLine(Struct):
    ts: str
    call_id: str
    server_name: str
    tool_name: str
    action: str | None = None
    rule_id: str | None = None
    status: str | None = None
    latency_ms: int | None = None


class ToolLine(Struct):
    calls: int = 0
    refused: int = 0
    throttled: int = 0
    errors: int = 0
    latency_ms: int = 0
    first_refusal: str = ""


class RunFacts(Struct):
    run_id: str
    agent_id: str = ""
    client: str = ""
    env: str = ""
    principal: str | None = None
    workload: dict[str, Any] | None = None
    mode: str = ""
    started_at: str = ""
    ended_at: str | None = None
    status: str | None = None
    policies: dict[str, ev.PolicyRef] = field(default_factory=dict)  # by hash
    events: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    errors: int = 0
    would_refuse: int = 0
    refused_by_severity: Counter[str] = field(default_factory=Counter)
    refused_by_rule: Counter[str] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    tools: dict[tuple[str, str], ToolLine] = field(default_factory=dict)
    recent: deque[CallLine] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    policy_errors: list[str] = field(default_factory=list)
    open_calls: dict[str, CallLine] = field(default_factory=dict)

    @property
    def refused(self) -> int:
        return sum(count for action, count in self.actions.items() if action not in (ALLOW, THROTTLE))

    def refused_at(self, severity: str) -> int:
        """How many calls were refused with this severity or a higher one."""
        return sum(self.refused_by_severity[word] for word in SEVERITIES[SEVERITIES.index(severity) :])

    def add(self, event: AnyEvent) -> None:
        self.events += 1
        if not self.started_at:
            self._identify(event)
        if isinstance(event, ev.ToolCallStart):
            self._start(event)
        elif isinstance(event, ev.ToolCallDecision):
            self._decide(event)
        elif isinstance(event, ev.ToolCallEnd):
            self._end(event)
        elif isinstance(event, ev.RunStart):
            self._run_start(event)
        elif isinstance(event, ev.RunEnd):
            self._run_end(event)
        elif isinstance(event, ev.PolicyLoaded):
            self._policy(event)

    def _identify(self, event: AnyEvent) -> None:
        self.agent_id, self.client, self.env = event.agent_id, event.client, event.env
        self.principal = None if event.principal is UNSET else event.principal
        self.workload = None if event.workload is UNSET else event.workload
        self.started_at = event.ts

    def _run_start(self, event: ev.RunStart) -> None:
        self.mode = self.mode or event.run.mode
        for policy in (event.run.policy, *(event.run.policies or ())):
            self.policies.setdefault(policy.policy_hash, policy)

    def _run_end(self, event: ev.RunEnd) -> None:
        self.ended_at = max(self.ended_at or "", event.run.ended_at)
        self.status = min(filter(None, (self.status, event.run.status)), key=RUN_STATUS_SEVERITY.index)

    def _policy(self, event: ev.PolicyLoaded) -> None:
        if event.load.ok:
            self.policies.setdefault(event.policy.policy_hash, event.policy)
        elif len(self.policy_errors) < MAX_POLICY_ERRORS:
            error = event.load.error or "a policy could not be loaded"
            if error not in self.policy_errors:
                self.policy_errors.append(error)

    def _tool(self, call: ev.CallRef | ev.CallStarted) -> ToolLine:
        key = (call.server_name, call.tool_name)
        if key not in self.tools and len(self.tools) >= MAX_TOOLS:
            key = OTHER_TOOLS
        return self.tools.setdefault(key, ToolLine())

    def _start(self, event: ev.ToolCallStart) -> None:
        call = event.call
        self.calls += 1
        self._tool(call).calls += 1
        line = CallLine(event.ts, call.call_id, call.server_name, call.tool_name)
        self.recent.append(line)
        if len(self.open_calls) < MAX_OPEN:
            self.open_calls[call.call_id] = line

    def _decide(self, event: ev.ToolCallDecision) -> None:
        decision, call = event.decision, event.call
        line = self.open_calls.get(call.call_id)
        if line is not None and line.action is not None:
            self.actions[line.action] -= 1  # a further leg of the same call: the later decision stands
        self.actions[decision.action] += 1
        if line is not None:
            line.action, line.rule_id = decision.action, decision.rule_id
        if decision.would is not UNSET:
            self.would_refuse += decision.would.action != ALLOW
        tool = self._tool(call)
        if decision.action == THROTTLE:
            tool.throttled += 1
        elif decision.action != ALLOW:
            tool.refused += 1
            tool.first_refusal = tool.first_refusal or decision.explain.summary
            self._refuse(event)

    def _refuse(self, event: ev.ToolCallDecision) -> None:
        decision, call = event.decision, event.call
        self.refused_by_severity[decision.severity] += 1
        rule = decision.rule_id or decision.explain.reason_code
        if rule in self.refused_by_rule or len(self.refused_by_rule) < MAX_TOOLS:
            self.refused_by_rule[rule] += 1
        if len(self.refusals) < MAX_REFUSALS:
            hint = None if decision.hint is UNSET else decision.hint
            self.refusals.append(
                Refusal(
                    event.ts,
                    call.call_id,
                    call.server_name,
                    call.tool_name,
                    decision.action,
                    decision.rule_id,
                    decision.severity,
                    decision.explain.reason_code,
                    decision.explain.summary,
                    _advice(hint, decision.explain.reason_code, decision.rule_id),
                    decision.policy.policy_id,
                )
            )

    def _end(self, event: ev.ToolCallEnd) -> None:
        line = self.open_calls.pop(event.call.call_id, None)
        if line is not None:
            line.status, line.latency_ms = event.status, event.latency_ms
        tool = self._tool(event.call)
        tool.latency_ms += event.latency_ms
        refused = event.error is not UNSET and event.error.class_ == "policy_block"
        if event.status != "OK" and not refused:
            tool.errors += 1
            self.errors += 1

    def summary(self) -> dict[str, Any]:
        """For `summary.json` and other programs."""
        counts = {
            "calls_total": self.calls,
            "calls_allowed": self.actions[ALLOW],
            "calls_blocked": self.refused,
            "calls_throttled": self.actions[THROTTLE],
            "errors_total": self.errors,
            "would_refuse": self.would_refuse,
            "unfinished": len(self.open_calls),
        }
        return {
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "client": self.client,
            "env": self.env,
            "principal": self.principal,
            "workload": self.workload,
            "mode": self.mode,
            "policies": list(self.policies.values()),
            "started_at": self.started_at or None,
            "ended_at": self.ended_at,
            "status": self.status,
            "events": self.events,
            **counts,
            "decisions": dict(sorted(self.actions.items())),
            "refused_by_severity": {word: self.refused_by_severity[word] for word in reversed(SEVERITIES)},
            "refused_by_rule": dict(self.refused_by_rule.most_common()),
            "refusals": self.refusals,
            "policy_errors": self.policy_errors,
        }


_ADVICE = {
    "BUDGET_EXCEEDED": "Shorten the task, or raise the limit of rule {rule} and review it with `sub policy diff`.",
    "DUPLICATE_CALL": "Find out why the agent repeats a call that went through; rule {rule} sets the window.",
    "BREAKER_REPEAT": "The agent was in a loop; look at the calls before this one.",
    "BREAKER_ERRORS": "The tool kept failing; look at its errors before changing rule {rule}.",
    "BREAKER_LATENCY": "The tool was too slow; look at the server before changing rule {rule}.",
    "RUN_TERMINATED": "The run had been ended before; the first refusal says why.",
    "AMBIGUOUS_MESSAGE": "The client sent a message that two parsers could read differently; update the client.",
    "POLICY_INVALID": "The policy could not be loaded; `sub policy lint` says how to mend it.",
    "EVALUATION_ERROR": "A rule could not be evaluated; `sub doctor` checks the installation.",
    "UNINSPECTED_ARGS": "The arguments were too large to inspect; `defaults.decision_on_error` decides such calls.",
}


def _advice(hint: ev.Hint | None, reason_code: str, rule_id: str | None) -> str:
    """What a person who reads the job's report can do."""
    if hint is not None and hint.hint_text:
        return " ".join(filter(None, (hint.hint_text, hint.retry_advice)))
    text = _ADVICE.get(reason_code, "Change what the agent is asked to do, or review rule {rule}.")
    return text.replace("{rule}", rule_id or reason_code)
