"""The members of an effect compared: which way a larger number, another scope or another key goes."""

from __future__ import annotations

from typing import Any

from subluminal.policy.diff.change import LOOSENS, NEUTRAL, TIGHTENS, Change, opposite, worst
from subluminal.policy.diff.presence import Side
from subluminal.policy.diff.same import same
from subluminal.policy.lint.cover import Rule

# Which way a larger number goes. Windows count events: a longer one sees more of them.
_LARGER = {
    **dict.fromkeys(("limit_calls", "limit_cost_units", "capacity", "refill_tokens", "latency_count"), LOOSENS),
    **dict.fromkeys(("error_threshold", "repeat_threshold", "latency_threshold_ms"), LOOSENS),
    **dict.fromkeys(("cost_units_per_call", "refill_period_ms", "cost_tokens_per_call"), TIGHTENS),
    **dict.fromkeys(("window_ms", "repeat_window_ms"), TIGHTENS),
}
# What to add it does, for what has no effect when it is left out. Costs by an argument are never less than without.
_ADDED = {
    **dict.fromkeys(("limit_calls", "limit_cost_units", "error_threshold", "repeat_threshold"), TIGHTENS),
    **dict.fromkeys(("latency_threshold_ms", "cost_units_from"), TIGHTENS),
}
# The scopes whose counters a scope's counter holds together: one for the whole run is stricter than one for each tool.
# A server's counter and a tool's hold different calls together, and so do an agent's and a principal's.
_HOLDS: dict[str, frozenset[str]] = {
    "server_tool": frozenset(),
    "tool": frozenset(("server_tool",)),
    "server": frozenset(("server_tool",)),
    "run": frozenset(("server", "tool", "server_tool")),
    "agent": frozenset(("run", "server", "tool", "server_tool")),
    "principal": frozenset(("run", "server", "tool", "server_tool")),
    "machine": frozenset(("agent", "principal", "run", "server", "tool", "server_tool")),
}
_WORDS = frozenset(("message", "hint_text", "suggested_args", "retry_advice"))


def changed_effect(was: Rule, now: Rule, old: Side, new: Side) -> list[Change]:
    kind = now["kind"]
    before, after = was["effect"].get(kind, was["effect"]), now["effect"].get(kind, now["effect"])
    prefix = f"effect.{kind}." if kind in now["effect"] else "effect."
    changes = []
    for field in sorted(before.keys() | after.keys()):
        if not same(before.get(field), after.get(field)):
            direction, summary = _field(field, before, after, was, now, old, new)
            place = now["rule_id"], prefix + field
            changes.append(Change(direction, "changed", *place, before.get(field), after.get(field), summary))
    return changes


def _field(
    field: str, before: dict[str, Any], after: dict[str, Any], was: Rule, now: Rule, old: Side, new: Side
) -> tuple[str, str]:
    had: Any = before.get(field)
    has: Any = after.get(field)
    step = f"{field} {_word(had)} becomes {_word(has)}"
    if field == "window_ms" and now["kind"] == "budget" and (had is None or has is None):
        return (LOOSENS, "the budget refills from now on") if had is None else (TIGHTENS, "the budget refills no more")
    if field in _ADDED and (had is None or has is None):
        added, what = _ADDED[field], _word(has if had is None else had)
        return (added, f"{field} {what} added") if had is None else (opposite(added), f"{field} {what} removed")
    if field in _LARGER and had is not None and has is not None:
        return (_LARGER[field] if has > had else opposite(_LARGER[field])), step
    if field == "scope":
        return (TIGHTENS if had in _HOLDS[has] else LOOSENS), step
    if field == "cost_units_by_tool":
        return _costs(before, after), "what tools cost changes"
    if field == "cost_units_from":
        return (TIGHTENS if had["arg"] == has["arg"] and has["per"] < had["per"] else LOOSENS), step
    if field in ("key", "key_args"):
        return _compared(before, after), step if field == "key" else f"a call is the same by {_word(has)}"
    if field == "override":
        rule, side, direction = (now, new, LOOSENS) if has else (was, old, TIGHTENS)
        dedupes = side.dedupes(rule)
        return (direction, f"{step} (dedupe {dedupes[0]})") if dedupes else (NEUTRAL, step)
    if "TERMINATE_RUN" in (had, has) and field.startswith("on_"):
        return (LOOSENS if had == "TERMINATE_RUN" else TIGHTENS), step
    if field == "add_risk_class":
        given = new.of_classes(now, [word for word in has if word not in had])
        taken = old.of_classes(was, [word for word in had if word not in has])
        return worst([*given, *map(opposite, taken)]), step
    return NEUTRAL, f"{field} changes" if field in _WORDS else step


def _costs(before: dict[str, Any], after: dict[str, Any]) -> str:
    """A tool that has no entry of its own, or no longer, falls to another one or to the price of a call."""
    had, has = before.get("cost_units_by_tool", {}), after.get("cost_units_by_tool", {})
    dearest = max([before["cost_units_per_call"], *had.values()])
    cheapest = min([after["cost_units_per_call"], *has.values()])
    cheaper = [tool for tool, units in has.items() if units < had.get(tool, dearest)]
    cheaper += [tool for tool, units in had.items() if tool not in has and units > cheapest]
    return LOOSENS if cheaper else TIGHTENS


def _compared(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The fewer arguments are compared, the more calls are the same; without `key_args` all are."""
    had, has = before.get("key_args"), after.get("key_args")
    return TIGHTENS if has is not None and (had is None or set(has) <= set(had)) else LOOSENS


def _word(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in sorted(value.items()))
    return ", ".join(value) if isinstance(value, list) else str(value)
