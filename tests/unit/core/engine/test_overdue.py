"""A policy that nobody has confirmed for too long cannot be judged: classes fail open, denials stand, all is said."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import Run, compiled, rule, tools

WHY = "the fleet has not confirmed its policy since long ago"
TAGS = rule("t", "tag", tools("read*"), add_risk_class=["reads"])
DENY = rule("d", "deny", tools("read_secret"))


def overdue(*rules: Any, **more: Any) -> dict[str, Any]:
    return {**compiled(*rules, **more), "overdue": WHY}


def test_what_does_not_fail_open_is_refused_and_told_why() -> None:
    found = Run(overdue(TAGS, DENY)).call("write").decision
    assert (found.action, found.reason_code, found.rule_id) == ("BLOCK", "POLICY_OVERDUE", "fleet.max_offline")
    assert WHY in found.summary


@pytest.mark.parametrize("defaults", [{"fail_open_classes": ["reads"]}, {"decision_on_error": "ALLOW"}])
def test_what_fails_open_passes_and_its_decision_says_so(defaults: dict[str, Any]) -> None:
    made = overdue(TAGS, DENY)
    made["defaults"] = {**made["defaults"], **defaults}
    found = Run(made).call("read").decision
    assert (found.action, found.reason_code, found.severity) == ("ALLOW", "POLICY_OVERDUE", "warn")
    assert WHY in found.summary


def test_a_deny_stands_where_the_call_fails_open_and_says_so_too() -> None:
    made = overdue(TAGS, DENY)
    made["defaults"] = {**made["defaults"], "decision_on_error": "ALLOW"}
    found = Run(made).call("read_secret").decision
    assert (found.action, found.rule_id) == ("BLOCK", "d")
    assert WHY in found.summary


def test_it_is_said_also_where_another_policy_stands_before_it() -> None:
    made = overdue(TAGS)
    made["defaults"] = {**made["defaults"], "decision_on_error": "ALLOW"}
    found = Run(compiled(policy_id="first"), made).call("read").decision
    assert (found.action, found.reason_code) == ("ALLOW", "POLICY_OVERDUE")
