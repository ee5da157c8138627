"""Why a call was not admitted: kinds, their one-line form and their JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from subluminal.admission import (
    AmbiguousRuleset,
    AxiomViolation,
    BudgetDenial,
    DenialReason,
    DenialReasonParseError,
    EffectInvariantViolated,
    NoRuleMatched,
    PolicyDenial,
    RuleRejected,
    RuleVersionMismatch,
    SubluminalDecision,
    is_denial_reason,
    parse_denial_reason,
    render_denial_reason,
    serialize_denial_reason,
)
from subluminal.admission.denial import KINDS

GOLDENS: list[tuple[DenialReason, str, str]] = [
    (
        RuleVersionMismatch("sha256:aa", "sha256:bb"),
        "rule_version_mismatch: expected=sha256:aa actual=sha256:bb",
        '{"actual":"sha256:bb","expected":"sha256:aa","kind":"rule_version_mismatch"}',
    ),
    (
        PolicyDenial("p1", "closed"),
        "policy: policy_id=p1 policy_reason=closed",
        '{"kind":"policy","policy_id":"p1","policy_reason":"closed"}',
    ),
    (
        RuleRejected("r1", "low"),
        "rule_rejected: rule_name=r1 rule_reason=low",
        '{"kind":"rule_rejected","rule_name":"r1","rule_reason":"low"}',
    ),
    (
        NoRuleMatched("write", "normal"),
        "no_rule_matched: tool=write mode=normal",
        '{"kind":"no_rule_matched","mode":"normal","tool":"write"}',
    ),
    (
        BudgetDenial("integer_ops", 10000, 10001, "r1"),
        "budget: axis=integer_ops limit=10000 observed=10001 rule_name=r1",
        '{"axis":"integer_ops","kind":"budget","limit":10000,"observed":10001,"rule_name":"r1"}',
    ),
    (
        EffectInvariantViolated("r1", "non_negative"),
        "effect_invariant_violated: rule_name=r1 invariant_id=non_negative",
        '{"invariant_id":"non_negative","kind":"effect_invariant_violated","rule_name":"r1"}',
    ),
    (AxiomViolation("a1"), "axiom_violation: axiom_id=a1", '{"axiom_id":"a1","kind":"axiom_violation"}'),
    (
        AmbiguousRuleset(("a", "b")),
        "ambiguous_ruleset: rule_names=a,b",
        '{"kind":"ambiguous_ruleset","rule_names":["a","b"]}',
    ),
    (
        SubluminalDecision("BLOCK", "DENYLIST_MATCH", None, -32081, "No.", '{"subluminal":{}}'),
        "subluminal_decision: action=BLOCK reason_code=DENYLIST_MATCH rule_id=None",
        '{"action":"BLOCK","code":-32081,"data":"{\\"subluminal\\":{}}","kind":"subluminal_decision","message":"No.",'
        '"reason_code":"DENYLIST_MATCH","rule_id":null}',
    ),
]


def test_every_kind_has_a_golden() -> None:
    assert {reason.kind for reason, _, _ in GOLDENS} == set(KINDS)


@pytest.mark.parametrize(("reason", "rendered", "serialised"), GOLDENS, ids=lambda value: getattr(value, "kind", None))
def test_a_reason_is_rendered_serialised_and_read_back(reason: DenialReason, rendered: str, serialised: str) -> None:
    assert render_denial_reason(reason) == rendered
    assert serialize_denial_reason(reason) == serialised
    assert parse_denial_reason(serialised) == parse_denial_reason(serialised.encode()) == reason
    assert is_denial_reason(reason) and is_denial_reason(reason, reason.kind)
    assert not is_denial_reason(reason, "something_else")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(reason, dataclasses.fields(reason)[0].name, "x")


@pytest.mark.parametrize("value", [None, {"kind": "policy"}, DenialReason(), object()])
def test_what_is_no_reason_is_told_apart_and_still_rendered(value: object) -> None:
    assert not is_denial_reason(value)
    assert render_denial_reason(value).startswith("unknown: type=")


def test_rendering_is_total_and_stays_one_short_line() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    hostile: Any = Hostile()
    assert render_denial_reason(RuleRejected(hostile, "x")) == "rule_rejected: rule_name=<Hostile> rule_reason=x"
    line = render_denial_reason(RuleRejected("a\nb\x1b[31m", "y" * 10_000))
    assert "\n" not in line and "\x1b" not in line
    assert len(line) < 300


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"kind":7}',
        '{"kind":"nonsense"}',
        '{"kind":"policy","policy_id":"p"}',
        '{"kind":"policy","policy_id":"p","policy_reason":"r","more":1}',
        '{"kind":"policy","policy_id":1,"policy_reason":"r"}',
        '{"kind":"policy","policy_id":null,"policy_reason":"r"}',
        '{"kind":"budget","axis":"a","limit":true,"observed":1,"rule_name":"r"}',
        '{"kind":"budget","axis":"a","limit":1.5,"observed":1,"rule_name":"r"}',
        '{"kind":"ambiguous_ruleset","rule_names":["a",1]}',
        '{"kind":"ambiguous_ruleset","rule_names":"ab"}',
        '{"kind":"policy","kind":"policy","policy_id":"p","policy_reason":"r"}',
        "\ud800",
    ],
)
def test_text_that_is_no_reason_has_its_own_error(text: str) -> None:
    with pytest.raises(DenialReasonParseError):
        parse_denial_reason(text)


def test_serialised_reasons_are_plain_json() -> None:
    for reason, _, _ in GOLDENS:
        assert json.loads(serialize_denial_reason(reason))["kind"] == reason.kind
