"""What a report says of a run, folded from its events as they come: bounded, whatever the agent does.

Counts are exact. Lists are not endless: the refused calls, tools and latest calls that are kept have bounds, and what
is beyond them is counted. A figure that is not known is absent.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import msgspec
from msgspec import UNSET, Struct, field

from subluminal.contracts import events as ev
from subluminal.contracts.counts import BLOCKED, COUNTERS, Counts
from subluminal.contracts.moments import normal_ts
from subluminal.contracts.vocabulary import ACTIONS, ALLOW, SEVERITIES
from subluminal.ledger.fold.call import begin
from subluminal.ledger.fold.drift import MAX_DRIFTS, Drift, drifts_of
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.fold.reading import AnyEvent
from subluminal.ledger.fold.run import RUNNING, Run, TypedCall

MAX_REFUSALS = 500
MAX_TOOLS = 500
MAX_RECENT = 200
MAX_OPEN = 10_000
MAX_POLICY_ERRORS = 20
OTHER_TOOLS = ("(others)", "(others)")

_Key = tuple[str, str]


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


class ToolLine(Struct):
    counts: Counts = field(default_factory=Counts)
    latency_ms: int = 0
    first_refusal: str = ""


class RunFacts:
    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.run = Run(run_id, "")
        self.agent_id = self.client = self.env = self.mode = ""
        self.principal: str | None = None
        self.workload: dict[str, Any] | None = None
        self.policies: dict[str, ev.PolicyRef] = {}  # by hash
        self.events = 0
        self.actions: Counter[str] = Counter()
        self.ended = 0
        self.would_refuse = 0
        self.refused_by_severity: Counter[str] = Counter()
        self.refused_by_rule: Counter[str] = Counter()
        self.refusals: list[Refusal] = []
        self.tools: dict[tuple[str, str], ToolLine] = {}
        self.recent: deque[TypedCall] = deque(maxlen=MAX_RECENT)
        self.policy_errors: list[str] = []
        self.drifts: dict[str, Drift] = {}  # tools that differ from their pins
        # Calls that may still change; those that were forgotten of them, by what they were; and those that may not.
        # By shim and id: a call is its producer's (`fold.ownership`).
        self._open: dict[_Key, TypedCall] = {}
        self._forgotten: Counter[str | None] = Counter()
        self._complete: dict[_Key, None] = {}

    @property
    def counts(self) -> Counts:
        return self.run.counts

    @property
    def refused(self) -> int:
        return self.run.counts.blocked

    @property
    def started_at(self) -> str:
        return self.run.started_at

    @property
    def ended_at(self) -> str | None:
        return self.run.told_end()[0]

    @property
    def status(self) -> str | None:
        """The worst that a producer has told of its end; None before the first."""
        status = self.run.told_end()[1]
        return None if status == RUNNING else status

    @property
    def usage(self) -> dict[str, Any] | None:
        """Of the run's models (`fold.usage`); None: no message of one has passed."""
        text = self.run.usage_json
        return None if text is None else msgspec.json.decode(text)

    def refused_at(self, severity: str) -> int:
        """How many calls were refused with this severity or a higher one."""
        return sum(self.refused_by_severity[word] for word in SEVERITIES[SEVERITIES.index(severity) :])

    def add(self, event: AnyEvent) -> None:
        producer = self.run.producers.get(event.source.shim_id) or self.run.join(event)
        self.events += 1
        self._identify(event)
        if isinstance(event, ev.ToolCallStart | ev.ToolCallDecision | ev.ToolCallEnd):
            self._hear(event)
        elif isinstance(event, ev.RunStart):
            self.run.start(event, producer)
            self.mode = self.run.mode or ""
            for policy in (event.run.policy, *(event.run.policies or ())):
                self.policies.setdefault(policy.policy_hash, policy)
        elif isinstance(event, ev.RunEnd):
            self.run.end(event, producer)
        elif isinstance(event, ev.PolicyLoaded):
            self._policy(event)
        elif isinstance(event, ev.ModelMessage):
            self.run.message(event)
        elif isinstance(event, ev.ToolsSeen):
            for drift in drifts_of(event):
                if len(self.drifts) < MAX_DRIFTS or drift.title in self.drifts:
                    self.drifts[drift.title] = drift

    def _identify(self, event: AnyEvent) -> None:
        run = self.run
        run.started_at = run.started_at or normal_ts(event.ts)
        if not run.identified:
            run.identify(event)
            self.agent_id, self.client, self.env, self.principal = run.agent_id, run.client, run.env, run.principal
            if self.workload is None and event.workload is not UNSET:
                self.workload = event.workload

    def _policy(self, event: ev.PolicyLoaded) -> None:
        if event.load.ok:
            self.policies.setdefault(event.policy.policy_hash, event.policy)
        elif len(self.policy_errors) < MAX_POLICY_ERRORS:
            error = event.load.error or "a policy could not be loaded"
            if error not in self.policy_errors:
                self.policy_errors.append(error)

    # -- calls ------------------------------------------------------------------------------------------------

    def _hear(self, event: ev.ToolCallStart | ev.ToolCallDecision | ev.ToolCallEnd) -> None:
        key = event.source.shim_id, event.call.call_id
        if key in self._complete or is_foreign(key[1], key[0]):
            return
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = self._recall(event) or self._begin(event)
            self._forget()
        if isinstance(event, ev.ToolCallStart):
            call.start(event)
            call.args_preview = None
        elif isinstance(event, ev.ToolCallDecision):
            self._decide(call, event)
        else:
            self._end(call, event)
        if call.is_complete:
            self._open.pop(key, None)
            self._complete[key] = None
            if len(self._complete) > MAX_OPEN:
                del self._complete[next(iter(self._complete))]

    def _begin(self, event: Any) -> TypedCall:
        call = begin(event, TypedCall)
        self.run.counts.total += 1
        self._tool(call).counts.total += 1
        self.recent.append(call)
        return call

    def _forget(self) -> None:
        if len(self._open) > MAX_OPEN:
            oldest = self._open.pop(next(iter(self._open)))
            self._forgotten[oldest.decision] += 1

    def _recall(self, event: Any) -> TypedCall | None:
        """A call that is not at hand while some were forgotten is one of them. Which one does not matter to a count,
        but what had been decided: a refused call says so in its end."""
        if isinstance(event, ev.ToolCallStart) or not self._forgotten:
            return None
        likely: tuple[str | None, ...] = (None, ALLOW)
        if isinstance(event, ev.ToolCallEnd):
            refused = event.error is not UNSET and event.error.class_ == "policy_block"
            likely = tuple(action for action in ACTIONS if action != ALLOW) if refused else (ALLOW, None)
        for action in likely:
            if self._forgotten[action]:
                self._forgotten[action] -= 1
                call = begin(event, TypedCall)
                call.start_event = 0
                if action is not None:
                    call.decision, call.decision_event = action, 0
                return call
        return None

    def _tool(self, call: TypedCall) -> ToolLine:
        key = (call.server_name, call.tool_name)
        if key not in self.tools and len(self.tools) >= MAX_TOOLS:
            key = OTHER_TOOLS
        return self.tools.setdefault(key, ToolLine())

    def _decide(self, call: TypedCall, event: ev.ToolCallDecision) -> None:
        earlier, rule, severity, would = call.decision, call.rule_id or call.reason_code, call.severity, _would(call)
        if not self.run.decide(call, event):
            return
        tool = self._tool(call)
        tool.counts.decided_again(earlier, event.decision.action, call.status)
        self.would_refuse += _would(call) - would
        self.actions[event.decision.action] += 1
        if earlier is not None:
            self.actions[earlier] -= 1
        if earlier is not None and severity is not None and rule is not None and COUNTERS[earlier] == BLOCKED:
            self.refused_by_severity[severity] -= 1
            if rule in self.refused_by_rule:
                self.refused_by_rule[rule] -= 1
            self.refusals = [refusal for refusal in self.refusals if refusal.call_id != call.call_id]
        if COUNTERS[event.decision.action] == BLOCKED:
            tool.first_refusal = tool.first_refusal or event.decision.explain.summary
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

    def _end(self, call: TypedCall, event: ev.ToolCallEnd) -> None:
        if self.run.end_call(call, event):
            call.result_preview = None
            self.ended += 1
            tool = self._tool(call)
            tool.latency_ms += event.latency_ms
            tool.counts.ended(call.decision, event.status)

    def summary(self) -> dict[str, Any]:
        """For `summary.json` and other programs."""
        counts = self.counts.as_summary(0)
        del counts["duration_ms"]
        usage = {} if self.usage is None else {"usage": self.usage}
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
            "would_refuse": self.would_refuse,
            "unfinished": self.counts.total - self.ended,
            **usage,
            "decisions": dict(sorted((+self.actions).items())),
            "refused_by_severity": {word: self.refused_by_severity[word] for word in reversed(SEVERITIES)},
            "refused_by_rule": dict((+self.refused_by_rule).most_common()),
            "refusals": self.refusals,
            "policy_errors": self.policy_errors,
            **({"drifts": list(self.drifts.values())} if self.drifts else {}),
        }


