"""What a rule's being there does, compared with its not being there.

A rule that refuses tightens. An allow loosens where it stands above a deny, or overrides a dedupe rule. A tag does what
the rules below do that ask for its classes; in an `unless` they do the contrary.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.vocabulary import ALLOW
from subluminal.policy.diff.change import LOOSENS, TIGHTENS, opposite
from subluminal.policy.lint.cover import Rule, may_overlap, rules_overlap
from subluminal.policy.lint.parts import classes_asked

RESTRICTING = frozenset(("deny", "budget", "rate_limit", "breaker", "dedupe"))

# Which ways it goes, and why; empty where no decision depends on it.
Effects = dict[str, str]


class Side:
    """One of the two policies."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        self.rules: list[Rule] = snapshot["rules"]
        self.place = {rule["rule_id"]: index for index, rule in enumerate(self.rules)}
        self._open = fail_open_classes(snapshot["defaults"])
        self._asked: list[dict[str, Effects]] | None = None

    def effects(self, rule: Rule) -> Effects:
        """Of a rule of this side, as if it were enabled."""
        if rule["kind"] in RESTRICTING:
            return {TIGHTENS: "it refuses calls"}
        if rule["kind"] == "allow":
            return self._of_allow(rule)
        return self.of_classes(rule, rule["effect"]["tag"]["add_risk_class"])

    def of_classes(self, tag: Rule, classes: list[str]) -> Effects:
        """What it does that a tag rule gives these classes."""
        return _merged(self._asked_below(self.place[tag["rule_id"]]).get(word, {}) for word in classes)

    def _of_allow(self, rule: Rule) -> Effects:
        effects: Effects = {}
        below = [other for other in self.rules[self.place[rule["rule_id"]] + 1 :] if other["enabled"]]
        denied = next((r for r in below if r["kind"] == "deny" and rules_overlap(rule, r)), None)
        if denied is not None:
            effects[LOOSENS] = f"it overrides deny {denied['rule_id']}"
        if not self.dedupes(rule):
            return effects
        if overrides_dedupe(rule):
            effects.setdefault(LOOSENS, f"it overrides dedupe {self.dedupes(rule)[0]}")
        else:
            passed = (r for r in below if overrides_dedupe(r) and may_overlap(rule["match"], r["match"]))
            hidden = next(passed, None)
            if hidden is not None:
                effects[TIGHTENS] = f"it decides before {hidden['rule_id']}, which overrides dedupe"
        return effects

    def dedupes(self, allow: Rule) -> list[str]:
        """The dedupe rules that an allow could override."""
        return [r["rule_id"] for r in self.rules if r["kind"] == "dedupe" and r["enabled"] and rules_overlap(allow, r)]

    def _asked_below(self, index: int) -> dict[str, Effects]:
        """For each class what depends on it below a place. Made once, from the last rule to the first."""
        if self._asked is None:
            let_through = {LOOSENS: "its classes are let through where they cannot be judged"}
            asked: dict[str, Effects] = dict.fromkeys(self._open, let_through)
            self._asked = [{}] * len(self.rules)
            for at in range(len(self.rules) - 1, -1, -1):
                self._asked[at] = asked
                asked = _with_rule(asked, self.rules[at])
        return self._asked[index]


def _with_rule(asked: dict[str, Effects], rule: Rule) -> dict[str, Effects]:
    wanted = classes_asked(rule["match"])
    excepted = classes_asked(rule.get("unless", {}))
    if not rule["enabled"] or not (wanted or excepted):
        return asked
    if rule["kind"] == "tag":
        own = list(_merged(asked.get(word, {}) for word in rule["effect"]["tag"]["add_risk_class"]))
    else:
        own = [TIGHTENS if rule["kind"] in RESTRICTING else LOOSENS]
    why = f"rule {rule['rule_id']} asks for its classes"
    asked = dict(asked)
    for word in wanted:
        asked[word] = {**dict.fromkeys(own, why), **asked.get(word, {})}
    for word in excepted:
        asked[word] = {**dict.fromkeys(map(opposite, own), why), **asked.get(word, {})}
    return asked


def _merged(several: Any) -> Effects:
    return {direction: why for effects in several for direction, why in effects.items()}


def overrides_dedupe(rule: Rule) -> bool:
    return rule["kind"] == "allow" and "dedupe" in rule["effect"].get("override", [])


def fail_open_classes(defaults: dict[str, Any]) -> set[str]:
    """The classes of calls that are let through although they cannot be judged, where others are not."""
    if defaults["decision_on_error"] == ALLOW:
        return set()
    reads = {"read_like"} if defaults["fail_open_read_tools"] else set()
    return reads | set(defaults.get("fail_open_classes", []))
