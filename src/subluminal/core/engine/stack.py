"""Policy evaluation: several bundles over one call, over run state. Pure and deterministic: time is passed in.

A refused call is an attempt: budgets charge it and repeat windows count it, but it takes no tokens and renews no
dedupe window. That is known only when every bundle has spoken, hence two lists of operations (`Judgement`).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from subluminal.contracts.decision import Decision, PolicyRef
from subluminal.contracts.vocabulary import (
    ACTION_STRICTNESS,
    ALLOW,
    AMBIGUOUS_MESSAGE,
    BLOCK,
    EVALUATION_ERROR,
    LEGS_EXCEEDED,
    MODES,
    RUN_TERMINATED,
    TERMINATE_RUN,
)
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.claims import claim_of
from subluminal.core.engine.hints import show_name, summary
from subluminal.core.engine.plan import MAX_CACHED_NAME_CHARS, MAX_PLANS, Cache, Plan
from subluminal.core.engine.rules import Judgement, Outcome, Refusal, TagRule
from subluminal.core.engine.state import LocalState, StateDamaged, StateUnavailable, terminate_op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.claims import Claim
    from subluminal.core.engine.listing import Listing
    from subluminal.core.engine.rules import Trip, Watch
    from subluminal.core.engine.schemas import SchemaJudge
    from subluminal.core.engine.state import Op, State
    from subluminal.core.engine.trace import Tracer


__all__ = ["Engine", "Stack", "Verdict"]

NO_POLICY = PolicyRef("none", "0", "")
_NO_STATE = LocalState()  # for plans that ask for none


class Verdict(Struct, eq=False, gc=False):
    """What a call's judgement is. `watch` goes back into `Stack.settle` when the call has ended."""

    decision: Decision
    tags: list[str]
    trips: list[Trip]
    watch: Watch | None
    seq: int


class _Plans:
    """The plans of all bundles for one tool, and what of the verdict they already settle."""

    __slots__ = ("checks", "pairs", "settled", "stateful", "tags", "tags_vary", "wide")

    def __init__(self, pairs: list[tuple[Engine, Plan]], risk: frozenset[str] | None) -> None:
        self.pairs = pairs
        self.stateful = any(plan.stateful for _, plan in pairs)
        self.wide = any(plan.wide for _, plan in pairs)
        self.tags = sorted((risk or frozenset()).union(*(plan.tags for _, plan in pairs)))
        self.tags_vary = any(isinstance(step.rule, TagRule) for _, plan in pairs for step in plan.steps)
        # Asked before the run's state is taken: a schema may cost what no other process of the run should wait for.
        self.checks: list[Any] = [engine.rules[-1] for engine, _ in pairs if engine.checks_schemas]
        # No rule to look at and nothing refused: the decision is the same for every call.
        self.settled: Decision | None = None


