"""One compiled bundle over one call: the rules in order, and the words of the decision.

One pass in order. `tag` feeds later rules. The first matching `allow` or `deny` decides access. Budgets, rate limits,
breakers and dedupe update their state on every match whatever access said, and one that triggers is enforced even
under an earlier `allow`; where that allow says `override: [dedupe]`, no dedupe rule is, above it or below. The
decision is the first in order of the deciding `deny` and the triggered accumulators; else ALLOW, citing the `allow`
rule or none.

A rule that cannot be evaluated stands in its place in the order as a refusal when `decision_on_error` is BLOCK, and is
passed over when it is ALLOW: failing open never hides another rule's refusal.
"""

from __future__ import annotations

from msgspec.structs import replace

from subluminal.contracts.decision import CARRIED_OUT, Decision, PolicyRef
from subluminal.contracts.vocabulary import (
    ALLOW,
    AMBIGUOUS_MESSAGE,
    BLOCK,
    DEFAULT_ALLOW,
    EVALUATION_ERROR,
    MAX_LEGS,
    POLICY_OVERDUE,
    REJECT_WITH_HINT,
    TERMINATE_RUN,
    THROTTLE,
    TOOL_NOT_LISTED,
    UNINSPECTED_ARGS,
    UNJUDGED_ARGS,
)
from subluminal.core.engine.accumulators import Accumulator, BreakerRule, build_rules
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.hints import clip, duration, fill, make_hint, show_name, suggest, summary
from subluminal.core.engine.listing import rules_of
from subluminal.core.engine.matchers import selectors_match
from subluminal.core.engine.plan import Plan, Planner
from subluminal.core.engine.rules import Judgement, Outcome, Refusal, Rule
from subluminal.core.engine.state import MAX_INTEGER, MAX_TERMINATE_CHARS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.identity import Identity
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.places import Places
    from subluminal.core.engine.rules import AccessRule, Trip
    from subluminal.core.engine.trace import Tracer

READ_LIKE = "read_like"
_NOT_AT_HAND = {
    UNINSPECTED_ARGS: "arguments were not inspected",
    TOOL_NOT_LISTED: "the server has not listed the tool",
    UNJUDGED_ARGS: "cannot be judged",
    POLICY_OVERDUE: "cannot be judged",
}
DEFAULT_BACKOFF_MS = 1_000


