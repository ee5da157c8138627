"""The narrowest change of one policy that lets a call through (or refuses its like), tried on the call itself.

    a deny              an allow just above it: the server, the tool, and the arguments that matter
    a dedupe            an allow for exactly these arguments with `override: [dedupe]`
    a budget, a rate    its limit raised, for the whole rule
    a breaker           its threshold raised
    --deny              a deny above the first rule that decides who may call the tool

The arguments that matter are those that the rule looked at, and the denies below it, which an allow sets aside too;
where it looked at none, all of them. What the record holds only masked, long texts and what is empty are not compared,
and that is said. Where nothing could be compared, any arguments would pass: that is done on request only.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from msgspec import Struct

from subluminal.contracts.globs import glob_fault, glob_test
from subluminal.contracts.vocabulary import ALLOW, BLOCK, DUPLICATE_CALL, PROMOTED, REJECT_WITH_HINT, UNINSPECTED_ARGS
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.control.suggest.rule_parts import glob, unique
from subluminal.core.engine.state import MAX_INTEGER
from subluminal.policy.document.tree import INT64_MAX, INT64_MIN
from subluminal.policy.edit.changes import LIMITED, Change
from subluminal.policy.lint.parts import parts_of
from subluminal.policy.replay.recorded import Rejudged, Remains, by_name, rejudge, remains_of

# Longer texts are contents: no two calls have the same, and a rule with one of them helps nobody.
MAX_TEXT = 200
MAX_KEYS = 32
MAX_NAMED = 8
# A limit is raised so many times, or as far above what was used as it was above nothing.
RAISED = 2
_LIMITS = {
    "budget": ("limit_calls", "limit_cost_units"),
    "rate_limit": ("capacity", "refill_tokens"),
    "breaker": ("error_threshold", "repeat_threshold", "latency_count"),
}
_BY_REASON = {
    "BREAKER_ERRORS": ("error_threshold",),
    "BREAKER_REPEAT": ("repeat_threshold",),
    "BREAKER_LATENCY": ("latency_count",),
}
_SPECIAL = re.compile(r"([.\[\\])")


class Made(Struct, eq=False):
    """`judged`: the call under the changed policy. `notes`: what a person should know of it."""

    change: Change
    snapshot: dict[str, Any]
    judged: Rejudged
    notes: list[str]


def make(recorded: Recorded, wish: Wish, snapshot: dict[str, Any], promote_id: str, used: dict[str, int]) -> Made:
    """`snapshot`: the policy that decided. `used`: how much of a limit is used now, by the names of its counters."""
    judged = rejudge(snapshot, recorded.run, recorded.call)
    notes: list[str] = []
    if wish.deny:
        change = _deny(recorded, wish, snapshot, promote_id, notes)
    else:
        rule = _refusing(recorded, snapshot)
        _check_wish(wish, rule)
        if rule["kind"] in LIMITED:
            change = _raise(recorded, wish, snapshot, rule, promote_id, used)
        else:
            change = _allow(recorded, wish, snapshot, rule, judged, promote_id, notes)
    changed = change.applied(snapshot, marked=True)
    if changed is None:
        raise CannotPromote(f"Rule {change.rule_id} is not in policy {snapshot['policy_id']} any more.")
    after = rejudge(changed, recorded.run, recorded.call)
    _check(after, wish, snapshot, change)
    return Made(change, changed, after, notes)


def _check_wish(wish: Wish, rule: dict[str, Any]) -> None:
    """What was asked for and means nothing here is no wish to pass over."""
    refused_by = f"rule {rule['rule_id']}, a {rule['kind']}, refused the call"
    if rule["kind"] not in LIMITED and wish.limit is not None:
        raise CannotPromote(f"--limit means nothing here: {refused_by}.", hint="Leave it out.")
    if rule["kind"] in LIMITED and (wish.tool is not None or wish.any_args):
        raise CannotPromote(
            f"--tool and --any-args mean nothing here: {refused_by}.",
            hint="Its limit is raised for all that it counts.",
        )


def _check(after: Rejudged, wish: Wish, snapshot: dict[str, Any], change: Change) -> None:
    """A saved pattern that misses its own call is worth nothing."""
    decision = after.explanation.decision
    if wish.deny:
        if snapshot["mode"] == "observe":
            raise CannotPromote(
                f"Policy {snapshot['policy_id']} only observes: a deny in it refuses nothing.",
                hint="`mode: guardrails` enforces it.",
            )
        if decision["action"] == ALLOW:
            raise CannotPromote(
                "A deny for this call would not refuse it.", hint="`sub policy explain --call` says why."
            )
    elif decision["action"] != ALLOW and change.rule is not None:
        by = decision["rule_id"] or decision["reason_code"]
        raise CannotPromote(
            f"An allow does not let the call through: {by} still refuses it.",
            hint="`sub policy explain --call CALL` tells it rule by rule; or edit the policy.",
        )


def _refusing(recorded: Recorded, snapshot: dict[str, Any]) -> dict[str, Any]:
    rule_id = recorded.known["rule_id"]
    rules: list[dict[str, Any]] = snapshot["rules"]
    found = next((rule for rule in rules if rule["rule_id"] == rule_id), None)
    if found is None:
        why = "no rule refused it" if rule_id is None else f"rule {rule_id} is not in policy {snapshot['policy_id']}"
        raise CannotPromote(
            f"The call cannot be promoted: {why} ({recorded.known['reason_code']}).", hint="`sub show CALL` tells more."
        )
    return found


# -- a rule that is put in ----------------------------------------------------------------------------------------


def _allow(
    recorded: Recorded,
    wish: Wish,
    snapshot: dict[str, Any],
    rule: dict[str, Any],
    judged: Rejudged,
    promote_id: str,
    notes: list[str],
) -> Change:
    call = recorded.call
    duplicate = rule["kind"] == "dedupe" or recorded.known["reason_code"] == DUPLICATE_CALL
    effect: dict[str, Any] = {"action": ALLOW, "reason_code": PROMOTED, "message": ""}
    above = rule["rule_id"]
    if duplicate:
        effect["override"] = ["dedupe"]
        above = _first_access(snapshot, judged)
    below = [other for other in _denies_below(snapshot, judged, above) if other is not rule]
    match = _match(recorded, wish, [] if duplicate else [rule, *below], notes)
    if below:
        named = ", ".join(other["rule_id"] for other in below[:MAX_NAMED]) + (", ..." if below[MAX_NAMED:] else "")
        notes.append(f"what it lets through is not asked about by the denies below it: {named}")
    summary = (
        f"Allowed for this run by {promote_id}, a promote of call {call.call_id}: rule {rule['rule_id']} is set aside."
    )
    added = {
        "rule_id": promote_id, "kind": "allow", "enabled": True, "severity": "info", "match": match, "effect": effect,
    }  # fmt: skip
    return Change(promote_id, snapshot["policy_id"], summary, above, added)


def _deny(recorded: Recorded, wish: Wish, snapshot: dict[str, Any], promote_id: str, notes: list[str]) -> Change:
    call = recorded.call
    summary = f"Refused for this run by {promote_id}, a promote of call {call.call_id}."
    action = REJECT_WITH_HINT if snapshot["mode"] == "control" else BLOCK
    effect = {"action": action, "reason_code": PROMOTED, "message": ""}
    added = {
        "rule_id": promote_id, "kind": "deny", "enabled": True, "severity": "warn",
        "match": _match(recorded, wish, [], notes), "effect": effect,
    }  # fmt: skip
    above = _first_access(snapshot, rejudge(snapshot, recorded.run, call))
    return Change(promote_id, snapshot["policy_id"], summary, above, added)


def _first_access(snapshot: dict[str, Any], judged: Rejudged) -> str | None:
    """The first allow or deny that this call meets; None: it meets none, and the last place will do."""
    met = {record["rule_id"] for record in judged.explanation.trace if record["matched"]}
    rules = [rule["rule_id"] for rule in snapshot["rules"] if rule["kind"] in ("allow", "deny")]
    return next((rule_id for rule_id in rules if rule_id in met), None)


def _denies_below(snapshot: dict[str, Any], judged: Rejudged, above: str | None) -> list[dict[str, Any]]:
    """From a rule on, those for this tool: an allow above them decides in their place."""
    asked = {record["rule_id"] for record in judged.explanation.trace if not by_name(str(record["why"]))}
    rules: list[dict[str, Any]] = snapshot["rules"]
    place = next((place for place, rule in enumerate(rules) if rule["rule_id"] == above), len(rules))
    return [rule for rule in rules[place:] if rule["kind"] == "deny" and rule["rule_id"] in asked]


def _match(recorded: Recorded, wish: Wish, rules: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """`rules`: the arguments that the first looks at are those that matter, with those of the others."""
    call = recorded.call
    tool = glob(call.tool_name) if wish.tool is None else _checked_glob(wish.tool, call.tool_name)
    match: dict[str, Any] = {"server_name": {"glob": [glob(call.server_name)]}, "tool_name": {"glob": [tool]}}
    if not wish.any_args:
        match["args"] = _predicates(remains_of(call), rules, recorded, notes)
    return match


def _checked_glob(wanted: str, tool_name: str) -> str:
    fault = glob_fault(wanted)
    if fault:
        raise CannotPromote(f"--tool {wanted!r} {fault[0]}.", hint=f"{fault[1].capitalize()}.")
    if not glob_test(wanted)(tool_name):
        raise CannotPromote(f"--tool {wanted!r} does not match {tool_name}, the tool of the call.")
    return wanted


def _predicates(remains: Remains, rules: list[dict[str, Any]], recorded: Recorded, notes: list[str]) -> dict[str, Any]:
    value = remains.value
    if value is None or recorded.known["reason_code"] == UNINSPECTED_ARGS:
        why = remains.why or "they were not inspected"
        raise CannotPromote(
            f"Its arguments cannot be compared: {why}.",
            hint="--any-args makes a rule for the tool with any arguments.",
        )
    looked = _looked_at(rules)
    chosen = {key: item for key, item in value.items() if key in looked} or value
    absent = sorted(key for key in looked if key not in value and not _SPECIAL.search(key))
    masked = sorted(chosen.keys() & (remains.masked or ()))
    notes += [f"{key} is masked in the record: any value of it passes" for key in masked]
    found: dict[str, Any] = {}
    equal: dict[str, Any] = {}
    among: dict[str, list[Any]] = {}
    present = [_SPECIAL.sub(r"\\\1", key) for key in masked]
    for path, item in _leaves({key: item for key, item in chosen.items() if key not in masked}, ""):
        if item is None:
            notes.append(f"{path} is null, empty, or a list in a list: any value of it passes")
        elif isinstance(item, str) and (len(item) > MAX_TEXT or "\n" in item):
            notes.append(f"{path} is {len(item):,} characters long: any value of it passes")
            present.append(path)
        elif isinstance(item, list):
            among[path] = [_number(path, element) for element in item]
        else:
            equal[path] = _number(path, item)
    if remains.why is not None and remains.masked is None:
        raise CannotPromote(
            f"Its arguments cannot be compared: {remains.why}.",
            hint="--any-args makes a rule for the tool with any arguments.",
        )
    if not (equal or among or present or absent):
        raise CannotPromote(
            "The call has no arguments that a rule could compare.",
            hint="--any-args makes a rule for the tool with any arguments.",
        )
    if len(equal) + len(among) > MAX_KEYS:
        raise CannotPromote(
            f"The call has more than {MAX_KEYS} arguments that would have to be compared.",
            hint="--any-args makes a rule for the tool with any arguments.",
        )
    if present:
        found["has_keys"] = present
    if absent:
        found["missing_keys"] = absent
    if equal:
        found["key_equals"] = equal
    if among:
        found["key_in"] = among
    return found


def _number(path: str, value: Any) -> Any:
    """As a policy can write it."""
    if isinstance(value, int) and not isinstance(value, bool) and not INT64_MIN <= value <= INT64_MAX:
        value = Decimal(value)
    if not isinstance(value, Decimal):
        return value
    if value == Decimal(repr(float(value))):
        return float(value)
    raise CannotPromote(
        f"A rule cannot compare {path}: it is a number that not all readers have exactly.",
        hint="--any-args makes a rule for the tool with any arguments.",
    )


def _looked_at(rules: list[dict[str, Any]]) -> set[str]:
    """Top-level keys that predicates of the rules name; none where the first names none."""
    keys: set[str] = set()
    for rule in rules:
        for part in parts_of(rule):
            for field, named in part.args.items():
                if field != "bytes":
                    keys.update(re.split(r"(?<!\\)[.\[]", key)[0] for key in named)
        if not keys:
            break
    return keys


def _leaves(value: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Scalars by their paths; a list of scalars is one leaf, `path[]` with the values that it has. None: there is
    nothing to compare."""
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        path = prefix + _SPECIAL.sub(r"\\\1", key)
        below = [(path, item)]
        if isinstance(item, dict):
            below = _leaves(item, path + ".")
        elif isinstance(item, list):
            below = _elements(item, path + "[]")
        found += below or [(path, None)]
    return found


