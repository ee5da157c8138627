"""A snapshot states everything in one way: milliseconds, numbers and lists. The file says it as its author did."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.layout import format_policy
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.lint.units import meant_duration, meant_sizes

HEAD = {"policy_id": "p", "version": "1", "mode": "guardrails", "selectors": {}}


def bundle(rule: dict[str, Any]) -> dict[str, Any]:
    rule = {"rule_id": "r", "match": {}, **rule}
    return {**HEAD, "defaults": {"decision_on_error": "BLOCK"}, "rules": [rule]}


def compiled(rule: dict[str, Any]) -> dict[str, Any]:
    return dict(compile_bundle(json.dumps(bundle(rule)).encode(), "p.json"))


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Both spellings are one policy: the same snapshot, the same hash."""
    assert compiled(one) == compiled(other)


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [("1ms", 1), ("30s", 30_000), ("15m", 900_000), ("1h", 3_600_000), ("7d", 604_800_000), ("0090s", 90_000)],
)
@pytest.mark.parametrize(
    ("kind", "field", "others"),
    [
        ("budget", "window", {"scope": "run", "limit_calls": 5, "on_exceed": "BLOCK"}),
        ("rate_limit", "refill_period", {"scope": "run", "capacity": 5, "refill_tokens": 1, "on_limit": "BLOCK"}),
        (
            "rate_limit",
            "backoff",
            {"scope": "run", "capacity": 5, "refill_tokens": 1, "refill_period_ms": 9, "on_limit": "THROTTLE"},
        ),
        ("breaker", "window", {"scope": "run", "error_threshold": 3, "on_trip": "BLOCK"}),
        ("breaker", "repeat_window", {"scope": "run", "repeat_threshold": 3, "on_trip": "BLOCK"}),
        ("breaker", "latency_threshold", {"scope": "run", "window_ms": 9, "on_trip": "BLOCK"}),
        ("dedupe", "window", {"scope": "run", "on_duplicate": "BLOCK"}),
    ],
)
def test_a_duration_is_its_milliseconds(
    kind: str, field: str, others: dict[str, Any], duration: str, milliseconds: int
) -> None:
    written = {"kind": kind, "effect": {kind: {**others, field: duration}}}
    same(written, {"kind": kind, "effect": {kind: {**others, f"{field}_ms": milliseconds}}})
    effect = compiled(written)["rules"][0]["effect"][kind]
    assert effect[f"{field}_ms"] == milliseconds
    assert field not in effect


@pytest.mark.parametrize(
    ("size", "number"),
    [("5B", 5), ("64KB", 64_000), ("10MB", 10_000_000), ("2GB", 2_000_000_000), ("64KiB", 65_536), ("1GiB", 1 << 30)],
)
def test_a_size_is_its_number(size: str, number: int) -> None:
    def deny(value: Any) -> dict[str, Any]:
        args = {"bytes": {"min": value}, "numeric_range": {"size": {"max": value}}}
        return {"kind": "deny", "match": {"args": args}, "effect": {"action": "BLOCK"}}

    def budget(value: Any) -> dict[str, Any]:
        cost = {"arg": "size", "per": value}
        spent = {"scope": "run", "limit_cost_units": 9, "cost_units_from": cost, "on_exceed": "BLOCK"}
        return {"kind": "budget", "effect": {"budget": spent}}

    same(deny(size), deny(number))
    same(budget(size), budget(number))
    assert compiled(deny(size))["rules"][0]["match"]["args"]["bytes"] == {"min": number}


@pytest.mark.parametrize("place", ["match", "unless", "any_of", "unless any_of"])
def test_one_text_is_a_list_of_one_and_patterns_are_in_normal_form_everywhere(place: str) -> None:
    def rule(one: Any, globs: Any, hours: Any) -> dict[str, Any]:
        args = {field: {"a": one} for field in ("key_contains", "key_regex", "path_within", "host_in")}
        args |= {"key_glob": {"a": globs}, "command": {"a": {"programs": one}}}
        match: dict[str, Any] = {"tool_name": {"glob": ["x**"]}, "args": args, "time": {"utc_hours": hours}}
        match = {"any_of": [match]} if "any_of" in place else match
        where = "unless" if "unless" in place else "match"
        return {"kind": "deny", "match": {}, where: match, "effect": {"action": "BLOCK"}}

    same(rule("t", "a**", ["22-1"]), rule(["t"], ["a*", "a***"], [0, 1, 22, 23]))
    assert "**" not in json.dumps(compiled(rule("t", "a**", [1])))


def test_severity_and_enabled_are_stated() -> None:
    snapshot = compiled({"kind": "deny", "effect": {"action": "BLOCK"}})
    assert (snapshot["rules"][0]["enabled"], snapshot["rules"][0]["severity"]) == (True, "warn")


def test_the_formatter_leaves_a_time_as_it_was_written() -> None:
    source = yaml.safe_dump(
        bundle({"kind": "dedupe", "effect": {"dedupe": {"scope": "run", "window": "1h", "on_duplicate": "BLOCK"}}})
    )
    assert b"window: 1h\n" in format_policy(source.encode(), "p.yaml")


def test_a_finding_stands_at_the_field_that_was_written() -> None:
    source = b"""policy_id: p
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: r
    kind: rate_limit
    match: {}
    effect:
      rate_limit:
        scope: run
        capacity: 5
        refill_tokens: 1
        refill_period: 1m
        on_limit: BLOCK
        backoff: 5s
"""
    (finding,) = load_bundle(source, "p.yaml").findings
    assert (finding.line, finding.code) == (17, "no-effect")
    assert finding.message == "backoff is only used with on_limit: THROTTLE"


@pytest.mark.parametrize(
    ("kind", "effect", "fix"),
    [
        ("dedupe", {"scope": "run", "on_duplicate": "BLOCK"}, "add window: 1m"),
        (
            "rate_limit",
            {"scope": "run", "capacity": 5, "refill_tokens": 1, "on_limit": "BLOCK"},
            "add refill_period: 1m",
        ),
    ],
)
def test_a_time_that_is_missing_is_asked_for_where_it_belongs(kind: str, effect: dict[str, Any], fix: str) -> None:
    source = json.dumps(bundle({"kind": kind, "effect": {kind: effect}}), indent=1)
    (finding,) = load_bundle(source.encode(), "p.json").findings
    assert (finding.code, finding.fix, finding.rule_id) == ("missing-field", fix, "r")
    assert f'"{kind}": {{' in source.splitlines()[finding.line - 1]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1.5h", "90m"),
        ("1 h", "1h"),
        ("1hr", "1h"),
        ("2 Hours", "2h"),
        ("1h30m", "90m"),
        ("0.5s", "500ms"),
        ("1w", "7d"),
        ("-5m", "5m"),
        ("1_000ms", "1000ms"),
        ("0.0001ms", None),
        ("soon", None),
        ("1y", None),
        ("", None),
        ("1" * 5_000_000 + "h", None),
    ],
)
def test_the_duration_that_was_meant(written: str, meant: str | None) -> None:
    assert meant_duration(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10mb", ["10MB", "10MiB"]),
        ("10 MiB", ["10MiB"]),
        ("1.5MiB", ["1536KiB"]),
        ("64k", ["64KB", "64KiB"]),
        ("1TB", ["1000GB"]),
        ("2TiB", ["2048GiB"]),
        ("5 bytes", ["5B"]),
        ("big", []),
        ("1MB2KB", []),
    ],
)
def test_the_sizes_that_may_have_been_meant(written: str, meant: list[str]) -> None:
    assert meant_sizes(written) == meant
