"""What the effect of a rule can get wrong: limits that are missing, contradict each other, or do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subluminal.contracts.globs import glob_fault
from subluminal.core.engine.accumulators import WIDE_SCOPES
from subluminal.policy.document.tree import Mapping, Node, Sequence, plain_value
from subluminal.policy.lint.cover import may_overlap, normal_match
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.reporter import Linter, Path

# Tools of one table of costs: more than any server has.
MAX_PRICES = 1_000


def _check_budget(budget: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "budget")
    calls, units, cost = budget.get("limit_calls"), budget.get("limit_cost_units"), budget["cost_units_per_call"]
    if calls is None and units is None:
        linter.error(where, "no-limit", "a budget without a limit", "add limit_calls or limit_cost_units")
    if units is not None and 0 < units < cost:
        message = f"limit_cost_units {units} is less than one call's cost_units_per_call {cost}, so no call fits"
        fix = "raise the limit or lower the cost; to refuse every call, write a deny rule"
        linter.error((*where, "limit_cost_units"), "conflicting-limits", message, fix)
    given = {"cost_units_per_call": cost != 1}
    given |= {field: field in budget for field in ("cost_units_from", "cost_units_by_tool")}
    for field, is_given in given.items():
        if units is None and is_given:
            message = f"{field} has no effect without limit_cost_units"
            linter.warn((*where, field), "no-effect", message, "add limit_cost_units or remove it")
    _check_prices(budget.get("cost_units_by_tool", {}), units, linter)
    if calls == 0 or units == 0:
        linter.warn(where, "zero-limit", "a limit of 0 refuses every call", "a deny rule says the same more plainly")
    if budget["scope"] in WIDE_SCOPES and "window_ms" not in budget:
        message = f"scope {budget['scope']} outlives runs, and without a window what is used up stays used up"
        linter.warn((*where, "scope"), "never-refills", message, "add window: 1d, or use scope: run")
    _check_hint(budget, where, "on_exceed", linter)


def _check_prices(table: dict[str, int], limit: int | None, linter: Linter) -> None:
    where = ("effect", "budget", "cost_units_by_tool")
    if len(table) > MAX_PRICES:
        message = f"cost_units_by_tool names {len(table):,} tools; a table may have {MAX_PRICES:,}"
        linter.error(where, "too-many-patterns", message, "use globs with *")
        return
    for glob, units in table.items():
        fault = ("matches no tool", "name a tool") if not glob else glob_fault(glob)
        if fault:
            linter.error((*where, glob), "bad-glob", f"glob {shown(glob)} {fault[0]}", fault[1])
        if limit and units > limit:
            message = f"a call of {shown(glob)} costs {units}, and limit_cost_units is {limit}, so none ever fits"
            fix = "raise the limit or lower the cost; to refuse every call, write a deny rule"
            linter.error((*where, glob), "conflicting-limits", message, fix)


def _check_rate_limit(rate: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "rate_limit")
    capacity, cost = rate["capacity"], rate["cost_tokens_per_call"]
    _need_window(rate, where, "refill_period_ms", "a rate limit", linter)
    if capacity < cost:
        message = f"capacity {capacity} is less than cost_tokens_per_call {cost}, so no call ever fits"
        linter.error((*where, "capacity"), "conflicting-limits", message, "raise capacity or lower the cost")
    if rate["refill_tokens"] > capacity:
        refill = f"refill_tokens {rate['refill_tokens']}"
        message = f"{refill} is more than capacity {capacity}; the bucket holds only capacity"
        fix = "lower refill_tokens or shorten refill_period_ms"
        linter.warn((*where, "refill_tokens"), "conflicting-limits", message, fix)
    if rate["refill_tokens"] == 0:
        message = "with refill_tokens 0 the bucket never refills, so this is a budget"
        linter.warn((*where, "refill_tokens"), "never-refills", message, "raise refill_tokens, or write a budget rule")
    throttles, backoff = rate["on_limit"] == "THROTTLE", rate.get("backoff_ms")
    if throttles and backoff is None:
        linter.error(
            (*where, "on_limit"), "missing-field", "on_limit THROTTLE needs backoff or backoff_ms", "add backoff: 1s"
        )
    if not throttles and backoff is not None:
        linter.warn((*where, "backoff_ms"), "no-effect", "backoff_ms is only used with on_limit: THROTTLE", "remove it")
    _check_hint(rate, where, "on_limit", linter)


# threshold, the field it needs beside it
_BREAKER_PAIRS = (
    ("error_threshold", "window_ms"),
    ("repeat_threshold", "repeat_window_ms"),
    ("latency_threshold_ms", "window_ms"),
)


def _check_breaker(breaker: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "breaker")
    if not any(breaker.get(threshold) for threshold, _ in _BREAKER_PAIRS):
        names = ", ".join(threshold.removesuffix("_ms") for threshold, _ in _BREAKER_PAIRS)
        linter.error(where, "no-limit", "a breaker without a threshold never trips", f"add one of {names}")
    for threshold, partner in _BREAKER_PAIRS:
        if breaker.get(threshold) is not None and breaker.get(partner) is None:
            short = partner.removesuffix("_ms")
            message = f"{threshold} needs {short} or {partner}"
            linter.error((*where, threshold), "missing-field", message, f"add {short}: 1m")
    if breaker.get("repeat_window_ms") is not None and breaker.get("repeat_threshold") is None:
        message = "repeat_window_ms needs repeat_threshold"
        linter.error((*where, "repeat_window_ms"), "missing-field", message, "add repeat_threshold: 5")
    if breaker.get("window_ms") is not None and not (
        breaker.get("error_threshold") or breaker.get("latency_threshold_ms")
    ):
        message = "window_ms needs error_threshold"
        linter.error((*where, "window_ms"), "missing-field", message, "add error_threshold: 5")
    if breaker["latency_count"] != 1 and breaker.get("latency_threshold_ms") is None:
        message = "latency_count needs latency_threshold_ms"
        linter.error((*where, "latency_count"), "missing-field", message, "add latency_threshold: 10s")
    if breaker.get("terminate_code") and breaker["on_trip"] != "TERMINATE_RUN":
        message = "terminate_code is only used with on_trip: TERMINATE_RUN"
        linter.warn((*where, "terminate_code"), "no-effect", message, "remove it")
    _check_hint(breaker, where, "on_trip", linter)


def _check_dedupe(dedupe: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "dedupe")
    _need_window(dedupe, where, "window_ms", "a dedupe rule", linter)
    names: list[str] | None = dedupe.get("key_args")
    if dedupe["key"] == "custom" and names is None:
        message = "key: custom needs key_args, the arguments that make two calls the same"
        linter.error((*where, "key"), "missing-field", message, "add key_args: [name], or use key: args_hash")
    if dedupe["key"] != "custom" and names is not None:
        message = "key_args needs key: custom; without it all arguments are compared"
        linter.error((*where, "key_args"), "missing-field", message, "add key: custom, or remove key_args")
    seen: set[str] = set()
    for number, name in enumerate(names or []):
        if name in seen:
            message = f"key_args names {shown(name)} twice"
            linter.warn((*where, "key_args", number), "no-effect", message, "remove one of the two")
        seen.add(name)
    _check_hint(dedupe, where, "on_duplicate", linter)


def _need_window(effect: dict[str, Any], where: Path, field: str, what: str, linter: Linter) -> None:
    if effect.get(field) is None:
        short = field.removesuffix("_ms")
        linter.error(where, "missing-field", f"{what} needs {short} or {field}", f"add {short}: 1m")


def _check_hint(effect: dict[str, Any], where: Path, field: str, linter: Linter) -> None:
    if effect[field] == "REJECT_WITH_HINT" and not effect.get("hint_text"):
        message = "REJECT_WITH_HINT without hint_text: the agent is told only that it was refused"
        linter.warn((*where, field), "no-hint", message, "add hint_text: what the agent should do instead")


def _check_tag(tag: dict[str, Any], linter: Linter) -> None:
    if not tag["add_risk_class"]:
        linter.error(("effect", "tag"), "no-effect", "add_risk_class is empty", "name at least one class")


EFFECTS: dict[str, Callable[[dict[str, Any], Linter], None]] = {
    "budget": _check_budget,
    "rate_limit": _check_rate_limit,
    "breaker": _check_breaker,
    "dedupe": _check_dedupe,
    "tag": _check_tag,
}


def check_overrides(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """An allow that overrides what nothing does."""
    dedupes = [normal_match(rule["match"]) for rule in rules.values() if rule["kind"] == "dedupe" and rule["enabled"]]
    for index, rule in rules.items():
        if rule["kind"] != "allow" or "dedupe" not in rule["effect"].get("override", []):
            continue
        match = normal_match(rule["match"])
        if not any(may_overlap(match, other) for other in dedupes):
            linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
            message = "override: [dedupe] has no effect: no dedupe rule of this policy concerns these calls"
            linter.warn(("effect", "override"), "no-effect", message, "remove it, or widen the match")


def check_fail_open(rules: dict[int, dict[str, Any]], root: Node, linter: Linter) -> None:
    """Classes by which a call is let through are given by tag rules, and by nothing else."""
    defaults = root.get("defaults") if isinstance(root, Mapping) else None
    classes = defaults.get("fail_open_classes") if isinstance(defaults, Mapping) else None
    if not isinstance(defaults, Mapping) or not isinstance(classes, Sequence):
        return
    linter.base, linter.rule_id = ("defaults", "fail_open_classes"), None
    if plain_value(defaults.get("decision_on_error")) == "ALLOW":
        message = "fail_open_classes has no effect: decision_on_error ALLOW lets every such call through"
        linter.warn((), "no-effect", message, "set decision_on_error: BLOCK, or remove it")
    given = {
        word
        for rule in rules.values()
        if rule["kind"] == "tag" and rule["enabled"]
        for word in rule["effect"]["tag"]["add_risk_class"]
    }
    for number, word in enumerate(plain_value(classes)):
        if isinstance(word, str) and word not in given:
            message = f"no tag rule gives the class {shown(word)}, and no server's word counts here"
            linter.warn((number,), "unknown-risk-class", message, "add a tag rule that gives it, or remove it")
