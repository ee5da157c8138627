"""What a bundle of the right shape can still get wrong: limits that contradict each other, rules that cannot fire.

Works on the bundle as plain values with defaults expanded, and on the document for places. An error is a bundle that
cannot mean what it says; a warning is one that probably does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subluminal.contracts.vocabulary import RISK_CLASSES
from subluminal.policy.document import Mapping, Node, Scalar, Sequence
from subluminal.policy.findings import ERROR, WARNING, Finding, nearest, shown
from subluminal.policy.patterns import name_covers, normal_globs, regex_fault

Path = tuple[str | int, ...]


class Linter:
    """Reports against a document; the nearest existing place above a path stands for a missing one."""

    def __init__(self, filename: str, root: Node) -> None:
        self.filename = filename
        self.root = root
        self.findings: list[Finding] = []
        self.rule_id: str | None = None
        self.base: Path = ()

    def error(self, path: Path, code: str, message: str, fix: str) -> None:
        self._report(ERROR, path, code, message, fix)

    def warn(self, path: Path, code: str, message: str, fix: str) -> None:
        self._report(WARNING, path, code, message, fix)

    def _report(self, level: str, path: Path, code: str, message: str, fix: str) -> None:
        node = self.place(self.base + path)
        self.findings.append(Finding(level, code, message, fix, self.filename, node.line, node.column, self.rule_id))

    def place(self, path: Path) -> Node:
        node, place = self.root, self.root
        for step in path:
            if isinstance(node, Mapping) and step in node.items:
                place, node = node.items[str(step)]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                place = node = node.items[step]
            else:
                break
        return place


def lint(rules: dict[int, dict[str, Any]], root: Node, filename: str) -> list[Finding]:
    """`rules` by their place in the document; those without the right shape are left out, the others still judged."""
    linter = Linter(filename, root)
    _duplicate_ids(root, linter)
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        _check_match(rule["match"], linter)
        effect_check = _EFFECTS.get(rule["kind"])
        if effect_check:
            effect_check(rule["effect"][rule["kind"]], linter)
    _unreachable(rules, linter)
    _unknown_risk_classes(rules, linter)
    return linter.findings


def _duplicate_ids(root: Node, linter: Linter) -> None:
    rules = root.get("rules") if isinstance(root, Mapping) else None
    first: dict[str, int] = {}
    for index, rule in enumerate(rules.items if isinstance(rules, Sequence) else []):
        node = rule.get("rule_id") if isinstance(rule, Mapping) else None
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        linter.base, linter.rule_id = ("rules", index), node.value
        if node.value in first:
            message = f"rule_id is already used on line {first[node.value]}"
            linter.error(("rule_id",), "duplicate-rule-id", message, "give each rule an id of its own")
        first.setdefault(node.value, node.line)


def _check_match(match: dict[str, Any], linter: Linter) -> None:
    for field in ("server_name", "tool_name"):
        names = match.get(field)
        if names is None:
            continue
        if not names.get("glob") and not names.get("regex"):
            linter.error(
                ("match", field), "never-matches", f"{field} has no pattern, so nothing matches", 'add glob: ["..."]'
            )
        for index, glob in enumerate(names.get("glob", [])):
            if not glob:
                linter.error(
                    ("match", field, "glob", index),
                    "never-matches",
                    "an empty glob matches no name",
                    'write "*" for any',
                )
        for index, pattern in enumerate(names.get("regex", [])):
            fault = regex_fault(pattern)
            if fault:
                linter.error(
                    ("match", field, "regex", index), "bad-regex", f"regex {shown(pattern)} {fault[0]}", fault[1]
                )
    _check_args(match.get("args", {}), linter)


def _check_args(args: dict[str, Any], linter: Linter) -> None:
    for key, bounds in args.get("numeric_range", {}).items():
        where = ("match", "args", "numeric_range", key)
        low, high = bounds.get("min"), bounds.get("max")
        if low is None and high is None:
            linter.error(where, "empty-range", f"numeric_range.{key} has neither min nor max", "add min, max or both")
        elif low is not None and high is not None and low > high:
            linter.error(
                where, "empty-range", f"numeric_range.{key} has min {low} above max {high}", "swap min and max"
            )
    for key, values in args.get("key_in", {}).items():
        where = ("match", "args", "key_in", key)
        if not values:
            linter.error(where, "never-matches", f"key_in.{key} lists no value", "add a value or remove the key")
        elif key in args.get("key_equals", {}) and args["key_equals"][key] not in values:
            linter.warn(
                where, "never-matches", f"key_equals.{key} is not among key_in.{key}", "keep one of the two predicates"
            )


def _check_budget(budget: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "budget")
    calls, units, cost = budget.get("limit_calls"), budget.get("limit_cost_units"), budget["cost_units_per_call"]
    if calls is None and units is None:
        linter.error(where, "no-limit", "a budget without a limit", "add limit_calls or limit_cost_units")
    if units is not None and 0 < units < cost:
        linter.error(
            (*where, "limit_cost_units"),
            "conflicting-limits",
            f"limit_cost_units {units} is less than one call's cost_units_per_call {cost}, so no call fits",
            "raise the limit or lower the cost; to refuse every call, write a deny rule",
        )
    if units is None and cost != 1:
        linter.warn(
            (*where, "cost_units_per_call"),
            "no-effect",
            "cost_units_per_call has no effect without limit_cost_units",
            "add limit_cost_units or remove it",
        )
    if calls == 0 or units == 0:
        linter.warn(where, "zero-limit", "a limit of 0 refuses every call", "a deny rule says the same more plainly")
    _check_hint(budget, where, "on_exceed", linter)


def _check_rate_limit(rate: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "rate_limit")
    capacity, cost = rate["capacity"], rate["cost_tokens_per_call"]
    if capacity < cost:
        linter.error(
            (*where, "capacity"),
            "conflicting-limits",
            f"capacity {capacity} is less than cost_tokens_per_call {cost}, so no call ever fits",
            "raise capacity or lower the cost",
        )
    if rate["refill_tokens"] > capacity:
        linter.warn(
            (*where, "refill_tokens"),
            "conflicting-limits",
            f"refill_tokens {rate['refill_tokens']} is more than capacity {capacity}; the bucket holds only capacity",
            "lower refill_tokens or shorten refill_period_ms",
        )
    throttles, backoff = rate["on_limit"] == "THROTTLE", rate.get("backoff_ms")
    if throttles and backoff is None:
        linter.error(
            (*where, "on_limit"), "missing-field", "on_limit THROTTLE needs backoff_ms", "add backoff_ms: 1000"
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
        names = ", ".join(threshold for threshold, _ in _BREAKER_PAIRS)
        linter.error(where, "no-limit", "a breaker without a threshold never trips", f"add one of {names}")
    for threshold, partner in _BREAKER_PAIRS:
        if breaker.get(threshold) is not None and breaker.get(partner) is None:
            linter.error((*where, threshold), "missing-field", f"{threshold} needs {partner}", f"add {partner}")
    if breaker.get("repeat_window_ms") is not None and breaker.get("repeat_threshold") is None:
        linter.error(
            (*where, "repeat_window_ms"),
            "missing-field",
            "repeat_window_ms needs repeat_threshold",
            "add repeat_threshold: 5",
        )
    if breaker.get("window_ms") is not None and not (
        breaker.get("error_threshold") or breaker.get("latency_threshold_ms")
    ):
        linter.error(
            (*where, "window_ms"), "missing-field", "window_ms needs error_threshold", "add error_threshold: 5"
        )
    if breaker["latency_count"] != 1 and breaker.get("latency_threshold_ms") is None:
        linter.error(
            (*where, "latency_count"),
            "missing-field",
            "latency_count needs latency_threshold_ms",
            "add latency_threshold_ms",
        )
    if breaker.get("terminate_code") and breaker["on_trip"] != "TERMINATE_RUN":
        linter.warn(
            (*where, "terminate_code"),
            "no-effect",
            "terminate_code is only used with on_trip: TERMINATE_RUN",
            "remove it",
        )
    _check_hint(breaker, where, "on_trip", linter)


def _check_dedupe(dedupe: dict[str, Any], linter: Linter) -> None:
    where = ("effect", "dedupe")
    if dedupe.get("key") == "custom":
        linter.error((*where, "key"), "not-supported", 'key "custom" is reserved for later', "use key: args_hash")
    _check_hint(dedupe, where, "on_duplicate", linter)


def _check_hint(effect: dict[str, Any], where: Path, field: str, linter: Linter) -> None:
    if effect[field] == "REJECT_WITH_HINT" and not effect.get("hint_text"):
        linter.warn(
            (*where, field),
            "no-hint",
            "REJECT_WITH_HINT without hint_text: the agent is told only that it was refused",
            "add hint_text: what the agent should do instead",
        )


def _check_tag(tag: dict[str, Any], linter: Linter) -> None:
    if not tag["add_risk_class"]:
        linter.error(("effect", "tag"), "no-effect", "add_risk_class is empty", "name at least one class")


_EFFECTS: dict[str, Callable[[dict[str, Any], Linter], None]] = {
    "budget": _check_budget,
    "rate_limit": _check_rate_limit,
    "breaker": _check_breaker,
    "dedupe": _check_dedupe,
    "tag": _check_tag,
}


def _unreachable(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """Access stops at the first match: an allow or deny below a wider one is never asked."""
    earlier: list[tuple[int, dict[str, Any]]] = []
    last_tag = -1
    for index, rule in rules.items():
        if not rule["enabled"]:
            continue
        if rule["kind"] == "tag":
            last_tag = index
        if rule["kind"] not in ("allow", "deny"):
            continue
        for above, wide in earlier:
            # A tag in between may give the call a class it did not have when `wide` was asked.
            if ("risk_class" not in wide["match"] or last_tag < above) and match_covers(wide["match"], rule["match"]):
                linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
                linter.warn(("rule_id",), "unreachable", *_unreachable_words(rule, wide))
                break
        else:
            earlier.append((index, rule))


def _unreachable_words(rule: dict[str, Any], wide: dict[str, Any]) -> tuple[str, str]:
    above = shown(wide["rule_id"])
    if rule["kind"] == wide["kind"]:
        return f"never asked: {wide['kind']} rule {above} above matches all that it matches", "remove it"
    return (
        f"this {rule['kind']} never takes effect: {wide['kind']} rule {above} above matches all that it matches",
        f"move it above {above}, or narrow {above}",
    )


def match_covers(wide: dict[str, Any], narrow: dict[str, Any]) -> bool:
    """Whether every call that `narrow` matches is matched by `wide`; False when it cannot be told."""
    if not all(name_covers(_names(wide, field), _names(narrow, field)) for field in ("server_name", "tool_name")):
        return False
    if "risk_class" in wide and not ("risk_class" in narrow and set(narrow["risk_class"]) <= set(wide["risk_class"])):
        return False
    if wide.get("args") and wide["args"] != narrow.get("args"):
        return False
    wide_hours, narrow_hours = wide.get("time", {}).get("utc_hours"), narrow.get("time", {}).get("utc_hours")
    return wide_hours is None or set(narrow_hours if narrow_hours is not None else range(24)) <= set(wide_hours)


def _names(match: dict[str, Any], field: str) -> dict[str, list[str]] | None:
    names = match.get(field)
    if names is None:
        return None
    return {"glob": normal_globs(names.get("glob", [])), "regex": names.get("regex", [])}


def _unknown_risk_classes(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """A class that nothing above can have set makes a rule that silently never matches."""
    known = set(RISK_CLASSES)
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for position, word in enumerate(rule["match"].get("risk_class", [])):
            if word not in known:
                near = nearest(word, known)
                fix = f"did you mean {shown(near)}?" if near else "add a tag rule above that sets it"
                linter.warn(
                    ("match", "risk_class", position),
                    "unknown-risk-class",
                    f"no tag rule above adds the risk class {shown(word)}",
                    fix,
                )
        if rule["kind"] == "tag" and rule["enabled"]:
            known |= set(rule["effect"]["tag"]["add_risk_class"])