class Stack:
    """Several bundles: each is judged on its own, the strictest decision wins, the first among equals."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = [engine for engine in engines if engine.applies]
        seen: dict[str, int] = {}
        for engine in engines:  # all of them: one that does not apply here keeps its name, and what it has counted
            policy_id = engine.policy.policy_id
            seen[policy_id] = seen.get(policy_id, 0) + 1
            engine.state_name = policy_id if seen[policy_id] == 1 else f"{policy_id}\0{seen[policy_id]}"
        self.policies = [engine.policy for engine in self.engines] or [NO_POLICY]
        self.mode = max((engine.mode for engine in self.engines), key=MODES.index, default="observe")
        self.wide = any(engine.wide for engine in self.engines)
        # An allowed call is to be told of, and not only by the first bundle.
        self._tells = any(engine.promoted or engine.overdue for engine in self.engines)
        self._plans = Cache(MAX_PLANS)
        self._complete_plans = Cache(MAX_PLANS)
        self._listing: Listing | None = None

    @property
    def listing(self) -> Listing:
        """What these bundles make of a list of tools; worked out when the first comes."""
        if self._listing is None:
            from subluminal.core.engine.listing import Listing

            self._listing = Listing(self.engines)
        return self._listing

    def judge_schemas_by(self, judges: Mapping[str, SchemaJudge]) -> None:
        """Who says, for each server, whether arguments fit the input schema of their tool."""
        for engine in self.engines:
            if engine.checks_schemas:
                engine.rules[-1].judges = judges  # type: ignore[attr-defined]  # it stands behind all others

    def prepare(self, call: ToolCall) -> None:
        """Work out the plan of a tool ahead of its first call, while there is time."""
        self._plans_for(call)

    def judge(
        self,
        call: ToolCall,
        args: Callable[[], Any],
        args_hash: Callable[[], str],
        state: State,
        wall_ms: int,
        mono_ms: int,
        trace: list[dict[str, Any]] | Tracer | None = None,
        held: dict[str, Any] | None = None,
    ) -> Verdict:
        """Decide one call. `args()` gives None when the arguments were not inspected, or raises CanonicalError.

        `trace`: where to tell of every rule, or who is told. `held`: what `args()` would give, where it is at hand.
        """
        key = (call.tool_name, call.server_name, call.risk_classes)
        plans: _Plans = self._plans.hot.get(key) or self._plans_for(call)
        counted = call.continues is not None or call.definition
        judgement = Judgement(call, args, args_hash, wall_ms, mono_ms, state, 0, counted, [], [], held or {})
        if call.ambiguous is not None:
            seq = state.next_seq()
            if state.stopped:
                return self._terminated(state, judgement, plans, seq)
            outcomes = [_ambiguous(engine, plan, call.transport) for engine, plan in plans.pairs]
            return Verdict(self._decide(outcomes, judgement), plans.tags, [], None, seq)
        if plans.settled is not None and trace is None and not judgement.counted:
            seq = state.next_seq()
            if state.stopped:
                return self._terminated(state, judgement, plans, seq)
            return Verdict(plans.settled, plans.tags, [], None, seq)
        return self._judge(plans, judgement, state, trace)

    def judge_after_fault(self, call: ToolCall, state: State, why: str, wall_ms: int, mono_ms: int) -> Verdict:
        """No rule could be asked: the `decision_on_error` of each bundle holds, and nothing is charged.

        It opens no other door: a terminated run stays so, and a message with two readings has none to let through.
        """
        try:
            plans = self._plans_for(call)
        except Exception:  # then nothing is known of the tool
            unknown = Plan([], None, frozenset(), frozenset())
            plans = _Plans([(engine, unknown) for engine in self.engines], call.risk_classes)
        judgement = Judgement(call, dict, str, wall_ms, mono_ms, state)
        seq = state.next_seq()
        if state.stopped:
            return self._terminated(state, judgement, plans, seq)
        if call.ambiguous is not None:
            outcomes = [_ambiguous(engine, plan, call.transport) for engine, plan in plans.pairs]
        else:
            outcomes = [engine.fail(plan, EVALUATION_ERROR, why) for engine, plan in plans.pairs]
        return Verdict(self._decide(outcomes, judgement), plans.tags, [], None, seq)

    def _judge(
        self, plans: _Plans, judgement: Judgement, state: State, trace: list[dict[str, Any]] | Tracer | None
    ) -> Verdict:
        """Every bundle over the state, and its effects published: all of them, or none.

        Long on purpose: this is the way of nearly every call, and each function on it costs.
        """
        tracer = None
        if trace is not None:
            from subluminal.core.engine.trace import Tracer  # not in a shim

            tracer = trace if isinstance(trace, Tracer) else Tracer(trace)
            plans = self._complete_plans_for(judgement.call)
        stateful, seq = plans.stateful, 0
        outcomes: list[Outcome] = []
        refused = False
        if plans.checks:
            for rule in plans.checks:
                rule.look(judgement)
        try:
            if stateful:
                state.begin(plans.wide)
            else:
                seq = state.next_seq()
            try:
                if state.stopped:
                    return self._terminated(state, judgement, plans, state.commit([], True) if stateful else seq)
                if plans.wide:
                    judgement.wide_ms = state.wide_ms or judgement.mono_ms
                claim = None
                if stateful and judgement.call.call_context is not None and not judgement.counted:
                    claim = claim_of(judgement)
                    judgement.counted = claim is not None and claim.joined
                for engine, plan in plans.pairs:
                    outcome = engine.evaluate(plan, judgement, tracer)
                    outcomes.append(outcome)
                    if judgement.counted:
                        _bound_legs(outcome, judgement.call.leg)
                    if outcome.refusal is not None:
                        refused = True
                if refused or claim is not None or len(outcomes) != 1:
                    watch = self._gather(outcomes, refused, judgement, claim)
                else:
                    judgement.always.extend(outcome.if_allowed)
                    watch = outcome.watch or None
            except BaseException:
                if stateful:
                    state.abandon()
                raise
            if stateful:
                seq = state.commit(judgement.always, True)
        except StateUnavailable as unavailable:
            outcomes, watch = self._without_state(plans, judgement, state, unavailable), None
            refused = True  # or let through for want of state
            seq = state.next_seq()
            if state.stopped:
                return self._terminated(state, judgement, plans, seq)
        if refused or self._tells or not outcomes:
            decision = self._decide(outcomes, judgement)
        else:
            decision = outcomes[0].engine.allow(outcomes[0])
        if tracer is not None:
            tracer.finish(self.engines, judgement)
        tags = plans.tags
        if plans.tags_vary:
            risk = judgement.call.risk_classes or frozenset()
            tags = sorted(risk.union(*(outcome.tags | outcome.suspected for outcome in outcomes)))
        return Verdict(decision, tags, judgement.trips, watch, seq)

    def _without_state(
        self, plans: _Plans, judgement: Judgement, state: State, unavailable: StateUnavailable
    ) -> list[Outcome]:
        outcomes = [engine.fail(plan, EVALUATION_ERROR, str(unavailable)) for engine, plan in plans.pairs]
        if isinstance(unavailable, StateDamaged) and all(outcome.refusal is None for outcome in outcomes):
            state.start_afresh()  # for the calls after this one
        from subluminal.core.engine.no_state import judged_without_state

        outcomes = judged_without_state(plans.pairs, outcomes, judgement, unavailable)
        if judgement.counted:
            for outcome in outcomes:
                _bound_legs(outcome, judgement.call.leg)
        judgement.trips.clear()
        return outcomes

    def _gather(
        self, outcomes: list[Outcome], refused: bool, judgement: Judgement, claim: Claim | None
    ) -> Watch | None:
        """Add to the operations what follows from the decision; the breakers to be told how the call ends."""
        if refused:
            winner = _strictest([outcome for outcome in outcomes if outcome.refusal is not None], judgement.call)
            action = winner.engine.enforced(winner.refusal, judgement.call)
            if action == TERMINATE_RUN:
                judgement.always.append(self._terminate_op(winner, judgement))
            if action != ALLOW:
                return None
        if claim is not None:
            judgement.always.append(claim.op(judgement.mono_ms))
        watch: Watch = []
        for outcome in outcomes:
            if outcome.refusal is None:
                judgement.always.extend(outcome.if_allowed)
            watch += outcome.watch
        return None if claim is not None and claim.joined else watch or None

    def watches(self, watch: Watch, may_have_failed: bool) -> bool:
        """Whether `settle` may have something to tell these breakers: of an error, or of a call that took long."""
        return may_have_failed or any(rule.slow is not None for _, rule, _, _ in watch)

    def settle(self, watch: Watch | None, ok: bool, latency_ms: int, state: State, mono_ms: int) -> list[Trip]:
        """Tell the breakers how a call ended; returns those that have just tripped."""
        if watch is None:
            return []
        if ok:
            for _, rule, _, _ in watch:
                if rule.slow is not None and latency_ms > rule.slow_ms:
                    break
            else:
                return []
        ops: list[Op] = []
        trips: list[Trip] = []
        try:
            state.begin(any(rule.wide for _, rule, _, _ in watch))
            try:
                for engine, rule, keys, call in watch:
                    more, tripped = rule.feed(state, keys, ok, latency_ms, mono_ms)
                    ops += more
                    trips += tripped
                    if tripped and rule.on_trip == TERMINATE_RUN and engine.enforces(call):
                        code, message = engine.trip_message(rule, tripped[0], call)
                        ops.append(terminate_op(code, message, engine.policy.policy_id, rule.rule_id))
            except BaseException:
                state.abandon()
                raise
            state.commit(ops)
        except StateUnavailable:
            return []
        return trips

    # -- parts ------------------------------------------------------------------------------------------------

    def _plans_for(self, call: ToolCall) -> _Plans:
        key = (call.tool_name, call.server_name, call.risk_classes)
        plans: _Plans | None = self._plans.get(key)
        if plans is None:
            plans = _Plans([(engine, engine.plan(call)) for engine in self.engines], call.risk_classes)
            if all(not plan.steps and (plan.access is None or plan.access.action == ALLOW) for _, plan in plans.pairs):
                nothing = Judgement(call, dict, str, 0, 0, _NO_STATE)
                outcomes = [engine.evaluate(plan, nothing, None) for engine, plan in plans.pairs]
                plans.settled = self._decide(outcomes, nothing)
            if len(call.tool_name) + len(call.server_name) <= MAX_CACHED_NAME_CHARS:
                self._plans.put(key, plans)
        return plans

    def _complete_plans_for(self, call: ToolCall) -> _Plans:
        key = (call.tool_name, call.server_name, call.risk_classes)
        plans: _Plans | None = self._complete_plans.get(key)
        if plans is None:
            plans = _Plans([(engine, engine.plan(call, True)) for engine in self.engines], frozenset())
            if len(call.tool_name) + len(call.server_name) <= MAX_CACHED_NAME_CHARS:
                self._complete_plans.put(key, plans)
        return plans

    def _decide(self, outcomes: list[Outcome], judgement: Judgement) -> Decision:
        if not outcomes:
            return Decision(policy=NO_POLICY, summary="No policy applies.")
        for outcome in outcomes:
            if outcome.refusal is not None:
                break
        else:
            telling = (each for each in outcomes if each.promoted is not None or each.engine.overdue)
            spoken = next(telling, outcomes[0])
            return spoken.engine.allow(spoken)
        winner = _strictest(outcomes, judgement.call)
        decision = winner.engine.decision(winner, judgement)
        if decision.action != ALLOW or len(outcomes) == 1:
            return decision
        return self._with_would(decision, winner, outcomes, judgement)

    def _with_would(
        self, decision: Decision, winner: Outcome, outcomes: list[Outcome], judgement: Judgement
    ) -> Decision:
        """An allowed call still tells what the strictest of the observing bundles would have done."""
        for outcome in outcomes:
            if outcome is winner or outcome.refusal is None:
                continue
            would = outcome.engine.decision(outcome, judgement).would
            if would is None:
                continue
            best = decision.would
            if best is None or ACTION_STRICTNESS[would.action] > ACTION_STRICTNESS[best.action]:
                decision = replace(decision, would=would)
        return decision

    def _terminate_op(self, winner: Outcome, judgement: Judgement) -> Op:
        decision = winner.engine.decision(winner, judgement)
        code, message = decision.terminate or (decision.reason_code, decision.summary)
        return terminate_op(code, message, decision.policy.policy_id, decision.rule_id or "")

    def _terminated(self, state: State, judgement: Judgement, plans: _Plans, seq: int) -> Verdict:
        """A terminated run accepts nothing more, in any mode: a kill is an operator's order."""
        code, message = state.terminated or ("", "")
        policy_id, rule_id = state.terminated_by or ("", "")
        policy = next((policy for policy in self.policies if policy.policy_id == policy_id), self.policies[0])
        # An operator's reason is meant for the agent; a rule's has been told with the call that broke it.
        words = f": {message}" if message and not policy_id and code != RUN_TERMINATED else ""
        call = judgement.call
        facts = {"tool": show_name(call.tool_name), "server": show_name(call.server_name), "rule_id": rule_id or None}
        text = summary(RUN_TERMINATED, facts, f"this run has been terminated ({code}{words})")
        decision = Decision(TERMINATE_RUN, rule_id or None, "critical", RUN_TERMINATED, text, policy=policy)
        decision.terminate = (code, message)
        if call.observed:
            decision = Decision.of_carried_out(decision)
        return Verdict(decision, plans.tags, [], None, seq)


def _strictest(outcomes: list[Outcome], call: ToolCall) -> Outcome:
    """The first of those whose enforced action is the strictest."""
    return max(outcomes, key=lambda outcome: ACTION_STRICTNESS[outcome.engine.enforced(outcome.refusal, call)])


def _bound_legs(outcome: Outcome, leg: int) -> None:
    """Legs charge no budget, so their number has a bound of its own, which no rule's failing open lifts."""
    limit = outcome.engine.max_legs
    if leg > limit and outcome.refusal is None:
        outcome.refusal = Refusal(None, BLOCK, LEGS_EXCEEDED, {"limit": limit})


def _ambiguous(engine: Engine, plan: Plan, transport: str) -> Outcome:
    outcome = Outcome(engine, plan.tags, plan.tagged)
    outcome.refusal = Refusal(None, BLOCK, AMBIGUOUS_MESSAGE, {"transport": transport})
    return outcome
