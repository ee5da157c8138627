"""What a match can get wrong: keys that lead nowhere, ranges that are empty, predicates that exclude each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from subluminal.core.engine.where import MAX_SEGMENTS, segments
from subluminal.policy.lint.cover import match_covers, may_overlap, normal_match
from subluminal.policy.lint.entries import check_entries
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.keys import key_fault
from subluminal.policy.lint.parts import Part, Place, parts_of, reads_values, weight
from subluminal.policy.lint.predicates import Predicate, exclude, predicates_of
from subluminal.policy.lint.reporter import Linter

KEYED = (
    "key_equals", "key_in", "key_glob", "key_regex", "key_contains", "numeric_range", "path_within", "host_in",
    "command",
)  # fmt: skip


# Comparisons within one rule. A policy may be hostile, and what a shim reads must be read quickly.
MAX_COMPARED = 10_000


def check_matches(rule: dict[str, Any], linter: Linter, *, advise: bool) -> None:
    """`linter` stands at the rule. Without `advise`, comparisons that can only give warnings are left out."""
    for part in parts_of(rule):
        _check_keys(part, linter)
        _check_ranges(part, linter)
        _check_lists(part, linter)
        _check_missing(part, linter)
        if advise and weight(part.match) ** 2 <= MAX_COMPARED:
            _check_contradictions(part, linter)
        check_entries(part, linter)
        if part.place[-2:-1] == ("any_of",) and match_covers(normal_match(part.match), {}):
            message = f"{part.words[:-1]} matches every call, so the other alternatives do nothing"
            linter.warn(part.place, "matches-all", message, "remove it, or say what it asks for")
    if "unless" in rule:
        _check_unless(rule, linter)


def keys_of(part: Part) -> Iterator[tuple[Place, str]]:
    """Every key of a part and its place."""
    for field in ("has_keys", "missing_keys"):
        for number, key in enumerate(part.args.get(field, [])):
            yield (*part.place, "args", field, number), key
    for field in KEYED:
        for key in part.args.get(field, {}):
            yield (*part.place, "args", field, key), key


def _check_keys(part: Part, linter: Linter) -> None:
    for place, key in keys_of(part):
        if segments(key) > MAX_SEGMENTS:
            message = f"the key {shown(key)} has {segments(key)} segments; at most {MAX_SEGMENTS} are followed"
            linter.error(place, "bad-key", message, "ask for a key further up")
            continue
        fault = key_fault(key)
        if fault:
            linter.warn(place, "bad-key", f"the key {shown(key)} {fault[0]}", fault[1])


def _check_ranges(part: Part, linter: Linter) -> None:
    for key, limits in part.args.get("numeric_range", {}).items():
        _check_range(limits, f"numeric_range.{key}", (*part.place, "args", "numeric_range", key), linter)
    if "bytes" in part.args:
        limits = part.args["bytes"]
        _check_range(limits, "bytes", (*part.place, "args", "bytes"), linter)
        if limits.get("min", 0) == 0 and "max" not in limits and limits:
            message = "bytes with a min of 0 matches arguments of every size"
            linter.warn((*part.place, "args", "bytes"), "matches-all", message, "raise min, or add max")


def _check_range(limits: dict[str, Any], name: str, where: Place, linter: Linter) -> None:
    low, high = limits.get("min"), limits.get("max")
    if low is None and high is None:
        linter.error(where, "empty-range", f"{name} has neither min nor max", "add min, max or both")
    elif low is not None and high is not None and low > high:
        linter.error(where, "empty-range", f"{name} has min {low} above max {high}", "swap min and max")


def _check_lists(part: Part, linter: Linter) -> None:
    for key, values in part.args.get("key_in", {}).items():
        where = (*part.place, "args", "key_in", key)
        if not values:
            linter.error(where, "never-matches", f"key_in.{key} lists no value", "add a value or remove the key")
        elif key in part.args.get("key_equals", {}) and part.args["key_equals"][key] not in values:
            message = f"key_equals.{key} is not among key_in.{key}"
            linter.warn(where, "never-matches", message, "keep one of the two predicates")


def _check_missing(part: Part, linter: Linter) -> None:
    missing = part.args.get("missing_keys", [])
    if not missing:
        return
    asked = {key for place, key in keys_of(part) if "missing_keys" not in place}
    for number, key in enumerate(missing):
        if key in asked:
            where = (*part.place, "args", "missing_keys", number)
            message = f"{shown(key)} is in missing_keys, and another predicate asks for it"
            report: Callable[..., None] = linter.error
            if part.generous:
                message, report = f"{message}: only null, or a list of which some have it, meets both", linter.warn
            report(where, "never-matches", message, "keep one of the two, or write any_of")


def _check_contradictions(part: Part, linter: Linter) -> None:
    """Predicates on one key that no single value meets. Generously a list may still meet both, element by element."""
    by_key: dict[str, list[Predicate]] = {}
    for predicate in predicates_of(part.args):
        if predicate.field != "missing_keys":
            by_key.setdefault(predicate.key, []).append(predicate)
    for key, predicates in by_key.items():
        for one, other in _pairs(predicates):
            if one.field != other.field and (exclude(one, other) or exclude(other, one)):
                names = f"{_field(part, one)}.{key}", f"{_field(part, other)}.{key}"
                message = f"no {'single ' if part.generous else ''}value meets both {names[0]} and {names[1]}"
                where = (*part.place, "args", _field(part, other), key)
                linter.warn(where, "never-matches", message, "keep one of the two predicates")


def _pairs(predicates: list[Predicate]) -> Iterator[tuple[Predicate, Predicate]]:
    for number, one in enumerate(predicates):
        for other in predicates[number + 1 :]:
            yield one, other


def _field(part: Part, predicate: Predicate) -> str:
    """As it is written: `values` stands for two."""
    if predicate.field != "values":
        return predicate.field
    return "key_equals" if part.args.get("key_equals", {}).get(predicate.key) == predicate.wanted[0] else "key_in"


def _check_unless(rule: dict[str, Any], linter: Linter) -> None:
    match, unless = normal_match(rule["match"]), normal_match(rule["unless"])
    where = ("unless",)
    allows = rule["kind"] == "allow"
    if match_covers(unless, {}):
        message = "unless holds for every call, so the rule never applies"
        linter.error(where, "never-matches", message, "say which calls are excepted, or remove it")
    elif weight(match) * weight(unless) > MAX_COMPARED:
        return
    elif match_covers(unless, match, generous=None if not allows else True):
        report: Callable[..., None] = linter.error
        message = "unless holds for all that match matches, so the rule never applies"
        if not allows and reads_values((match, unless)):
            report, message = linter.warn, f"{message}, but to values that servers read so"
        report(where, "never-matches", message, "narrow unless, or widen match")
    elif not (may_overlap(match, unless) if allows else may_overlap(unless, match)):
        message = "unless has no call in common with match, so it excepts nothing"
        linter.warn(where, "no-effect", message, "compare its names, hours and values with those of match")
