"""Judgements of the linter that need more than one file to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

from harness import places
from harness.effort import calls_made, growth_of_calls
from harness.engine import rule, tools
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.document import yaml_tree as yaml_document
from subluminal.policy.lint.findings import InvalidPolicy, nearest
from subluminal.policy.lint.load import load_bundle
from subluminal.policy.lint.names import MAX_REGEX_PROGRAM, MAX_REGEXES

FIXTURES = places.FIXTURES / "policies"


def bundle(*rules: dict[str, Any]) -> bytes:
    return json.dumps(
        {
            "policy_id": "p",
            "version": "1",
            "mode": "guardrails",
            "defaults": {"decision_on_error": "BLOCK"},
            "selectors": {},
            "rules": list(rules),
        }
    ).encode()


def unreachable(*rules: dict[str, Any]) -> list[str | None]:
    findings = load_bundle(bundle(*rules), "p.json").findings
    return [finding.rule_id for finding in findings if finding.code == "unreachable"]


def test_a_tag_in_between_can_bring_a_call_to_the_lower_rule() -> None:
    writes = {"risk_class": ["write_like"]}
    allow, deny = rule("allow", "allow", writes), rule("deny", "deny", writes)
    tag = rule("tag", "tag", tools("w*"), add_risk_class=["write_like"])
    assert unreachable(tag, allow, deny) == ["deny"]
    assert unreachable(allow, tag, deny) == []
    assert unreachable(allow, {**tag, "enabled": False}, deny) == ["deny"]


def test_only_access_rules_hide_each_other() -> None:
    budget = rule("budget", "budget", scope="run", limit_calls=1, on_exceed="BLOCK")
    dedupe = rule("dedupe", "dedupe", scope="run", window_ms=1, on_duplicate="BLOCK")
    assert unreachable(rule("allow", "allow"), budget, dedupe) == []


@pytest.mark.parametrize(
    ("upper", "lower", "hidden"),
    [
        ({}, tools("x"), True),
        (tools("*"), {"tool_name": {"regex": ["^a"]}}, True),
        ({"tool_name": {"regex": ["^a", ".*"]}}, {}, True),
        ({"tool_name": {"regex": ["^b", "^a"]}}, {"tool_name": {"regex": ["^a"]}}, True),
        (tools("z", "ab*"), tools("abc", "z"), True),
        (tools("*c"), tools("abc"), True),
        (tools("abc"), tools("ab*"), False),
        (tools("x"), {}, False),
        ({"tool_name": {"regex": ["^a"]}}, tools("a"), False),
    ],
)
def test_the_search_finds_what_a_comparison_of_all_pairs_would(
    upper: dict[str, Any], lower: dict[str, Any], hidden: bool
) -> None:
    others = [rule(f"r{i}", "allow", tools(f"other_{i}")) for i in range(5)]
    assert unreachable(*others, rule("upper", "allow", upper), rule("lower", "deny", lower)) == ["lower"] * hidden


def on_args(**args: Any) -> dict[str, Any]:
    return {"args": args}


@pytest.mark.parametrize(
    ("upper", "lower", "hidden"),
    [
        ({"unless": tools("x")}, {}, False),
        ({"unless": tools("x")}, {"match": tools("y*")}, True),
        ({"unless": tools("x")}, {"unless": tools("x*")}, True),
        ({"unless": tools("x*")}, {"unless": tools("x")}, False),
        ({}, {"unless": tools("x")}, True),
        ({"match": {"any_of": [tools("x"), tools("y*")]}}, {"match": tools("yz")}, True),
        ({"match": {"any_of": [tools("x"), tools("y*")]}}, {"match": {"any_of": [tools("ya"), tools("x")]}}, True),
        ({"match": {"any_of": [tools("x"), tools("y*")]}}, {"match": {"any_of": [tools("ya"), tools("z")]}}, False),
        ({"match": tools("y*")}, {"match": {"any_of": [tools("ya"), tools("yb")]}}, True),
        ({"match": tools("a*")}, {"match": {**tools("a?"), "any_of": [tools("*b"), tools("*c")]}}, True),
        (
            {"match": on_args(path_within={"p": ["~/work"]})},
            {"match": on_args(path_within={"p": ["~/work/a"]})},
            True,
        ),
        ({"match": on_args(host_in={"u": ["*.a.org"]})}, {"match": on_args(host_in={"u": ["b.a.org"]})}, True),
        ({"match": on_args(host_in={"u": ["*.a.org"]})}, {"match": on_args(host_in={"u": ["a.org"]})}, False),
    ],
)
@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_alternatives_and_exceptions_count_in_what_hides_a_rule(
    kind: str, upper: dict[str, Any], lower: dict[str, Any], hidden: bool
) -> None:
    rules = [{**rule(name, kind), **members} for name, members in (("upper", upper), ("lower", lower))]
    assert unreachable(*rules) == ["lower"] * hidden


def test_a_deny_whose_exception_an_allow_repeats_acts_on_readings_only() -> None:
    sure = {"unless": {"args": {"key_equals": {"force": True}}}}
    source = bundle({**rule("allow", "allow"), **sure}, {**rule("deny", "deny"), **sure})
    (found,) = [f for f in load_bundle(source, "p.json").findings if f.code == "unreachable"]
    assert found.message.startswith("this deny takes effect only on values that servers read so")


def test_a_shadowed_rule_does_not_keep_a_policy_from_compiling() -> None:
    source = bundle(rule("allow", "allow"), rule("deny", "deny"))
    assert unreachable(rule("allow", "allow"), rule("deny", "deny")) == ["deny"]
    assert compile_bundle(source, "p.json")["policy_id"] == "p"


def test_no_finding_is_lost_to_another_rules_faults() -> None:
    broken = {**rule("broken", "deny"), "severity": "high"}
    regex = rule("regex", "deny", {"tool_name": {"regex": ["("]}})
    codes = [finding.code for finding in load_bundle(bundle(broken, regex), "p.json").findings]
    assert codes == ["bad-value", "bad-regex"] or codes == ["bad-regex", "bad-value"]


def test_a_flood_of_faults_is_cut_short() -> None:
    source = bundle(*({**rule(f"r{i}", "deny"), "severity": "high"} for i in range(500)))
    assert len(load_bundle(source, "p.json").findings) == 100


def test_a_thousand_rules_cost_ten_times_what_a_hundred_cost() -> None:
    def lint(count: int) -> None:
        source = bundle(*(rule(f"r{i}", "deny", tools(f"tool_{i}_*", f"x{i}*y")) for i in range(count)))
        assert load_bundle(source, "p.json").findings == []

    assert growth_of_calls(lint, 100, 1000) < 1.5


def codes(*rules: dict[str, Any]) -> set[str]:
    return {finding.code for finding in load_bundle(bundle(*rules), "p.json").findings}


@pytest.mark.parametrize(
    "match",
    [
        {"tool_name": {"regex": [f"^x{i}$" for i in range(100_000)]}},
        {"tool_name": {"glob": ["[a-z]" * 100_000]}},
        {"tool_name": {"regex": [rf"\pL{{{i}}}" for i in range(20, 1_000)]}},
    ],
    ids=["many regexes", "many sets", "dear regexes"],
)
def test_patterns_made_to_be_dear_are_refused_quickly(match: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_pattern = re2.compile

    def counted(pattern: str, *options: Any) -> Any:
        compiled.append(pattern)
        return compile_pattern(pattern, *options)

    monkeypatch.setattr(re2, "compile", counted)
    found: set[str] = set()
    assert calls_made(lambda: found.update(codes(rule("a", "deny", match)))) < 10_000_000
    assert found & {"too-many-patterns", "bad-regex"}
    assert len(compiled) <= MAX_REGEXES, "what is dear about a pattern is compiling it"


@pytest.mark.parametrize("regex", [r"\pL{{1,8}}{}", r"\pL{{20}}{}"], ids=["large", "too large"])
def test_regexes_are_bounded_by_what_they_compile_to_together(regex: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_pattern = re2.compile
    monkeypatch.setattr(re2, "compile", lambda *given: compiled.append(given[0]) or compile_pattern(*given))
    rules = [rule(f"r{i}", "deny", {"tool_name": {"regex": [regex.format(i)]}}) for i in range(MAX_REGEXES)]
    findings = load_bundle(bundle(*rules), "p.json", advise=False).findings
    (summed,) = [finding for finding in findings if finding.code == "too-many-patterns"]
    assert (summed.level, summed.rule_id) == ("error", f"r{len(compiled) - 1}")
    assert f"above {MAX_REGEX_PROGRAM:,} instructions" in summed.message
    assert len(compiled) <= 10, "none is compiled any more"


def test_usual_regexes_fit_by_the_thousand_and_the_same_one_counts_once() -> None:
    usual = [f"^(get|list|read)_[a-z]+{i}$" for i in range(1_500)]
    assert codes(*(rule(f"r{i}", "deny", {"tool_name": {"regex": [regex]}}) for i, regex in enumerate(usual))) == set()
    same = {"tool_name": {"regex": [r"\pL{1,8}"]}}
    found = codes(*(rule(f"r{i}", "budget", same, scope="run", limit_calls=1, on_exceed="BLOCK") for i in range(100)))
    assert found == set()


def test_an_error_is_never_crowded_out_by_what_stands_before_it() -> None:
    warned = [rule(f"r{i}", "budget", scope="run", limit_calls=0, on_exceed="BLOCK") for i in range(150)]
    broken = rule("broken", "deny", {"tool_name": {"regex": ["("]}})
    with pytest.raises(InvalidPolicy, match="bad-regex"):
        compile_bundle(bundle(*warned, broken), "p.json")


# -- readings -----------------------------------------------------------------------------------------------------


def notes(kind: str, **args: Any) -> list[str]:
    findings = load_bundle(bundle(rule("r", kind, {"args": args})), "p.json").findings
    assert {finding.level for finding in findings} <= {"note"}
    return [finding.message for finding in findings]


@pytest.mark.parametrize(
    ("kind", "args", "words"),
    [
        ("allow", {"key_equals": {"force": True}}, 'key_equals.force of an allow matches true alone: not "true"'),
        ("allow", {"key_in": {"n": ["1", 42]}}, 'key_in.n of an allow matches 42 alone: not "42"'),
        ("allow", {"numeric_range": {"n": {"max": 5}}}, "numeric_range.n of an allow matches numbers alone"),
        ("deny", {"key_equals": {"force": True}}, '"false" and every other value but false, 0, null and ""'),
        ("deny", {"key_equals": {"force": False}}, 'could read so: 0, null, "", [] and words such as "no"'),
        ("deny", {"key_in": {"n": ["a", 0]}}, 'key_in.n also matches what a server could read as 0: null, ""'),
        ("deny", {"numeric_range": {"n": {"max": 5}}}, "numeric_range.n also matches what a server could read as 0"),
        ("deny", {"key_equals": {"n": "42"}}, 'key_equals.n is the text "42", so other spellings of 42 do not match'),
    ],
)
def test_a_predicate_that_readings_make_wider_or_narrower_is_noted(kind: str, args: Any, words: str) -> None:
    (message,) = notes(kind, **args)
    assert words in message


@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_a_text_that_is_only_a_text_needs_no_note(kind: str) -> None:
    assert notes(kind, key_equals={"path": "/etc", "x": ""}, key_in={"branch": ["main"]}, has_keys=["a"]) == []
    assert notes("deny", numeric_range={"limit": {"min": 101}}, key_equals={"n": 42}) == []


def test_a_deny_below_an_allow_of_the_same_value_is_said_to_act_on_readings_only() -> None:
    forced = {"args": {"key_equals": {"force": True}}}
    source = bundle(rule("allow", "allow", forced), rule("deny", "deny", forced))
    (found,) = [f for f in load_bundle(source, "p.json").findings if f.code == "unreachable"]
    assert found.message.startswith("this deny takes effect only on values that servers read so")


def test_a_set_that_would_hold_all_of_unicode_is_refused() -> None:
    assert codes(rule("a", "deny", tools("[\u0001-\uffff]"))) == {"bad-glob"}
    assert codes(rule("a", "deny", tools("[z-a]"))) == {"bad-glob"}
    assert codes(rule("a", "deny", tools("[a-z_-]x", "[!0-9]", "[-a]", "[unclosed"))) == set()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("denny", "deny"),
        ("Deny", "deny"),
        ("rate-limit", "rate_limit"),
        ("ratelimit", "rate_limit"),
        ("dedup", "dedupe"),
        ("transform", None),
        ("", None),
    ],
)
def test_the_word_that_was_meant(typed: str, meant: str | None) -> None:
    assert nearest(typed, ["allow", "deny", "budget", "rate_limit", "breaker", "dedupe", "tag"]) == meant


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/*.yaml")), ids=lambda path: path.name)
def test_the_pure_yaml_parser_reads_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = load_bundle(path.read_bytes(), path.name)
    assert yaml_document._PARSER is yaml.CSafeLoader, "otherwise nothing is compared"
    monkeypatch.setattr(yaml_document, "_PARSER", yaml.SafeLoader)
    pure = load_bundle(path.read_bytes(), path.name)
    assert pure.bundle == fast.bundle
    # The two word syntax errors differently and may point at neighbouring places.
    assert [finding.code for finding in pure.findings] == [finding.code for finding in fast.findings]


def servers_word(*rules: dict[str, Any]) -> list[str | None]:
    findings = load_bundle(bundle(*rules), "p.json").findings
    assert all(finding.level in ("warning", "note") for finding in findings)
    return [finding.rule_id for finding in findings if finding.code == "servers-word"]


def test_a_class_that_no_tag_above_gives_rests_on_the_servers_word() -> None:
    deny = rule("deny", "deny", {"risk_class": ["write_like"]})
    budget = rule("budget", "budget", {"risk_class": ["network_like"]}, scope="run", limit_calls=1, on_exceed="BLOCK")
    tag = rule("tag", "tag", tools("w*"), add_risk_class=["write_like"])
    assert servers_word(deny, budget) == ["deny", "budget"]
    assert servers_word(tag, deny, budget) == ["budget"]
    assert servers_word(deny, tag) == servers_word({**tag, "enabled": False}, deny) == ["deny"]
    assert servers_word(rule("reads", "allow", {"risk_class": ["read_like"]})) == []
