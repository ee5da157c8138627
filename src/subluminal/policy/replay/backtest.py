"""Recorded calls judged again under another policy, with full state: what would change if it were in force?

Every run is replayed on its own, in the order in which its calls were decided, at their recorded times. Budgets,
buckets, breakers and dedupe windows fill up as they would have; how a call ended feeds the breakers at the time it
ended. Five things the record cannot tell are never guessed:

- the arguments, where the preview is cut or masked: a preview counts only if it hashes to the recorded `args_hash`.
  Otherwise a rule that looks at them (in its match, an alternative, its `unless`, its cost or its key) is *unknown*,
  and so is the call, unless a rule before it settles it;
- where a path led on the machine of the run, if that cannot be told here: the call is unknown;
- which of the recorded risk classes came from the server and which from the policy then in force, where that policy is
  not known: if the new policy's rules depend on it, the call is unknown;
- how a tool stood (new, changed, pinned), where the record does not tell: a call that hangs on it is unknown;
- how a call would have ended that was refused then and would be let through now: it feeds no breaker.

An unknown call leaves the state as if it had gone the way it went.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from subluminal.contracts.decision import Decision
from subluminal.contracts.history import RecordedCall, RecordedRun, whole_arguments
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import (
    ALLOW,
    EVALUATION_ERROR,
    RUN_TERMINATED,
    THROTTLE,
    UNINSPECTED_ARGS,
    UNJUDGED_ARGS,
)
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.matchers import selectors_match
from subluminal.core.engine.stack import Stack, Verdict
from subluminal.core.engine.state import LocalState
from subluminal.policy.replay.recorded import classes_unknown
from subluminal.policy.replay.sight import asks_for, looks_at_args
from subluminal.policy.replay.simulate import as_recorded

if TYPE_CHECKING:
    from subluminal.core.engine.state import Op

MAX_EXAMPLES = 3
_UNKNOWN_CODES = (UNINSPECTED_ARGS, EVALUATION_ERROR)
_UNKNOWN = {
    "ARGUMENTS": "The recorded preview does not hold the whole arguments.",
    "PATH": "Where the path led cannot be told here.",
    "TOOL_CLASSES": "The record does not tell how the tool stood: whether it was new, changed or pinned.",
    "RISK_CLASS": "It is not known who gave the recorded risk classes.",
}
_MAX_TOOLS = 4_096


class _Needs(NamedTuple):
    """`args`: they look at arguments. `risk`: they hang on uncertain risk classes. `more`: on paths or sizes."""

    args: bool
    risk: bool
    more: bool


class Group(Struct, eq=False):
    """Calls that changed in the same way, with the first few of them."""

    rule_id: str | None
    action: str
    reason_code: str
    count: int = 0
    examples: list[dict[str, Any]] = []

    def add(self, run: RecordedRun, call: RecordedCall, summary: str) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            names = {name: getattr(call, name) for name in ("call_id", "server_name", "tool_name")}
            example = {"run_id": run.identity.run_id, **names, "was": call.action, "summary": summary}
            self.examples.append(example)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Groups:
    def __init__(self) -> None:
        self._groups: dict[tuple[str | None, str, str], Group] = {}

    def at(self, rule_id: str | None, action: str, reason_code: str) -> Group:
        key = (rule_id, action, reason_code)
        if key not in self._groups:
            self._groups[key] = Group(*key)
        return self._groups[key]

    def ordered(self) -> list[Group]:
        return sorted(self._groups.values(), key=lambda group: -group.count)

    def count(self) -> int:
        return sum(group.count for group in self._groups.values())


class _Trial:
    """Run state that can be asked but not changed."""

    def __init__(self, state: LocalState) -> None:
        self.get = state.get
        self.reason: str | None = None
        self.stopped = state.stopped
        self.wide_ms = state.wide_ms
        self.terminated = state.terminated
        self.terminated_by = state.terminated_by

    def begin(self, wide: bool = False) -> None:
        pass

    def abandon(self) -> None:
        pass

    def commit(self, ops: list[Op], count_call: bool = False) -> int:
        return 0

    def next_seq(self) -> int:
        return 0

    def terminate(self, code: str, message: str) -> None:
        pass

    def start_afresh(self) -> None:
        pass


class Backtest:
    """One policy against any number of recorded runs. `tell` hears of each call what is decided now; of one that cannot
    be judged, why (a word of `_UNKNOWN`)."""

    def __init__(
        self,
        snapshot: dict[str, Any],
        tell: Callable[[RecordedCall, Decision, str | None], None] = lambda call, decision, unknown: None,
        *,
        of_repository: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self._tell = tell
        self.runs = 0
        self.runs_selected = 0
        self.calls = 0
        self.still_allowed = 0
        self.still_refused = 0
        self.would_refuse = 0  # observe mode
        self.skipped = 0  # refused by an operator's order, or never decided: no policy's doing
        self.newly_refused = Groups()
        self.newly_allowed = Groups()
        self.refused_otherwise = Groups()
        self.unknown = Groups()
        defaults = snapshot.get("defaults") or {}
        kept = {name: defaults[name] for name in ("changed_tools",) if name in defaults}
        self._real = _stack(snapshot, defaults, of_repository)
        self._closed = _stack(snapshot, {"decision_on_error": "BLOCK", **kept}, of_repository)
        self._open = _stack(snapshot, {"decision_on_error": "ALLOW", **kept}, of_repository)
        self._wanted = self._real.listing.wanted
        self._looking = {rule["rule_id"] for rule in snapshot["rules"] if looks_at_args(rule)}
        self._path_rules = {rule["rule_id"] for rule in snapshot["rules"] if asks_for("path_within", rule)}
        self._sized = {rule["rule_id"] for rule in snapshot["rules"] if asks_for("bytes", rule)}
        self._needs: dict[tuple[str, str, frozenset[str], frozenset[str]], _Needs] = {}

    @property
    def new_blocks(self) -> int:
        """Calls that were let through and would not be; a throttled call may come again and is not counted."""
        return sum(group.count for group in self.newly_refused.ordered() if group.action != THROTTLE)

    def replay(self, run: RecordedRun) -> None:
        self.runs += 1
        if not selectors_match(self.snapshot.get("selectors"), run.identity):
            return
        self.runs_selected += 1
        state = LocalState()
        endings: list[tuple[int, int, Verdict, RecordedCall]] = []
        now = 0
        for number, call in enumerate(run.calls):
            now = max(now, call.at_ms)  # a wall clock may be set back; windows need time that goes on
            while endings and endings[0][0] <= now:
                self._settle(heappop(endings), state)
            if call.action is None or (call.reason_code == RUN_TERMINATED and call.rule_id is None):
                self.skipped += 1
                continue
            self.calls += 1
            verdict = self._judge(run, call, state, now)
            if verdict.watch and call.action == ALLOW == verdict.decision.action and call.ended_ms is not None:
                heappush(endings, (max(now, call.ended_ms), number, verdict, call))

    def _settle(self, ending: tuple[int, int, Verdict, RecordedCall], state: LocalState) -> None:
        at_ms, _, verdict, call = ending
        self._real.settle(verdict.watch, call.status == "OK", call.latency_ms or 0, state, at_ms)

    def _judge(self, run: RecordedRun, recorded: RecordedCall, state: LocalState, now: int) -> Verdict:
        risk, sure = recorded.tags, recorded.tags
        if risk:
            sure = frozenset() if run.policy_tags is None else risk - run.policy_tags
        stood = recorded.stood & self._wanted
        risk, sure = risk | stood, sure | stood
        call = ToolCall(recorded.server_name, recorded.tool_name, None, recorded.bytes_in, risk_classes=sure)
        as_recorded(call, recorded)
        needs = self._needs_of(call, risk, sure)
        value = None
        if needs.args and recorded.args_hash:
            value = whole_arguments(recorded.args_preview, recorded.args_hash)
        unseen = needs.args and bool(recorded.args_hash) and value is None
        stack = self._closed if unseen else self._real
        if needs.risk:
            call.risk_classes = risk
        unknown = self._standing_unknown(call, recorded, sure)
        if unknown is not None:
            self.unknown.at(None, "UNKNOWN", unknown).add(run, recorded, _UNKNOWN[unknown])
            stack = self._open if recorded.action == ALLOW else self._closed
        elif (unseen or needs.more) and recorded.ambiguous is None:
            trial = self._closed.judge(call, lambda: value, lambda: recorded.args_hash, _Trial(state), now, now)
            spoken = _spoken(trial.decision)
            unknown = self._why_unknown(spoken, recorded, unseen)
            if unknown is not None:
                stack = self._open if recorded.action == ALLOW else self._closed
                self.unknown.at(spoken.rule_id, "UNKNOWN", unknown).add(run, recorded, _UNKNOWN[unknown])
        verdict = stack.judge(call, lambda: value, lambda: recorded.args_hash, state, now, now)
        if needs.risk and unknown is None:
            unknown = "RISK_CLASS"
            self.unknown.at(None, "UNKNOWN", unknown).add(run, recorded, _UNKNOWN[unknown])
        elif unknown is None:
            self._compare(run, recorded, verdict.decision)
        self._tell(recorded, verdict.decision, unknown)
        return verdict

    def _standing_unknown(self, call: ToolCall, recorded: RecordedCall, sure: frozenset[str]) -> str | None:
        """Whether it hangs on how the tool stood, and the record does not tell that."""
        unknown = classes_unknown(recorded, self._wanted) if self._wanted else frozenset()
        return "TOOL_CLASSES" if unknown and self._needs_of(call, sure | unknown, sure).risk else None

    def _why_unknown(self, spoken: Decision, recorded: RecordedCall, unseen: bool) -> str | None:
        """What cannot be judged here was perhaps judged there: it is no refusal, and no permission."""
        if unseen and spoken.reason_code in _UNKNOWN_CODES:
            return "ARGUMENTS"
        if spoken.reason_code == UNINSPECTED_ARGS and recorded.args_hash:
            return "ARGUMENTS"  # their exact size
        return "PATH" if spoken.reason_code == UNJUDGED_ARGS and spoken.rule_id in self._path_rules else None

    def _needs_of(self, call: ToolCall, risk: frozenset[str], sure: frozenset[str]) -> _Needs:
        """What the rules for this tool must see."""
        key = (call.server_name, call.tool_name, risk, sure)
        known = self._needs.get(key)
        if known is None:
            engine = self._real.engines[0]
            steps = engine.plan(call).steps
            needs_risk = False
            if risk != sure:
                with_all = ToolCall(call.server_name, call.tool_name, None, 0, risk_classes=risk)
                others = engine.plan(with_all)
                plain = engine.plan(call)
                needs_risk = [(step.rule, step.check_risk) for step in others.steps] != [
                    (step.rule, step.check_risk) for step in plain.steps
                ] or others.access is not plain.access
                steps = [*steps, *others.steps]
            named = {step.rule.rule_id for step in steps}
            known = _Needs(bool(named & self._looking), needs_risk, bool(named & (self._path_rules | self._sized)))
            if len(self._needs) < _MAX_TOOLS:
                self._needs[key] = known
        return known

    def _compare(self, run: RecordedRun, call: RecordedCall, decision: Decision) -> None:
        if decision.would is not None:
            self.would_refuse += 1
        if call.action == ALLOW:
            if decision.action == ALLOW:
                self.still_allowed += 1
            else:
                group = self.newly_refused.at(decision.rule_id, decision.action, decision.reason_code)
                group.add(run, call, decision.summary)
        elif decision.action == ALLOW:
            group = self.newly_allowed.at(call.rule_id, call.action or "", call.reason_code or "")
            group.add(run, call, decision.summary)
        else:
            self.still_refused += 1
            if (decision.action, decision.rule_id) != (call.action, call.rule_id):
                group = self.refused_otherwise.at(decision.rule_id, decision.action, decision.reason_code)
                group.add(run, call, decision.summary)

    def as_dict(self) -> dict[str, Any]:
        counts = ("runs", "runs_selected", "calls", "still_allowed", "still_refused", "would_refuse", "skipped")
        groups = ("newly_refused", "newly_allowed", "refused_otherwise", "unknown")
        return {
            "policy_id": self.snapshot["policy_id"],
            "policy_version": self.snapshot["version"],
            "policy_hash": self.snapshot["policy_hash"],
            **{name: getattr(self, name) for name in counts},
            "new_blocks": self.new_blocks,
            **{f"{name}_total": getattr(self, name).count() for name in groups},
            **{name: [group.as_dict() for group in getattr(self, name).ordered()] for name in groups},
        }


def _stack(snapshot: dict[str, Any], defaults: dict[str, Any], of_repository: bool) -> Stack:
    """All three stacks name their state alike, so that they work on the same."""
    judged = {**snapshot, "selectors": {}, "defaults": defaults}
    return Stack([Engine(judged, Identity("backtest"), of_repository=of_repository)])


def _names(key: str, tree: Any) -> bool:
    """Whether a mapping somewhere in the rules has this key."""
    if isinstance(tree, dict):
        return key in tree or any(_names(key, value) for value in tree.values())
    return isinstance(tree, list) and any(_names(key, value) for value in tree)


def _spoken(decision: Decision) -> Decision:
    """In observe mode what enforcement would have said."""
    return decision.would or decision
