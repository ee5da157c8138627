"""POL: what a policy says is what happens to the call: felt by the client, seen by the tools, told by the record."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from contract.conftest import Play
from harness.adapters.interface import Adapter, Setting
from harness.shim import load_policy
from harness.waiting import wait_for


def with_effect(policy: str, kind: str, **changes: Any) -> dict[str, Any]:
    bundle = load_policy(policy)
    bundle["rules"][0]["effect"][kind].update(changes)
    return bundle


@pytest.mark.contract("POL-001")
def test_observe_mode_refuses_nothing_and_says_what_it_would_have_done(play: Play) -> None:
    session = play("observe_deny.yaml", ("delete_issue", {"id": 1}), ("read_issue", {"id": 1}))
    assert session.actions == ["ALLOW", "ALLOW"]
    assert session.executed == ["delete_issue", "read_issue"]
    run = session.events.events_of("run_start")[0]["run"]
    assert run["mode"] == "observe"
    assert (run["policy"]["policy_id"], run["policy"]["policy_version"]) == ("observe-deny", "1.0.0")
    assert len(run["policy"]["policy_hash"]) == 64
    would = session.decisions[0]["would"]
    assert (would["action"], would["rule_id"]) == ("BLOCK", "no-deletes")
    assert "would" not in session.decisions[1]


@pytest.mark.contract("POL-001")
@pytest.mark.parametrize(
    ("policy", "tool", "would"),
    [
        ("budget_three_calls.yaml", "search", "BLOCK"),
        ("throttle_two.yaml", "search", "THROTTLE"),
        ("breaker_repeat_five.yaml", "search", "BLOCK"),
        ("dedupe_writes.yaml", "create_issue", "BLOCK"),
    ],
)
def test_observe_mode_lets_pass_what_any_kind_of_rule_would_refuse(
    play: Play, policy: str, tool: str, would: str
) -> None:
    session = play({**load_policy(policy), "mode": "observe"}, *[(tool, {"q": 1})] * 7)
    assert session.actions == ["ALLOW"] * 7
    assert session.decisions[-1]["would"]["action"] == would


@pytest.mark.contract("POL-002")
def test_a_deny_above_an_allow_decides(play: Play) -> None:
    session = play("deny_above_allow.yaml", ("delete_issue", {"id": 1}), ("read_issue", {"id": 1}))
    assert session.actions == ["BLOCK", "ALLOW"]
    assert session.executed == ["read_issue"]
    denied, allowed = session.decisions
    assert (denied["rule_id"], denied["explain"]["reason_code"]) == ("no-deletes", "DESTRUCTIVE")
    assert denied["severity"] == "critical"
    assert denied["policy"]["policy_id"] == "deny-above-allow"
    assert allowed["rule_id"] == "everything"


@pytest.mark.contract("POL-002")
def test_an_allow_above_a_deny_decides_too(play: Play) -> None:
    bundle = load_policy("deny_above_allow.yaml")
    bundle["rules"].reverse()
    session = play(bundle, ("delete_issue", {"id": 1}))
    assert session.actions == ["ALLOW"]
    assert session.decisions[0]["rule_id"] == "everything"


@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("on_exceed", ["BLOCK", "REJECT_WITH_HINT", "TERMINATE_RUN"])
def test_a_budget_allows_its_limit_and_then_does_what_it_says(play: Play, on_exceed: str) -> None:
    bundle = with_effect("budget_three_calls.yaml", "budget", on_exceed=on_exceed)
    session = play(bundle, *[("search", {"q": n}) for n in range(4)])
    assert session.actions == ["ALLOW", "ALLOW", "ALLOW", on_exceed]
    assert session.decisions[3]["rule_id"] == "three-searches"
    assert session.decisions[3]["explain"]["reason_code"] == "BUDGET_EXCEEDED"
    ended = session.events.events_of("run_end")[0]["run"]["status"]
    assert ended == ("TERMINATED" if on_exceed == "TERMINATE_RUN" else "SUCCEEDED")


@pytest.mark.contract("POL-003")
def test_a_budget_counts_only_the_tools_it_matches(play: Play) -> None:
    calls = [("search", {"q": 1}), ("read", {}), ("read", {}), ("search", {"q": 2}), ("read", {}), ("search", {"q": 3})]
    session = play("budget_three_calls.yaml", *calls, ("read", {}), ("search", {"q": 4}))
    assert session.actions == ["ALLOW"] * 7 + ["BLOCK"]


@pytest.mark.contract("POL-003")
def test_a_run_that_was_terminated_stays_so_for_every_tool(play: Play) -> None:
    bundle = with_effect("budget_three_calls.yaml", "budget", on_exceed="TERMINATE_RUN")
    session = play(bundle, *[("search", {"q": n}) for n in range(4)], ("read", {}))
    assert session.actions[3:] == ["TERMINATE_RUN", "TERMINATE_RUN"]
    assert session.decisions[4]["explain"]["reason_code"] == "RUN_TERMINATED"


@pytest.mark.contract("POL-004")
def test_an_empty_token_bucket_throttles_and_says_how_long(play: Play) -> None:
    session = play("throttle_two.yaml", *[("search", {"q": n}) for n in range(5)])
    assert session.actions == ["ALLOW", "ALLOW", "THROTTLE", "THROTTLE", "THROTTLE"]
    for decision, outcome in list(zip(session.decisions, session.outcomes, strict=True))[2:]:
        assert decision["rule_id"] == "slow-down"
        assert decision["backoff_ms"] >= 500
        assert outcome.data["backoff_ms"] == decision["backoff_ms"]


@pytest.mark.contract("POL-004")
def test_a_bucket_fills_again_with_time(adapter: Adapter, tmp_path: Path) -> None:
    changes = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 50, "backoff_ms": 10}
    bundle = with_effect("throttle_two.yaml", "rate_limit", **changes)
    with adapter.start(Setting(tmp_path, bundle, tools=["search"], arguments=["q"])) as session:
        assert session.call("search", {"q": 0}).action == "ALLOW"
        number = itertools.count(1)
        wait_for(lambda: session.call("search", {"q": next(number)}).action == "ALLOW", what="a token")


@pytest.mark.contract("POL-005")
@pytest.mark.parametrize("on_trip", ["BLOCK", "TERMINATE_RUN"])
def test_a_breaker_trips_when_the_same_call_repeats_up_to_its_threshold(play: Play, on_trip: str) -> None:
    bundle = with_effect("breaker_repeat_five.yaml", "breaker", on_trip=on_trip)
    session = play(bundle, *[("search", {"q": "the same"})] * 5)
    assert session.actions == ["ALLOW"] * 4 + [on_trip]
    assert session.decisions[4]["rule_id"] == "stuck-in-a-loop"
    assert session.decisions[4]["explain"]["reason_code"] == "BREAKER_REPEAT"
    trip = session.events.events_of("breaker_trip")[0]
    assert trip["breaker"]["rule_id"] == "stuck-in-a-loop"


@pytest.mark.contract("POL-005")
def test_different_arguments_are_not_a_repeat(play: Play) -> None:
    session = play("breaker_repeat_five.yaml", *[("search", {"q": n}) for n in range(12)])
    assert session.actions == ["ALLOW"] * 12


@pytest.mark.contract("POL-006")
@pytest.mark.parametrize("on_duplicate", ["BLOCK", "REJECT_WITH_HINT"])
def test_a_duplicate_inside_the_window_is_refused_and_explained(play: Play, on_duplicate: str) -> None:
    bundle = with_effect("dedupe_writes.yaml", "dedupe", on_duplicate=on_duplicate)
    args = {"title": "Crash on start", "team": "core"}
    again = {"team": "core", "title": "Crash on start"}
    session = play(bundle, ("create_issue", args), ("create_issue", again), ("create_issue", {"title": "x"}))
    assert session.actions == ["ALLOW", on_duplicate, "ALLOW"]
    refused = session.decisions[1]
    assert (refused["rule_id"], refused["explain"]["reason_code"]) == ("once-a-minute", "DUPLICATE_CALL")
    assert refused["explain"]["summary"]


@pytest.mark.contract("POL-007")
def test_a_tag_gives_the_risk_class_that_a_later_rule_matches(play: Play) -> None:
    session = play("tag_then_deny.yaml", ("create_issue", {}), ("read_issue", {}), ("update_issue", {}))
    assert session.actions == ["BLOCK", "ALLOW", "BLOCK"]
    assert [decision["rule_id"] for decision in session.decisions][0::2] == ["no-writes", "no-writes"]
    tags = [event["call"].get("tags", []) for event in session.events.events_of("tool_call_start")]
    assert tags == [["write_like"], [], ["write_like"]]


@pytest.mark.contract("POL-007")
def test_a_rule_above_its_tag_does_not_see_it(play: Play) -> None:
    bundle = load_policy("tag_then_deny.yaml")
    bundle["rules"].reverse()
    assert play(bundle, ("create_issue", {})).actions == ["ALLOW"]