def _elements(items: list[Any], path: str) -> list[tuple[str, Any]]:
    scalars = [item for item in items if not isinstance(item, (dict, list)) and item is not None]
    if len(scalars) == len(items):
        distinct = list(dict.fromkeys(scalars))
        return [(path, distinct)] if distinct else []
    found: dict[str, list[Any]] = {}
    for item in items:
        for below, leaf in _leaves(item, path + ".") if isinstance(item, dict) else []:
            if leaf is not None:
                found.setdefault(below, []).extend(leaf if isinstance(leaf, list) else [leaf])
    return [(below, list(dict.fromkeys(values))) for below, values in found.items()]


# -- a limit that is raised ---------------------------------------------------------------------------------------


def _raise(
    recorded: Recorded,
    wish: Wish,
    snapshot: dict[str, Any],
    rule: dict[str, Any],
    promote_id: str,
    used: dict[str, int],
) -> Change:
    effect = rule["effect"][rule["kind"]]
    names = _BY_REASON.get(recorded.known["reason_code"], _LIMITS[rule["kind"]])
    before = {name: effect[name] for name in names if isinstance(effect.get(name), int) and effect[name] >= 0}
    if not before:
        raise CannotPromote(f"Rule {rule['rule_id']} has no limit that could be raised.")
    first = next(iter(before))
    after = {name: min(_above(limit, used.get(name, 0)), MAX_INTEGER) for name, limit in before.items()}
    if wish.limit is not None:
        if not before[first] < wish.limit <= MAX_INTEGER:
            raise CannotPromote(
                f"--limit {wish.limit} does not raise {first} of rule {rule['rule_id']}, which is {before[first]}.",
                hint=f"Limits go up to {MAX_INTEGER}.",
            )
        after = {first: wish.limit}
    told = ", ".join(f"{name} from {before[name]} to {limit}" for name, limit in after.items())
    summary = (
        f"For this run {promote_id}, a promote of call {recorded.call.call_id}, raised rule {rule['rule_id']}: {told}."
    )
    return Change(promote_id, snapshot["policy_id"], summary, rule["rule_id"], limits=after)


def _above(limit: int, used: int) -> int:
    return max(limit * RAISED, used + max(limit, 1))


def persistent_id(recorded: Recorded, snapshot: dict[str, Any], deny: bool) -> str:
    """A name that says what the rule is for."""
    call = recorded.call
    word = "refuse" if deny else "allow"
    return unique(f"{word}-{call.server_name}-{call.tool_name}", {rule["rule_id"] for rule in snapshot["rules"]})
