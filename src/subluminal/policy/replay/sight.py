"""What a rule must see of a call to be judged: read from its words, not from the engine."""

from __future__ import annotations

from typing import Any

from subluminal.policy.lint.parts import parts_of


def looks_at_args(rule: dict[str, Any]) -> bool:
    """Whether the values of the arguments matter. Their size is in the record, and so is the hash that dedupe takes."""
    if any(part.args.keys() - {"bytes"} for part in parts_of(rule)):
        return True
    effect = rule["effect"].get(rule["kind"], {})
    return "cost_units_from" in effect or effect.get("key") == "custom"


def asks_for(field: str, rule: dict[str, Any]) -> bool:
    """Whether a predicate of `match.args` stands anywhere in a rule."""
    return any(field in part.args for part in parts_of(rule))
