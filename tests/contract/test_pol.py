"""POL: what a policy says is what happens to the call, seen from the agent, the server and the event stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Message
from harness.fake_server import fake_server
from harness.shim import Shim, load_policy
from harness.sink import EventDict
from subluminal.contracts.vocabulary import ERROR_CODES

CODE_TO_ACTION = {code: action for action, code in ERROR_CODES.items()}


class Session:
    """One run under a policy: what the agent got, what the server carried out, what was recorded."""

    def __init__(self, tmp_path: Path, policy: str | dict[str, Any], *calls: tuple[str, Any]) -> None:
        executed = tmp_path / "executed"
        executed.touch()
        self.setup = Shim(tmp_path, "linear", fake_server(tools={"*": {}}, executed=str(executed)), policy=policy)
        self.replies: list[Message] = self.setup.run(*calls)
        self.executed = [json.loads(line)["tool"] for line in executed.read_text().splitlines()]
        self.decisions: list[EventDict] = [
            event["decision"] for event in self.setup.events.events_of("tool_call_decision")
        ]
        self.outcomes = [
            CODE_TO_ACTION[reply["error"]["code"]] if "error" in reply else "ALLOW" for reply in self.replies
        ]

    @property
    def actions(self) -> list[str]:
        """The recorded actions, which must be those the agent felt and the server saw."""
        recorded = [decision["action"] for decision in self.decisions]
        assert recorded == self.outcomes
        assert len(self.executed) == recorded.count("ALLOW")
        return recorded


def with_effect(policy: str, kind: str, **changes: Any) -> dict[str, Any]:
    bundle = load_policy(policy)
    bundle["rules"][0]["effect"][kind].update(changes)
    return bundle


@pytest.mark.contract("POL-001")
def test_observe_mode_refuses_nothing_and_says_what_it_would_have_done(tmp_path: Path) -> None:
    session = Session(tmp_path, "observe_deny.yaml", ("delete_issue", {"id": 1}), ("read_issue", {"id": 1}))
    assert session.actions == ["ALLOW", "ALLOW"]
    assert session.executed == ["delete_issue", "read_issue"]
    run = session.setup.events.events_of("run_start")[0]["run"]
    assert run["mode"] == "observe"
    assert (run["policy"]["policy_id"], run["policy"]["policy_version"]) == ("observe-deny", "1.0.0")
    assert len(run["policy"]["policy_hash"]) == 64
    would = session.decisions[0]["would"]
    assert (would["action"], would["rule_id"]) == ("BLOCK", "no-deletes")
    assert "would" not in session.decisions[1]


@pytest.mark.contract("POL-001")
@pytest.mark.parametrize(
    ("policy", "tool"),
    [
        ("budget_three_calls.yaml", "search"),
        ("throttle_two.yaml", "search"),
        ("breaker_repeat_five.yaml", "search"),
        ("dedupe_writes.yaml", "create_issue"),
    ],
)
def test_observe_mode_lets_pass_what_any_kind_of_rule_would_refuse(tmp_path: Path, policy: str, tool: str) -> None:
    session = Session(tmp_path, {**load_policy(policy), "mode": "observe"}, *[(tool, {"q": 1})] * 7)
    assert session.actions == ["ALLOW"] * 7
    assert session.decisions[-1]["would"]["action"] != "ALLOW"


@pytest.mark.contract("POL-002")
def test_a_deny_above_an_allow_decides(tmp_path: Path) -> None:
    session = Session(tmp_path, "deny_above_allow.yaml", ("delete_issue", {"id": 1}), ("read_issue", {"id": 1}))
    assert session.actions == ["BLOCK", "ALLOW"]
    assert session.executed == ["read_issue"]
    denied, allowed = session.decisions
    assert (denied["rule_id"], denied["explain"]["reason_code"]) == ("no-deletes", "DESTRUCTIVE")
    assert denied["severity"] == "critical"
    assert denied["policy"]["policy_id"] == "deny-above-allow"
    assert allowed["rule_id"] == "everything"


@pytest.mark.contract("POL-002")
def test_an_allow_above_a_deny_decides_too(tmp_path: Path) -> None:
    bundle = load_policy("deny_above_allow.yaml")
    bundle["rules"].reverse()
    session = Session(tmp_path, bundle, ("delete_issue", {"id": 1}))
    assert session.actions == ["ALLOW"]
    assert session.decisions[0]["rule_id"] == "everything"


@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("on_exceed", ["BLOCK", "REJECT_WITH_HINT", "TERMINATE_RUN"])
def test_a_budget_allows_its_limit_and_then_does_what_it_says(tmp_path: Path, on_exceed: str) -> None:
    bundle = with_effect("budget_three_calls.yaml", "budget", on_exceed=on_exceed)
    session = Session(tmp_path, bundle, *[("search", {"q": n}) for n in range(4)])
    assert session.actions == ["ALLOW", "ALLOW", "ALLOW", on_exceed]
    assert session.decisions[3]["rule_id"] == "three-searches"
    assert session.decisions[3]["explain"]["reason_code"] == "BUDGET_EXCEEDED"
    ended = session.setup.events.events_of("run_end")[0]["run"]["status"]
    assert ended == ("TERMINATED" if on_exceed == "TERMINATE_RUN" else "SUCCEEDED")


@pytest.mark.contract("POL-003")
def test_a_budget_counts_only_the_tools_it_matches(tmp_path: Path) -> None:
    calls = [("search", {"q": 1}), ("read", {}), ("read", {}), ("search", {"q": 2}), ("read", {}), ("search", {"q": 3})]
    session = Session(tmp_path, "budget_three_calls.yaml", *calls, ("read", {}), ("search", {"q": 4}))
    assert session.actions == ["ALLOW"] * 7 + ["BLOCK"]


@pytest.mark.contract("POL-003")
def test_a_run_that_was_terminated_stays_so_for_every_tool(tmp_path: Path) -> None:
    bundle = with_effect("budget_three_calls.yaml", "budget", on_exceed="TERMINATE_RUN")
    session = Session(tmp_path, bundle, *[("search", {"q": n}) for n in range(4)], ("read", {}))
    assert session.actions[3:] == ["TERMINATE_RUN", "TERMINATE_RUN"]
    assert session.decisions[4]["explain"]["reason_code"] == "RUN_TERMINATED"


@pytest.mark.contract("POL-004")
def test_an_empty_token_bucket_throttles_and_says_how_long(tmp_path: Path) -> None:
    session = Session(tmp_path, "throttle_two.yaml", *[("search", {"q": n}) for n in range(5)])
    assert session.actions == ["ALLOW", "ALLOW", "THROTTLE", "THROTTLE", "THROTTLE"]
    for decision, reply in list(zip(session.decisions, session.replies, strict=True))[2:]:
        assert decision["rule_id"] == "slow-down"
        assert decision["backoff_ms"] >= 500
        assert reply["error"]["data"]["subluminal"]["backoff_ms"] == decision["backoff_ms"]


@pytest.mark.contract("POL-004")
def test_a_bucket_fills_again_with_time(tmp_path: Path) -> None:
    changes = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 50, "backoff_ms": 10}
    bundle = with_effect("throttle_two.yaml", "rate_limit", **changes)
    setup = Shim(tmp_path, "linear", fake_server(tools={"search": {}}), policy=bundle)
    with setup.start() as agent:
        agent.initialize()
        assert "result" in agent.call("search", {"q": 0})
        seen = []
        for number in range(200):
            seen.append("result" in agent.call("search", {"q": number + 1}))
            if seen[-1]:
                break
            agent.settle(0.01)
        agent.finish()
    assert seen[-1], "the bucket never filled"


@pytest.mark.contract("POL-005")
@pytest.mark.parametrize("on_trip", ["BLOCK", "TERMINATE_RUN"])
def test_a_breaker_trips_when_the_same_call_repeats_up_to_its_threshold(tmp_path: Path, on_trip: str) -> None:
    bundle = with_effect("breaker_repeat_five.yaml", "breaker", on_trip=on_trip)
    session = Session(tmp_path, bundle, *[("search", {"q": "the same"})] * 5)
    assert session.actions == ["ALLOW"] * 4 + [on_trip]
    assert session.decisions[4]["rule_id"] == "stuck-in-a-loop"
    assert session.decisions[4]["explain"]["reason_code"] == "BREAKER_REPEAT"
    trip = session.setup.events.events_of("breaker_trip")[0]
    assert trip["breaker"]["rule_id"] == "stuck-in-a-loop"


@pytest.mark.contract("POL-005")
def test_different_arguments_are_not_a_repeat(tmp_path: Path) -> None:
    session = Session(tmp_path, "breaker_repeat_five.yaml", *[("search", {"q": n}) for n in range(12)])
    assert session.actions == ["ALLOW"] * 12


@pytest.mark.contract("POL-006")
@pytest.mark.parametrize("on_duplicate", ["BLOCK", "REJECT_WITH_HINT"])
def test_a_duplicate_inside_the_window_is_refused_and_explained(tmp_path: Path, on_duplicate: str) -> None:
    bundle = with_effect("dedupe_writes.yaml", "dedupe", on_duplicate=on_duplicate)
    args = {"title": "Crash on start", "team": "core"}
    again = {"team": "core", "title": "Crash on start"}
    session = Session(
        tmp_path, bundle, ("create_issue", args), ("create_issue", again), ("create_issue", {"title": "x"})
    )
    assert session.actions == ["ALLOW", on_duplicate, "ALLOW"]
    refused = session.decisions[1]
    assert (refused["rule_id"], refused["explain"]["reason_code"]) == ("once-a-minute", "DUPLICATE_CALL")
    assert refused["explain"]["summary"]


@pytest.mark.contract("POL-007")
def test_a_tag_gives_the_risk_class_that_a_later_rule_matches(tmp_path: Path) -> None:
    session = Session(tmp_path, "tag_then_deny.yaml", ("create_issue", {}), ("read_issue", {}), ("update_issue", {}))
    assert session.actions == ["BLOCK", "ALLOW", "BLOCK"]
    assert [decision["rule_id"] for decision in session.decisions][0::2] == ["no-writes", "no-writes"]
    tags = [event["call"].get("tags", []) for event in session.setup.events.events_of("tool_call_start")]
    assert tags == [["write_like"], [], ["write_like"]]


@pytest.mark.contract("POL-007")
def test_a_rule_above_its_tag_does_not_see_it(tmp_path: Path) -> None:
    bundle = load_policy("tag_then_deny.yaml")
    bundle["rules"].reverse()
    assert Session(tmp_path, bundle, ("create_issue", {})).actions == ["ALLOW"]
