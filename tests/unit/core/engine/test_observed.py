"""A call that was carried out before it was judged: charged like any other, and nothing of it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import Run, compiled, rule, tools

MODES = ("observe", "guardrails", "control")


def limited(limit: int, mode: str = "guardrails", **effect: Any) -> Run:
    effect = {"scope": "run", "limit_calls": limit, "on_exceed": "BLOCK", **effect}
    return Run(compiled(rule("few", "budget", tools("*"), **effect), mode=mode))


@pytest.mark.parametrize("mode", MODES)
def test_what_a_rule_would_have_refused_is_said_and_not_done(mode: str) -> None:
    run = Run(compiled(rule("no", "deny", tools("t"), message="Not this."), mode=mode))
    decision = run.call("t", observed=True).decision
    assert decision.action == "ALLOW" and decision.would is not None
    assert (decision.would.rule_id, decision.would.reason_code) == ("no", "DENYLIST_MATCH")
    assert decision.would.action == ("REJECT_WITH_HINT" if mode == "control" else "BLOCK")
    assert ("only observes" in decision.summary) == (mode == "observe")
    assert run.call("other", observed=True).decision.would is None


def test_it_is_charged_and_the_next_call_pays_for_it() -> None:
    run = limited(2)
    assert [run.action(observed=True), run.action(observed=True), run.action(observed=True)] == ["ALLOW"] * 3
    assert run.action() == "BLOCK"


def test_the_strictest_of_several_bundles_is_what_would_have_been() -> None:
    bucket = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 60_000, "on_limit": "THROTTLE", "backoff_ms": 10}
    mild = compiled(rule("wait", "rate_limit", tools("*"), scope="run", **bucket))
    run = Run(mild, compiled(rule("no", "deny", tools("*"))))
    decisions = [run.call(observed=True).decision for _ in range(2)]
    assert [(d.action, d.would.action if d.would else None) for d in decisions] == [("ALLOW", "BLOCK")] * 2


def test_it_ends_no_run_and_goes_on_in_one_that_has_ended() -> None:
    run = limited(0, on_exceed="TERMINATE_RUN")
    decision = run.call(observed=True).decision
    assert (decision.action, decision.would and decision.would.action) == ("ALLOW", "TERMINATE_RUN")
    assert run.state.terminated is None
    assert run.action() == "TERMINATE_RUN"
    decision = run.call(observed=True).decision
    assert decision.action == "ALLOW" and decision.would is not None
    assert (decision.would.action, decision.would.reason_code) == ("TERMINATE_RUN", "RUN_TERMINATED")


def test_its_errors_trip_a_breaker_and_end_no_run() -> None:
    breaker = {"scope": "run", "error_threshold": 1, "window_ms": 60_000, "on_trip": "TERMINATE_RUN"}
    run = Run(compiled(rule("failing", "breaker", tools("*"), **breaker)))
    assert run.end(run.call(observed=True), ok=False), "it has tripped"
    assert run.state.terminated is None
    assert run.action(observed=True) == "ALLOW"
    assert run.action() == "TERMINATE_RUN", "the next call that can be refused"


def test_what_cannot_be_judged_is_told_and_passes() -> None:
    run = Run(compiled(rule("no", "deny", {"args": {"key_contains": {"path": ["x"]}}})))
    for call in ({"ambiguous": "two readings"}, {"uninspected": True}):
        decision = run.call(observed=True, **call).decision
        assert decision.action == "ALLOW" and decision.would is not None, call


def test_it_leaves_a_claim_so_that_another_door_charges_nothing() -> None:
    run = limited(1)
    ids = {"claudecode/toolUseId": "toolu_1"}
    assert run.action(observed=True, transport="messages_api", call_context=ids) == "ALLOW"
    assert run.action(transport="hook", call_context=ids) == "ALLOW"
    assert run.action() == "BLOCK"
