"""Which of two matches is the wider: does every call that one matches match the other as well?

All answers are on the safe side: `match_covers` says yes only where it is certain, `may_overlap` says no only where it
is. Matches are in the normal form that `normal_match` gives and snapshots hold. Both must be judged in the same sense,
strictly or generously: an allow covers less of a deny than it seems to.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.policy import expand_hours
from subluminal.policy.lint.patterns import name_covers, names_overlap, normal_globs

Match = dict[str, Any]
Wanted = dict[str, list[set[tuple[bool, Any]]]]

# Tools first: they tell rules apart sooner.
_NAMES = ("tool_name", "server_name")


def normal_match(match: Match) -> Match:
    """Globs in normal form, hours as a sorted list of numbers; in every alternative as well."""
    normal = dict(match)
    for field in _NAMES:
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


def match_covers(wide: Match, narrow: Match) -> bool:
    if not all(name_covers(wide.get(field), narrow.get(field)) for field in _NAMES):
        return False
    if "risk_class" in wide and not ("risk_class" in narrow and set(narrow["risk_class"]) <= set(wide["risk_class"])):
        return False
    if "args" in wide and not _args_cover(wide["args"], narrow.get("args", {})):
        return False
    hours = wide.get("time", {}).get("utc_hours")
    return hours is None or set(narrow.get("time", {}).get("utc_hours", range(24))) <= set(hours)


def may_overlap(a: Match, b: Match) -> bool:
    return all(names_overlap(a.get(field), b.get(field)) for field in _NAMES)


def _args_cover(wide: dict[str, Any], narrow: dict[str, Any]) -> bool:
    """Every predicate of `wide` must follow from a predicate of `narrow`."""
    allowed = _wanted_values(narrow)
    ranges = narrow.get("numeric_range", {})
    if not all(
        key in allowed or key in ranges or key in narrow.get("has_keys", []) for key in wide.get("has_keys", [])
    ):
        return False
    for key, choices in _wanted_values(wide).items():
        if not all(any(values <= wanted for values in allowed.get(key, [])) for wanted in choices):
            return False
    return all(_range_covers(limits, key, allowed, ranges) for key, limits in wide.get("numeric_range", {}).items())


def _wanted_values(args: dict[str, Any]) -> Wanted:
    """The values that key_equals and key_in each want for a key. Not what both want: one value may be read as two."""
    wanted = {key: [{_typed(value) for value in values}] for key, values in args.get("key_in", {}).items()}
    for key, value in args.get("key_equals", {}).items():
        wanted.setdefault(key, []).append({_typed(value)})
    return wanted


def _typed(value: Any) -> tuple[bool, Any]:
    """`true` is not `1`, though Python says so."""
    return isinstance(value, bool), value


def _range_covers(limits: dict[str, Any], key: str, allowed: Wanted, ranges: dict[str, dict[str, Any]]) -> bool:
    low, high = limits.get("min"), limits.get("max")
    if key in ranges:
        inner_low, inner_high = ranges[key].get("min"), ranges[key].get("max")
        if (low is None or (inner_low is not None and inner_low >= low)) and (
            high is None or (inner_high is not None and inner_high <= high)
        ):
            return True
    return any(
        all(
            not is_bool
            and not isinstance(value, str)
            and (low is None or value >= low)
            and (high is None or value <= high)
            for is_bool, value in values
        )
        for values in allowed.get(key, [])
    )
