"""A rule as people write it to the rule as everything else reads it: times in milliseconds, sizes as numbers, lists.

    window: 1h                ->  window_ms: 3600000
    numeric_range max: 10MiB  ->  10485760
    key_glob: {path: "*.env"} ->  {path: ["*.env"]}

The one place where the spellings that contract B allows come together: the linter's further sieves, the diff, the
snapshot and the engine know the right-hand side only.
"""

from __future__ import annotations

from typing import Any

from subluminal.policy.lint.units import milliseconds, size_in_bytes

DURATIONS = ("window", "repeat_window", "refill_period", "latency_threshold", "backoff")
_TEXTS = ("key_glob", "key_regex", "key_contains", "path_within", "host_in")


def spelled_out(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule of the right shape, with its defaults stated."""
    rule = {**rule, "match": _match(rule["match"]), "effect": _effect(rule["effect"], rule["kind"])}
    if "unless" in rule:
        rule["unless"] = _match(rule["unless"])
    return rule


def _effect(effect: dict[str, Any], kind: str) -> dict[str, Any]:
    inner = effect.get(kind)
    if inner is None:
        return effect
    # The pack's fields keep their place in the order, so that a snapshot reads as its source does.
    inner = {f"{k}_ms" if k in DURATIONS else k: milliseconds(v) if k in DURATIONS else v for k, v in inner.items()}
    if "cost_units_from" in inner:
        inner["cost_units_from"] = _sizes(inner["cost_units_from"], ("per",))
    return {kind: inner}


def _match(match: dict[str, Any]) -> dict[str, Any]:
    if "args" in match:
        match = {**match, "args": _args(match["args"])}
    if "any_of" in match:
        match = {**match, "any_of": [_match(alternative) for alternative in match["any_of"]]}
    return match


def _args(args: dict[str, Any]) -> dict[str, Any]:
    args = dict(args)
    for field in _TEXTS:
        if field in args:
            args[field] = {key: _texts(value) for key, value in args[field].items()}
    if "command" in args:
        args["command"] = {key: {**c, "programs": _texts(c["programs"])} for key, c in args["command"].items()}
    if "numeric_range" in args:
        args["numeric_range"] = {key: _sizes(limits, ("min", "max")) for key, limits in args["numeric_range"].items()}
    if "bytes" in args:
        args["bytes"] = _sizes(args["bytes"], ("min", "max"))
    return args


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _sizes(values: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {k: size_in_bytes(v) if k in fields and isinstance(v, str) else v for k, v in values.items()}