def _would(call: TypedCall) -> bool:
    return call.would_action is not None and call.would_action != ALLOW


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
    "UNJUDGED_ARGS": "What the arguments mean could not be told; `defaults.decision_on_error` decides such calls.",
    "TOOL_NOT_LISTED": "The client called a tool before its server had listed it; a tag rule would need no list.",
    "TOOL_QUARANTINED": "What the server says of the tool has changed: look at it with `sub tools approve`.",
    "REPLAYED": "It was a replay, in which the client's own tools are not run.",
    "SCHEMA_MISMATCH": "The arguments did not fit the tool's input schema; the refusal said what to correct.",
    "POLICY_OVERDUE": "The machine has not heard from its fleet for too long; `sub fleet status` says why.",
    "FLEET_STOP": "It was stopped for the whole fleet; the refusal says by whom and why.",
    "LEGS_EXCEEDED": "The tool asked for input again and again; `defaults.max_legs` is the limit.",
}


def _advice(hint: ev.Hint | None, reason_code: str, rule_id: str | None) -> str:
    """What a person who reads the job's report can do."""
    if hint is not None and hint.hint_text:
        return " ".join(filter(None, (hint.hint_text, hint.retry_advice)))
    text = _ADVICE.get(reason_code, "Change what the agent is asked to do, or review rule {rule}.")
    return text.replace("{rule}", rule_id or reason_code)
