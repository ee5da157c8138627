"""Rules as data: loading, the version hash, and what they decide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.admission import (
    AdmissionRequest,
    AdmissionResult,
    AmbiguousRuleset,
    AmbiguousRulesetError,
    AxiomViolation,
    BudgetDenial,
    EffectInvariantViolated,
    EffectMutation,
    NoRuleMatched,
    PolicyDenial,
    ReadOnlyState,
    RegistryError,
    RuleRegistry,
    RuleRejected,
    RuleVersionMismatch,
    assert_deterministic,
    evaluate_admission,
)

STATE = ReadOnlyState(
    reputation={"ada": 700},
    tokens={"ada": 1000},
    stakes={"ada": 5},
    epoch=4,
    event_count=9,
    fork_id="main",
    bindings={"size": 12, "raw": b"{}", "name": "fs"},
)


def rule(name: str = "r", category: str = "admission", **more: Any) -> dict[str, Any]:
    return {"name": name, "category": category, **more}


def when(expression: Any) -> list[dict[str, Any]]:
    return [{"when": expression, "reason": "guard"}]


def registry(*rules: dict[str, Any], **more: Any) -> RuleRegistry:
    return RuleRegistry.load({"rules": list(rules), **more})


def judge(rules: RuleRegistry, tool: str = "t", mode: Any = "normal", caller: str = "ada") -> AdmissionResult:
    return evaluate_admission(AdmissionRequest(caller, tool, mode, STATE, rules.version_hash), rules)


def holds(expression: Any) -> bool:
    result = judge(registry(rule(guards=when(expression))))
    assert result.admitted or result.reason == RuleRejected("r", "guard"), result.reason
    return result.admitted


def fault(expression: Any) -> str:
    reason = judge(registry(rule(guards=when(expression)))).reason
    assert isinstance(reason, RuleRejected), reason
    return reason.rule_reason


# --- expressions


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (["add", 1, 2, 3], 6),
        (["sub", 1, 2], -1),
        (["mul", 2, 3, 4], 24),
        (["div", -7, 2], -3),
        (["rem", -7, 2], -1),
        (["neg", 3], -3),
        (["abs", -3], 3),
        (["min", 3, 1, 2], 1),
        (["max", 3, 1, 2], 3),
        (["bps_mul", 1000, 500], 50),
        (["bps_div", 5000, 2500], 20000),
        (["decay", 1000, 150, 2], 971),
        (["if", ["lt", 1, 2], 10, ["div", 1, 0]], 10),
        (["if", False, ["div", 1, 0], 20], 20),
        (["reputation", ["caller"]], 700),
        (["tokens", "ada"], 1000),
        (["stake", "ada"], 5),
        (["stake", "nobody"], 0),
        (["epoch"], 4),
        (["event_count"], 9),
        (["binding", "size"], 12),
    ],
)
def test_an_integer_expression_has_its_value(expression: Any, value: int) -> None:
    assert holds(["eq", expression, value])
    assert not holds(["ne", expression, value])


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        (["lt", 1, 2], True),
        (["le", 2, 2], True),
        (["gt", 1, 2], False),
        (["ge", 2, 2], True),
        (["and", True, ["lt", 1, 2]], True),
        (["and", False, ["eq", ["div", 1, 0], 1]], False),
        (["or", True, ["eq", ["div", 1, 0], 1]], True),
        (["not", False], True),
        (["eq", ["tool"], "t"], True),
        (["eq", ["mode"], "normal"], True),
        (["eq", ["fork_id"], "main"], True),
        (["eq", ["binding", "name"], "fs"], True),
    ],
)
def test_a_truth_expression_holds_or_not(expression: Any, truth: bool) -> None:
    assert holds(expression) is truth


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        (1, "not_a_truth_value"),
        (["eq", True, 1], "types_differ"),
        (["lt", True, 2], "not_an_integer"),
        (["lt", "a", "b"], "not_an_integer"),
        (["lt", ["mul", 1 << 62, 4], 0], "integer_overflow"),
        (["lt", ["div", 1, 0], 1], "division_by_zero"),
        (["lt", ["reputation", 7], 1], "not_a_string"),
        (["lt", ["binding", "missing"], 1], "binding_unavailable"),
        (["lt", ["binding", "raw"], 1], "binding_unavailable"),
        (["not", 0], "not_a_truth_value"),
    ],
)
def test_a_guard_that_cannot_be_worked_out_rejects_and_says_why(expression: Any, word: str) -> None:
    assert fault(expression) == word


def nested(levels: int) -> Any:
    expression: Any = 0
    for _ in range(levels):
        expression = ["neg", expression]
    return expression


def test_evaluation_is_bounded_on_every_axis() -> None:
    deep = judge(registry(rule(guards=when(["eq", nested(16), 0])))).reason
    assert deep == BudgetDenial("call_depth", 16, 17, "r")
    assert holds(["eq", nested(15), 0])
    wide = judge(registry(rule(guards=when(["eq", ["add", *range(9)], 0])))).reason
    assert wide == BudgetDenial("arg_count", 8, 9, "r")
    long = judge(registry(rule(guards=when(["eq", ["decay", 1, 1, 10_000], 1])))).reason
    assert isinstance(long, BudgetDenial) and (long.axis, long.limit) == ("integer_ops", 10_000)
    many = registry(rule(guards=when(["lt", ["max", 1, 2, 3, 4, 5, 6, 7, 8], 9]) * 900))
    assert judge(many).admitted
    policies = [{"policy_id": "p", "when": ["eq", ["decay", 1, 1, 1 << 40], 1], "reason": "x"}]
    assert isinstance(judge(registry(rule(), policies=policies)).reason, BudgetDenial)


# --- loading


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not a JSON object"),
        ('{"rules":"\ud800"}', "not JSON"),
        ({"rulez": []}, "unknown members"),
        ({"rules": {}}, "list of objects"),
        ({"rules": [7]}, "list of objects"),
        ({"rules": [{}]}, "lacks name, category"),
        ({"rules": [rule(more=1)]}, "unknown member more"),
        ({"rules": [rule("")]}, "not empty"),
        ({"rules": [rule(category="law")]}, "category must be"),
        ({"rules": [rule(), rule(match={"tool": "x"})]}, "used twice"),
        ({"rules": [rule(match=[])]}, "an object is needed"),
        ({"rules": [rule(match={"tool": "a*b"})]}, "only stand at the end"),
        ({"rules": [rule(match={"mode": "root"})]}, "mode must be"),
        ({"rules": [rule(match={"server": "x"})]}, "unknown member server"),
        ({"rules": [rule(guards={})]}, "a list is needed"),
        ({"rules": [rule(guards=[{"when": True}])]}, "lacks reason"),
        ({"rules": [rule(guards=when(1.5))]}, "64 bits"),
        ({"rules": [rule(guards=when(None))]}, "64 bits"),
        ({"rules": [rule(guards=when(1 << 63))]}, "64 bits"),
        ({"rules": [rule(guards=when(["sqrt", 4]))]}, "name of an operator"),
        ({"rules": [rule(guards=when([]))]}, "name of an operator"),
        ({"rules": [rule(guards=when(["add", 1]))]}, "two or more"),
        ({"rules": [rule(guards=when(["epoch", 1]))]}, "0 arguments"),
        ({"rules": [rule(guards=when(nested(65)))]}, "nested more than"),
        ({"rules": [rule(guards=when(["add", *range(10_001)]))]}, "more than 10000 nodes"),
        ({"rules": [rule(guards=when(["lt", 1, 2]) * 3334)]}, "more than 10000 nodes"),
        ({"rules": [rule(effects=[{"target": "epoch", "key": "x", "value": 1}])]}, "target must be"),
        ({"policies": [{"policy_id": "p", "when": True}]}, "lacks reason"),
        ({"axioms": [{"axiom_id": "a", "when": 1.5}]}, "64 bits"),
    ],
)
def test_rules_that_make_no_sense_are_refused_with_a_sentence(document: Any, words: str) -> None:
    with pytest.raises(RegistryError, match=words):
        RuleRegistry.load(document)


def test_a_document_deeper_than_any_stack_is_refused_and_not_a_crash() -> None:
    with pytest.raises(RegistryError):
        RuleRegistry.load(b'{"rules":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    with pytest.raises(RegistryError, match="nested too deep"):
        RuleRegistry.load({"rules": [rule(guards=when(nested(100_000)))]})


def test_two_rules_that_could_both_match_are_refused() -> None:
    with pytest.raises(AmbiguousRulesetError, match="a, b") as caught:
        registry(rule("b", match={"tool": "x"}), rule("a", match={"tool": "x"}))
    assert caught.value.reason == AmbiguousRuleset(("a", "b"))
    assert caught.value.hint
    registry(rule("b", match={"tool": "x"}), rule("a", "promotion", match={"tool": "x"}))
    registry(rule("b", match={"tool": "x"}), rule("a", match={"tool": "x", "mode": "admin"}))


def test_the_document_can_change_afterwards_without_effect() -> None:
    document = {"rules": [rule(match={"tool": "x"})]}
    loaded = RuleRegistry.load(document)
    document["rules"][0]["match"]["tool"] = "*"
    assert loaded.compute_version_hash() == loaded.version_hash
    assert not judge(loaded, "y").admitted


# --- the version hash


def test_the_hash_is_of_the_content_alone() -> None:
    one, two = rule("a", match={"tool": "x"}), rule("b", match={"tool": "y"})
    first = registry(one, two).version_hash
    assert first.startswith("sha256:") and len(first) == 71
    assert int(first[7:], 16) >= 0
    assert registry(two, one).version_hash == first, "the order of writing does not matter"
    located = {**one, "source": {"file": "rules.json", "line": 7}}
    assert registry(located, two).version_hash == first, "nor does the place"
    text = json.dumps({"rules": [one, two]}, indent=4)
    assert RuleRegistry.load(text).version_hash == first


@pytest.mark.parametrize(
    "change",
    [
        {"name": "z"},
        {"category": "promotion"},
        {"match": {"tool": "y"}},
        {"guards": when(["lt", 1, 3])},
        {"effects": [{"target": "tokens", "key": "x", "value": 2}]},
    ],
)
def test_any_change_of_meaning_changes_the_hash(change: dict[str, Any]) -> None:
    base = rule(match={"tool": "x"}, guards=when(["lt", 1, 2]), effects=[{"target": "tokens", "key": "x", "value": 1}])
    assert registry({**base, **change}).version_hash != registry(base).version_hash


def test_policies_and_axioms_are_part_of_the_hash() -> None:
    guard = {"when": True}
    hashes = {
        registry(rule()).version_hash,
        registry(rule(), policies=[{"policy_id": "p", "reason": "x", **guard}]).version_hash,
        registry(rule(), axioms=[{"axiom_id": "p", **guard}]).version_hash,
    }
    assert len(hashes) == 3


# --- deciding


def test_a_version_that_is_not_the_live_one_is_refused_before_anything_else() -> None:
    rules = registry(policies=[{"policy_id": "p", "when": False, "reason": "closed"}])
    for claim in ("", "sha256:" + "0" * 64, "\ud800"):
        result = evaluate_admission(AdmissionRequest("ada", "t", "normal", STATE, claim), rules)
        assert result.reason == RuleVersionMismatch(rules.version_hash, claim)
        assert result.rule_version == rules.version_hash


def test_policies_come_before_rules_and_the_first_failure_ends_it() -> None:
    policies = [
        {"policy_id": "open", "when": True, "reason": "never"},
        {"policy_id": "closed", "when": ["lt", ["epoch"], 4], "reason": "after_epoch_4"},
        {"policy_id": "broken", "when": ["lt", ["div", 1, 0], 1], "reason": "never_reached"},
    ]
    assert judge(registry(rule(), policies=policies)).reason == PolicyDenial("closed", "after_epoch_4")
    broken = registry(rule(), policies=[policies[2]])
    assert judge(broken).reason == PolicyDenial("broken", "never_reached"), "what cannot be worked out does not hold"


def test_categories_are_asked_in_order_and_the_most_specific_rule_first() -> None:
    rules = registry(
        rule("promote", "promotion"),
        rule("any", guards=when(False), match={}),
        rule("prefix", guards=when(True), match={"tool": "fs_*"}),
        rule("longer-prefix", guards=when(False), match={"tool": "fs_write_*"}),
        rule("exact", guards=when(True), match={"tool": "fs_write_log"}),
        rule("exact-eve", guards=when(False), match={"tool": "fs_write_log", "caller": "eve"}),
        rule("exact-admin", guards=when(False), match={"tool": "fs_write_log", "mode": "admin"}),
    )

    def decided_by(tool: str, mode: str = "normal", caller: str = "ada") -> str | None:
        reason = judge(rules, tool, mode, caller).reason
        return reason.rule_name if isinstance(reason, RuleRejected) else None

    assert decided_by("other") == "any"
    assert decided_by("fs_read") is None
    assert decided_by("fs_write_x") == "longer-prefix"
    assert decided_by("fs_write_log") is None
    assert decided_by("fs_write_log", caller="eve") == "exact-eve"
    assert decided_by("fs_write_log", "admin", "eve") == "exact-admin"


def test_a_call_no_rule_is_about_is_refused_in_every_mode() -> None:
    rules = registry(rule(match={"tool": "x"}))
    for mode in ("normal", "readonly", "admin", "root", ""):
        assert judge(rules, "y", mode).reason == NoRuleMatched("y", mode)
    assert not judge(registry(), "y", "admin").admitted, "admin is no short cut"


def test_effects_are_returned_and_never_applied() -> None:
    effects = [
        {"target": "tokens", "key": ["caller"], "value": ["sub", ["tokens", ["caller"]], 10]},
        {"target": "reputation", "key": ["caller"], "value": ["decay", 1000, 150, 1]},
    ]
    result = judge(registry(rule(effects=effects)))
    assert result.admitted
    assert result.effect_mutations == (
        EffectMutation("r", "tokens", "ada", 990),
        EffectMutation("r", "reputation", "ada", 985),
    )
    assert (STATE.tokens("ada"), STATE.reputation("ada")) == (1000, 700)


@pytest.mark.parametrize(
    ("effects", "reason"),
    [
        ([("tokens", "x", -1)], EffectInvariantViolated("r", "non_negative")),
        ([("tokens", "x", 1), ("tokens", "x", 2)], EffectInvariantViolated("r", "one_effect_per_target")),
        ([("tokens", 7, 1)], RuleRejected("r", "not_a_string")),
        ([("tokens", "x", ["mul", 1 << 62, 2])], RuleRejected("r", "integer_overflow")),
        ([("tokens", "x", True)], RuleRejected("r", "not_an_integer")),
    ],
)
def test_effects_that_are_not_sound_refuse_the_call(effects: list[tuple[str, Any, Any]], reason: Any) -> None:
    given = [{"target": target, "key": key, "value": value} for target, key, value in effects]
    assert judge(registry(rule(effects=given))).reason == reason


def test_axioms_hold_for_whatever_is_admitted() -> None:
    axioms = [{"axiom_id": "sane", "when": True}, {"axiom_id": "young", "when": ["lt", ["epoch"], 4]}]
    assert judge(registry(rule(), axioms=axioms)).reason == AxiomViolation("young")
    assert judge(registry(rule(guards=when(False)), axioms=axioms)).reason == RuleRejected("r", "guard")


def test_evaluation_is_total_whatever_the_registry_does() -> None:
    class Broken:
        version_hash = "v"

        def admit(self, request: AdmissionRequest) -> Any:
            raise ZeroDivisionError("secret text")

    class Odd(Broken):
        def admit(self, request: AdmissionRequest) -> Any:
            return True

    for stub, word in ((Broken(), "evaluator_threw:ZeroDivisionError"), (Odd(), "not_a_result")):
        result = evaluate_admission(AdmissionRequest("a", "t", "normal", STATE, "v"), stub)  # type: ignore[arg-type]
        assert result.reason == RuleRejected("<admission>", word)
    for junk in (None, object(), 7):
        result = evaluate_admission(AdmissionRequest("a", "t", "normal", STATE, "v"), junk)  # type: ignore[arg-type]
        assert not result.admitted and isinstance(result.reason, RuleRejected)
    result = evaluate_admission(None, registry(rule()))  # type: ignore[arg-type]
    assert not result.admitted


EXPRESSIONS = st.recursive(
    st.one_of(st.integers(-(1 << 65), 1 << 65), st.booleans(), st.text(max_size=3), st.none(), st.floats()),
    lambda inner: st.builds(
        lambda operator, arguments: [operator, *arguments],
        st.sampled_from(("add", "mul", "div", "if", "and", "eq", "lt", "decay", "bps_mul", "binding", "tokens", "no")),
        st.lists(inner, max_size=4),
    ),
    max_leaves=20,
)


@given(EXPRESSIONS, EXPRESSIONS)
def test_any_data_is_refused_at_load_or_judged_the_same_every_time(guard: Any, value: Any) -> None:
    try:
        rules = registry(rule(guards=when(guard), effects=[{"target": "tokens", "key": "x", "value": value}]))
    except RegistryError:
        return
    request = AdmissionRequest("ada", "t", "normal", STATE, rules.version_hash)
    result = assert_deterministic(evaluate_admission, request, rules)
    assert result.admitted == (result.reason is None)
