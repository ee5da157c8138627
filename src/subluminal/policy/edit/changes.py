"""One change that a promote makes to a policy: a rule put in above another, or limits of a rule raised.

The same change is applied to the compiled policies of one run (`--session`), and to the text of a policy (`--persist`,
by `splice`), so that both come to the same rules.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from subluminal.contracts.identity import Identity
from subluminal.core.engine.accumulators import build_rules
from subluminal.policy.sources import ABOVE_THE_USER

# The kinds whose effects have limits.
LIMITED = ("budget", "rate_limit", "breaker")


class Change(Struct, omit_defaults=True):
    """`rule` stands above `rule_id`, or last where that is None; without `rule`, `limits` of `rule_id` are set.

    `summary` tells it in a sentence, which every decision that follows from it repeats. `origin`: where the policy that
    decided is from. The rest says who did it, when, and because of which call.
    """

    promote_id: str
    policy_id: str
    summary: str
    rule_id: str | None = None
    rule: dict[str, Any] | None = None
    limits: dict[str, int] = {}
    origin: str = ""
    call_id: str = ""
    by: str = ""
    at: str = ""

    @property
    def tightens(self) -> bool:
        return self.rule is not None and self.rule.get("kind") == "deny"

    def applied(self, snapshot: dict[str, Any], *, marked: bool) -> dict[str, Any] | None:
        """The policy with it; None where it has no place in it any more. `marked`: decisions shall tell of it."""
        rules: list[dict[str, Any]] = snapshot["rules"]
        place = next((place for place, rule in enumerate(rules) if rule["rule_id"] == self.rule_id), None)
        mark = {"promoted": {"promote_id": self.promote_id, "summary": self.summary}}
        if self.rule is not None:
            if place is None and self.rule_id is not None:
                return None
            added = {**self.rule, **(mark if marked else {})}
            place = len(rules) if place is None else place
            return {**snapshot, "rules": [*rules[:place], added, *rules[place:]]}
        if place is None:
            return None
        was = rules[place]
        if was["kind"] not in LIMITED:
            return None
        raised = with_limits(was, self.limits)
        if marked:
            # Raised twice, it is still compared with what the policy says.
            raised["promoted"] = {**mark["promoted"], "was": was.get("promoted", {}).get("was", was)}
        return {**snapshot, "rules": [*rules[:place], raised, *rules[place + 1 :]]}


def with_limits(rule: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    effect = rule["effect"]
    return {**rule, "effect": {**effect, rule["kind"]: {**effect[rule["kind"]], **limits}}}


def with_promotes(policies: list[tuple[str, dict[str, Any]]], promotes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The policies of a run, each with its origin, with what was promoted in it.

    A change belongs to the policy that decided: the first with its id in which it has a place, those of its origin
    before others, for a repository may give its policy the id of the user's. Nothing loosens the policy of an
    organisation or a fleet. What is no change of ours is passed over.
    """
    found = [snapshot for _, snapshot in policies]
    for promote in promotes:
        try:
            change = msgspec.convert(promote, Change)
        except msgspec.ValidationError:
            continue
        wanted = change.origin
        for number, (origin, _) in sorted(enumerate(policies), key=lambda each: each[1][0] != wanted):
            if found[number]["policy_id"] != change.policy_id or (origin in ABOVE_THE_USER and not change.tightens):
                continue
            changed = change.applied(found[number], marked=True)
            if changed is not None and _can_be_built(changed["rules"], change):
                found[number] = changed
                break
    return found


def _can_be_built(rules: list[dict[str, Any]], change: Change) -> bool:
    """A file that somebody has written by hand must not take a producer down."""
    concerned = [rule for rule in rules if rule.get("promoted", {}).get("promote_id") == change.promote_id]
    try:
        return bool(build_rules(concerned, Identity("promote")))
    except Exception:
        return False