class Engine:
    """One compiled bundle for one identity. `applies` says whether its selectors match."""

    def __init__(
        self,
        snapshot: dict[str, Any],
        identity: Identity,
        places: Places | None = None,
        *,
        of_repository: bool = False,
    ) -> None:
        defaults = snapshot.get("defaults") or {}
        self.policy = PolicyRef(snapshot["policy_id"], snapshot["version"], snapshot.get("policy_hash") or "")
        self.mode: str = snapshot["mode"]
        self._selectors = snapshot.get("selectors")
        self.applies = self.selects(identity)
        self.fails_open = defaults.get("decision_on_error") == ALLOW
        reads = (READ_LIKE,) if defaults.get("fail_open_read_tools") else ()
        self.fails_open_for = frozenset(defaults.get("fail_open_classes") or ()).union(reads)
        self.max_legs = min(int(defaults.get("max_legs") or MAX_LEGS), MAX_INTEGER)
        self.changed_tools: str = defaults.get("changed_tools") or "allow"
        self.hides_denied = defaults.get("hide_denied_tools") is True
        self.checks_schemas = (defaults.get("check_schemas") or "none") != "none"
        self.overdue: str | None = snapshot.get("overdue")
        rules = rules_of(snapshot, of_repository)
        self.places = places if _follows_paths(rules) else None
        if self.places is not None:
            self.places.seen.clear()  # entries of rules are led through the links of now
        self.rules = build_rules(rules, identity, places)
        self.wide = any(isinstance(rule, Accumulator) and rule.wide for rule in self.rules)
        # Distinguishes the state of bundles that carry the same policy_id; set by the stack.
        self.state_name = self.policy.policy_id
        self.promoted = any("promoted" in rule.spec for rule in self.rules)
        self._planner = Planner(self.rules)
        self._allowed: dict[str | None, Decision] = {}

    def selects(self, identity: Identity) -> bool:
        return selectors_match(self._selectors, identity)

    # -- judging ----------------------------------------------------------------------------------------------

    def plan(self, call: ToolCall, complete: bool = False) -> Plan:
        return self._planner.plan(self.state_name, call.server_name, call.tool_name, call.risk_classes, complete)

    def evaluate(self, plan: Plan, judgement: Judgement, tracer: Tracer | None) -> Outcome:
        """One pass over the rules of the plan."""
        outcome = Outcome(self, plan.tags, plan.tagged)
        if not plan.steps:
            if plan.access is not None:
                outcome.refusal = plan.access.apply(judgement, outcome, None)
            return outcome
        refusals: list[Refusal] | None = None
        before: Any = None
        if self.places is not None:
            self.places.seen.clear()  # links may have changed since the last call
        for step in plan.found_for(judgement) if plan.indexed and tracer is None else plan.steps:
            if tracer is not None:
                before = tracer.peek(step, judgement)
            refusal = None
            apply = step.apply
            try:
                if step.certain:
                    why = "matches"
                    refusal = apply(judgement, outcome, step.keys)
                elif step.decides_access and outcome.access is not None:
                    why = "access was already decided"
                elif step.check_risk and not step.rule.classed(outcome):
                    why = "risk_class does not match"
                elif step.conditional and not (
                    step.rule.holds(judgement, outcome)
                    if (ask := step.ask) is None
                    else ask(judgement.held or judgement.args())
                ):
                    why = "arguments or time do not match"
                else:
                    why = "matches"
                    refusal = apply(judgement, outcome, step.keys)
            except Unavailable as unavailable:
                refusal = self._failure(step.rule, unavailable.reason_code, unavailable.why)
                why = _NOT_AT_HAND[unavailable.reason_code] + (unavailable.why and f": {unavailable.why}")
            except Exception as error:  # a rule must never take the shim down: decision_on_error says what holds
                why = f"could not be evaluated: {type(error).__name__}"
                refusal = self._failure(step.rule, EVALUATION_ERROR)
            if refusal is not None:
                refusals = [*(refusals or ()), refusal]
            if tracer is not None:
                tracer.note(self, step, why, before, refusal, judgement, outcome)
        if refusals is not None:
            access = outcome.access
            if access is not None and access.overrides:
                refusals = _not_overridden(refusals, access, None if tracer is None else tracer.overridden)
            self._settle_refusals(outcome, refusals)
        return outcome

    def _failure(self, rule: Rule | None, reason_code: str, why: str = "") -> Refusal:
        return Refusal(rule, BLOCK, reason_code, {"failed": True, "why": why} if why else {"failed": True})

    def _settle_refusals(self, outcome: Outcome, refusals: list[Refusal]) -> None:
        """The first refusal that stands; failures stand unless this bundle fails open for this call.

        Only the policy's own tags count here: a server's word about its tools must not open a door.
        """
        open_ = self.fails_open or not self.fails_open_for.isdisjoint(outcome.tagged)
        for refusal in refusals:
            if open_ and "failed" in refusal.facts:
                outcome.failed = outcome.failed or refusal
            else:
                outcome.refusal = refusal
                return

    def fail(self, plan: Plan, reason_code: str, why: str) -> Outcome:
        """The outcome when no rule could be evaluated at all."""
        outcome = Outcome(self, plan.tags, plan.tagged)
        self._settle_refusals(outcome, [self._failure(None, reason_code, why)])
        return outcome

    # -- wording ----------------------------------------------------------------------------------------------

    def enforces(self, call: ToolCall) -> bool:
        """Not where the bundle only observes, nor a call that was carried out before it was judged."""
        return self.mode != "observe" and not call.observed

    def enforced(self, refusal: Refusal | None, call: ToolCall) -> str:
        """The action that this bundle makes of a refusal."""
        if refusal is None or not self.enforces(call):
            return ALLOW
        return self._as_mode(refusal)

    def _as_mode(self, refusal: Refusal) -> str:
        if refusal.action == BLOCK and self.mode == "control" and refusal.reason_code != AMBIGUOUS_MESSAGE:
            return REJECT_WITH_HINT
        return refusal.action

    def decision(self, outcome: Outcome, judgement: Judgement) -> Decision:
        refusal = outcome.refusal
        if refusal is None:
            return self.allow(outcome)
        refused = self._refuse(refusal, judgement)
        if self.overdue and refusal.reason_code != POLICY_OVERDUE:
            refused.summary = clip(f"{refused.summary} ({self.overdue}.)", 480)
        if self.enforces(judgement.call):
            return refused
        text = "Allowed: the policy only observes." if self.mode == "observe" else CARRIED_OUT
        return replace(self.allow(outcome), summary=text, would=refused)

    def allow(self, outcome: Outcome) -> Decision:
        if outcome.failed is not None:
            failed = outcome.failed
            rule_id = failed.rule.rule_id if failed.rule is not None else None
            text = "Allowed although the policy could not be evaluated: the policy says to fail open."
            if failed.reason_code == POLICY_OVERDUE:
                text = f"Allowed although {self.overdue}: the policy says to fail open."
            return Decision(ALLOW, rule_id, "warn", failed.reason_code, text, policy=self.policy)
        if outcome.promoted is not None:
            from subluminal.core.engine.promoted import allowed_by

            return allowed_by(outcome.promoted, self.policy)
        rule = outcome.access
        if rule is not None and rule.action != ALLOW:
            rule = None
        key = rule.rule_id if rule is not None else None
        decision = self._allowed.get(key)
        if decision is None:
            if rule is None:
                decision = Decision(ALLOW, None, "info", DEFAULT_ALLOW, "No rule objects.", policy=self.policy)
            else:
                text = clip(rule.message or f"Allowed by rule {rule.rule_id}.", 480)
                decision = Decision(
                    ALLOW, rule.rule_id, rule.severity, rule.reason_code or "", text, policy=self.policy
                )
            self._allowed[key] = decision
        return decision

    def _names(self, call: ToolCall) -> dict[str, Any]:
        return {
            "tool": show_name(call.tool_name),
            "server": show_name(call.server_name),
            "policy_id": self.policy.policy_id,
        }

    def _refuse(self, refusal: Refusal, judgement: Judgement) -> Decision:
        rule = refusal.rule
        detail = rule.detail if rule is not None and "failed" not in refusal.facts else {}
        message = rule.message if rule is not None and detail else None
        facts = {**self._names(judgement.call), "reason_code": refusal.reason_code, **refusal.facts}
        facts["rule_id"] = rule.rule_id if rule is not None else None
        if detail and rule is not None and rule.kind == "deny" and (rule.unless is not None or not message):
            from subluminal.core.engine.terms import is_shorthand, terms_of

            facts["terms"] = None if message else terms_of(rule.match, rule.unless)
            facts["shorthand"] = is_shorthand(rule.unless, _args_or_none(judgement) or {})
        action = self._as_mode(refusal)
        severity = rule.severity if rule is not None else "warn"
        text = summary(refusal.reason_code, facts, message)
        if rule is not None and "promoted" in rule.spec:
            text = clip(f"{text} {rule.spec['promoted']['summary']}", 480)
        decision = Decision(action, facts["rule_id"], severity, refusal.reason_code, text, policy=self.policy)
        if action == THROTTLE:
            wait = facts.get("backoff_ms") or DEFAULT_BACKOFF_MS
            decision.backoff_ms = wait
            decision.retry_advice = detail.get("retry_advice") or f"Wait {duration(wait)}, then retry."
        elif action == REJECT_WITH_HINT:
            template = detail.get("suggested_args") or None
            args = None if template is None else _args_or_none(judgement)
            decision.hint = make_hint(
                refusal.reason_code,
                facts,
                budget_or_rate=rule.hint_kind if rule is not None and detail else None,
                hint_text=detail.get("hint_text"),
                suggested=suggest(template, args, judgement.call.bytes_in, facts),
                retry_advice=detail.get("retry_advice"),
                message=message,
            )
        elif action == TERMINATE_RUN:
            text = fill(detail.get("hint_text") or message or decision.summary, facts)
            code = detail.get("terminate_code") or refusal.reason_code
            decision.terminate = (code, clip(text, MAX_TERMINATE_CHARS))
        return decision

    def trip_message(self, rule: BreakerRule, trip: Trip, call: ToolCall) -> tuple[str, str]:
        """Code and message with which a breaker terminates the run when a call has ended."""
        names = self._names(call)
        facts = {**names, **trip, "limit": trip["threshold"], "count": trip["threshold"], "used": trip["threshold"]}
        text = fill(rule.detail.get("hint_text") or rule.message or "", facts)
        text = text or f"{names['tool']} on {names['server']} tripped breaker {rule.rule_id} ({trip['reason_code']})."
        return rule.detail.get("terminate_code") or trip["reason_code"], text


def _not_overridden(
    refusals: list[Refusal], allow: AccessRule, overridden: Callable[[Rule, str], None] | None
) -> list[Refusal]:
    left = []
    for refusal in refusals:
        rule = refusal.rule
        if rule is None or rule.kind not in allow.overrides:
            left.append(refusal)
        elif overridden is not None:
            overridden(rule, allow.rule_id)
    return left


def _follows_paths(rules: list[dict[str, Any]]) -> bool:
    matches = [match for rule in rules for match in (rule.get("match"), rule.get("unless")) if match]
    parts = [part for match in matches for part in (match, *(match.get("any_of") or ()))]
    return any("path_within" in (part.get("args") or ()) for part in parts)


def _args_or_none(judgement: Judgement) -> Any:
    try:
        return judgement.args()
    except Exception:  # a suggestion is a courtesy: without arguments it holds only the rule's own part
        return None
