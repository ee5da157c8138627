"""Which of two matches, or of two rules, is the wider: does one apply to every call to which the other applies?

All answers are on the safe side: "covers" only where it is certain, "no overlap" only where it is. Matches are in the
normal form that `normal_match` gives and snapshots hold.

The same words are two sets of calls. In the generous sense, in which what stops a call is judged, any reading of a
value and any element of a list will do; in the strict sense, in which it is let through, every one must. The strict
set lies within the generous one. A rule applies where its `match` holds and its `unless`, in the other sense, does not.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.policy import expand_hours
from subluminal.policy.lint.parts import NAMES, Match
from subluminal.policy.lint.patterns import name_covers, names_overlap, normal_globs
from subluminal.policy.lint.predicates import exclude, follows, predicates_of

Rule = dict[str, Any]


def normal_match(match: Match) -> Match:
    """Globs in normal form, hours as a sorted list of numbers; in every alternative as well."""
    normal = dict(match)
    for field in NAMES:
        if "glob" in match.get(field, {}):
            normal[field] = {**match[field], "glob": normal_globs(match[field]["glob"])}
    if "key_glob" in match.get("args", {}):
        globs = {key: normal_globs(values) for key, values in match["args"]["key_glob"].items()}
        normal["args"] = {**match["args"], "key_glob": globs}
    if "utc_hours" in match.get("time", {}):
        normal["time"] = {**match["time"], "utc_hours": expand_hours(match["time"]["utc_hours"])}
    if "any_of" in match:
        normal["any_of"] = [normal_match(alternative) for alternative in match["any_of"]]
    return normal


def match_covers(wide: Match, narrow: Match, *, generous: bool | None = None) -> bool:
    """Both matches in the same sense; None: in either."""
    for facts in _branches(narrow):
        if not _follows(wide, facts, generous):
            return False
        alternatives = wide.get("any_of")
        if alternatives and not any(_follows(alternative, facts, generous) for alternative in alternatives):
            return False
    return True


def may_overlap(strict: Match, generous: Match) -> bool:
    """Whether one call may meet both, the first judged strictly and the second generously."""
    return any(
        not any(_exclude(a, b) for a in one for b in other)
        for one in _branches(strict)
        for other in _branches(generous)
    )


def rule_covers(wide: Rule, narrow: Rule, kind: str) -> bool:
    """Whether the one applies wherever the other does, both as rules of this kind.

    A tag must do so in both senses: it gives a class for certain, or as a suspicion.
    """
    sense = {"allow": False, "tag": None}.get(kind, True)
    if not match_covers(wide["match"], narrow["match"], generous=sense):
        return False
    unless = wide.get("unless")
    if unless is None:
        return True
    others = None if sense is None else not sense
    if "unless" in narrow and match_covers(narrow["unless"], unless, generous=others):
        return True
    return (sense is False or not may_overlap(unless, narrow["match"])) and (
        sense is True or not may_overlap(narrow["match"], unless)
    )


def rules_overlap(allow: Rule, deny: Rule) -> bool:
    """Whether one call may meet both an allow and a deny."""
    if "unless" in allow and match_covers(allow["unless"], deny["match"], generous=True):
        return False
    if "unless" in deny and match_covers(deny["unless"], allow["match"], generous=False):
        return False
    return may_overlap(allow["match"], deny["match"])


def _branches(match: Match) -> list[list[Match]]:
    """The match as alternatives, each a list of what holds together."""
    return [[match, alternative] for alternative in match["any_of"]] if match.get("any_of") else [[match]]


def _follows(wide: Match, facts: list[Match], generous: bool | None) -> bool:
    """Every member of `wide` must follow from a fact; `any_of` is not looked at."""
    for field in NAMES:
        if field in wide and not any(name_covers(wide[field], fact.get(field)) for fact in facts):
            return False
    if "risk_class" in wide:
        classes = set(wide["risk_class"])
        if not any("risk_class" in fact and set(fact["risk_class"]) <= classes for fact in facts):
            return False
    hours = wide.get("time", {}).get("utc_hours")
    if hours is not None and not any(_hours(fact) <= set(hours) for fact in facts):
        return False
    if "args" not in wide:
        return True
    known = [predicate for fact in facts for predicate in predicates_of(fact.get("args", {}))]
    return all(
        any(follows(wanted, predicate, generous) for predicate in known) for wanted in predicates_of(wide["args"])
    )


def _exclude(strict: Match, generous: Match) -> bool:
    if not all(names_overlap(strict.get(field), generous.get(field)) for field in NAMES):
        return True
    if _hours(strict).isdisjoint(_hours(generous)):
        return True
    if "args" not in strict or "args" not in generous:
        return False
    others = list(predicates_of(generous["args"]))
    return any(exclude(one, other) for one in predicates_of(strict["args"]) for other in others)


def _hours(match: Match) -> set[int]:
    return set(match.get("time", {}).get("utc_hours", range(24)))
