"""What changed between two compiled policies, and which way: looser, tighter, or neither.

Works on snapshots, so formatting, comments and spelled-out defaults are no difference. Rules are the same rule if they
have the same `rule_id`; order is compared for what it decides (an `allow` that comes to stand above a `deny`).
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.vocabulary import ALLOW, BLOCK, MAX_LEGS
from subluminal.policy.diff.change import LOOSENS, NEUTRAL, TIGHTENS, Change, worst
from subluminal.policy.diff.presence import Side, fail_open_classes
from subluminal.policy.diff.rules import changed_rules

_NEUTRAL_FIELDS = ("policy_id", "version", "description", "owner", "created_at")


def diff_snapshots(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """All changes, the most serious first; empty exactly if both have the same `policy_hash`."""
    if old["policy_hash"] == new["policy_hash"]:
        return []
    changes = [*_mode(old, new), *_defaults(old["defaults"], new["defaults"]), *_selectors(old, new)]
    changes += changed_rules(Side(old), Side(new))
    changes += [
        Change(NEUTRAL, "changed", None, field, old.get(field), new.get(field), f"{field} changes")
        for field in _NEUTRAL_FIELDS
        if old.get(field) != new.get(field)
    ]
    order = {"critical": 0, "warn": 1, "info": 2}
    return sorted(changes, key=lambda change: order[change.severity])


def _mode(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    before, after = old["mode"], new["mode"]
    if before == after:
        return []
    if after == "observe":
        direction, effect = LOOSENS, "no call is refused any more"
    elif before == "observe":
        direction, effect = TIGHTENS, "rules are enforced from now on"
    else:
        direction, effect = NEUTRAL, "refusals now " + ("carry hints" if after == "control" else "follow each rule")
    return [Change(direction, "changed", None, "mode", before, after, f"mode {before} becomes {after}: {effect}")]


def _defaults(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    changes = []
    if old["decision_on_error"] != new["decision_on_error"]:
        direction = LOOSENS if new["decision_on_error"] == ALLOW else TIGHTENS
        summary = f"a call that cannot be judged {_OUTCOME[direction]}"
        place = "defaults.decision_on_error"
        was, now = old["decision_on_error"], new["decision_on_error"]
        changes.append(Change(direction, "changed", None, place, was, now, summary))
    changes += _fail_open(old, new)
    before, after = old.get("max_legs", MAX_LEGS), new.get("max_legs", MAX_LEGS)
    if before != after:
        direction, words = (LOOSENS, "more") if after > before else (TIGHTENS, "fewer")
        summary = f"a call may have {words} legs"
        changes.append(Change(direction, "changed", None, "defaults.max_legs", before, after, summary))
    return [*changes, *_listing(old, new)]


# From the loosest word to the strictest; what follows from each. The first is what holds where nothing is said.
_GRADED = {
    "changed_tools": {
        "allow": "a tool that has changed passes",
        "warn": "a tool that has changed passes, and it is told",
        "quarantine": "a tool that has changed is left out of lists and refused",
    },
    "check_schemas": {
        "none": "arguments are not held against input schemas",
        "pinned": "arguments that break the pinned input schema of their tool are refused",
        "listed": "arguments that break the input schema of their tool, pinned or listed, are refused",
    },
}


def _listing(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    changes = []
    for name, meaning in _GRADED.items():
        words = list(meaning)
        before, after = old.get(name, words[0]), new.get(name, words[0])
        if before != after:
            direction = LOOSENS if words.index(after) < words.index(before) else TIGHTENS
            changes.append(Change(direction, "changed", None, f"defaults.{name}", before, after, meaning[after]))
    hid, hides = old.get("hide_denied_tools", False), new.get("hide_denied_tools", False)
    if hid != hides:  # they are refused in either case
        summary = f"tools that are denied whatever their arguments are {'left out of' if hides else 'shown in'} lists"
        changes.append(Change(NEUTRAL, "changed", None, "defaults.hide_denied_tools", hid, hides, summary))
    return changes


_OUTCOME = {LOOSENS: "is let through", TIGHTENS: "is refused"}


def _fail_open(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Both fields name classes; `fail_open_read_tools` is an older word for one of them."""
    changes = []
    # By what they name alone: where errors are let through anyway, that is a change of its own.
    strict = {"decision_on_error": BLOCK}
    had, has = fail_open_classes({**old, **strict}), fail_open_classes({**new, **strict})
    direction = NEUTRAL if had == has else TIGHTENS if has < had else LOOSENS
    for field in ("fail_open_read_tools", "fail_open_classes"):
        was, now = old.get(field), new.get(field)
        if was != now:
            words = ", ".join(sorted(has ^ had))
            outcome = _OUTCOME.get(direction, "is judged as before")
            summary = f"a {words} call that cannot be judged {outcome}" if words else f"{field} changes nothing"
            changes.append(Change(direction, "changed", None, f"defaults.{field}", was, now, summary))
    return changes


def _selectors(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """A policy that applies to fewer runs protects fewer runs."""
    before, after = _flat(old["selectors"]), _flat(new["selectors"])
    changes = []
    for field in sorted(before.keys() | after.keys()):
        was, now = before.get(field), after.get(field)
        if was == now:
            continue
        direction = worst(_coverage(field, was, now))
        effect = "applies to fewer runs, or to others" if direction == LOOSENS else "applies to more runs"
        changes.append(Change(direction, "changed", None, f"selectors.{field}", was, now, f"the policy {effect}"))
    return changes


def _flat(selectors: dict[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in selectors.items() if key != "workload"}
    flat.update({f"workload.{key}": value for key, value in selectors.get("workload", {}).items()})
    return {key: value for key, value in flat.items() if value}


def _coverage(field: str, was: Any, now: Any) -> list[str]:
    """Lists are OR (fewer words match fewer runs), labels are AND (fewer labels match more runs)."""
    if now is None:
        return [TIGHTENS]
    if was is None:
        return [LOOSENS]
    if field == "workload.labels":
        return [TIGHTENS] if now.items() <= was.items() else [LOOSENS]
    if set(was) == set(now):
        return [NEUTRAL]
    return [TIGHTENS] if set(was) <= set(now) else [LOOSENS]
