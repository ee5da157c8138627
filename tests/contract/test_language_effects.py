"""The effects of the policy language through a real shim: each case fails if its field is ignored."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.engine import rule, tools
from harness.fake_server import fake_server
from harness.shim import Shim
from harness.waiting import wait_for
from subluminal.contracts.vocabulary import MAX_INSPECT_BYTES
from subluminal.policy.edit.template import STARTER, template_files

A, B, R, T, X = "ALLOW", "BLOCK", "REJECT_WITH_HINT", "THROTTLE", "TERMINATE_RUN"
HOUR = 3_600_000
NAMES = ("t", "u", "dear", "dull", "create_issue", "write_file")

Decisions = Callable[..., list[dict[str, Any]]]


def policy(*rules: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    return {
        "policy_id": "effects",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": B, **defaults},
        "selectors": {},
        "rules": list(rules),
    }


def shim(tmp_path: Path, bundle: Any, server: str = "one", **env: str) -> Shim:
    return Shim(tmp_path, server, fake_server(tools={name: {} for name in NAMES}), policy=bundle, env=env)


def decisions(setup: Shim) -> list[dict[str, Any]]:
    setup.events.wait_type("run_end")
    return [event["decision"] for event in setup.events.events_of("tool_call_decision")]


@pytest.fixture
def decided(tmp_path: Path) -> Decisions:
    """decided(bundle, (tool, args), ...): a whole run, and its decisions."""

    def run(bundle: dict[str, Any], *calls: tuple[str, Any]) -> list[dict[str, Any]]:
        setup = shim(tmp_path, bundle)
        setup.run(*calls)
        return decisions(setup)

    return run


def actions(found: list[dict[str, Any]]) -> list[str]:
    return [decision["action"] for decision in found]


# -- scopes, windows, prices ----------------------------------------------------------------------------------------

COUNTERS: dict[str, dict[str, Any]] = {
    "budget": {"limit_calls": 1, "on_exceed": B},
    "rate_limit": {"capacity": 1, "refill_tokens": 1, "refill_period_ms": HOUR, "on_limit": B},
    "breaker": {"error_threshold": 1, "window_ms": HOUR, "on_trip": B},
    "dedupe": {"window_ms": HOUR, "on_duplicate": B},
}


@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("kind", COUNTERS)
def test_the_scope_of_a_server_counts_its_tools_together_and_other_servers_apart(tmp_path: Path, kind: str) -> None:
    bundle = policy(rule("x", kind, scope="server", **COUNTERS[kind]))
    servers = [
        Shim(
            tmp_path,
            name,
            fake_server(tools={"t": {"is_error": "no"} if kind == "breaker" else {}, "u": {}}),
            policy=bundle,
            env={"SUB_RUN_ID": "run-shared"},
        )
        for name in ("one", "two")
    ]
    with servers[0].start() as first, servers[1].start() as second:
        for agent in (first, second):
            agent.initialize()
            agent.call("t", {})
            agent.call("u", {})
            agent.finish()
    assert [actions(decisions(setup)) for setup in servers] == [[A, B], [A, B]]
    if kind == "breaker":
        assert servers[0].events.events_of("breaker_trip")[0]["breaker"]["scope"] == "server"


@pytest.mark.contract("POL-003")
def test_a_budget_with_a_window_refuses_within_it_and_says_how_long(decided: Decisions) -> None:
    spec = {"scope": "machine", "limit_calls": 2, "window_ms": HOUR, "on_exceed": R}
    found = decided(policy(rule("hourly", "budget", **spec)), *[("t", {"n": n}) for n in range(3)])
    assert actions(found) == [A, A, R]
    assert "2 calls an hour (on this machine) are used up; the next fits in 60 minutes" in found[2]["hint"]["hint_text"]
    assert found[2]["hint"]["hint_kind"] == "BUDGET"


@pytest.mark.contract("POL-003")
@pytest.mark.parametrize("limit", [{"limit_calls": 1}, {"limit_cost_units": 1}])
def test_a_budget_with_a_window_takes_calls_again_when_it_is_over(tmp_path: Path, limit: dict[str, int]) -> None:
    setup = shim(tmp_path, policy(rule("b", "budget", scope="machine", window_ms=300, on_exceed=B, **limit)))
    with setup.start() as agent:
        agent.initialize()
        assert "result" in agent.call("t", {})
        number = itertools.count()
        wait_for(lambda: "result" in agent.call("t", {"n": next(number)}), what="the window to be over")
        agent.finish()


PRICED = {"scope": "run", "limit_cost_units": 10, "on_exceed": B}


@pytest.mark.contract("POL-003")
def test_a_call_costs_what_its_argument_says(decided: Decisions) -> None:
    bundle = policy(rule("b", "budget", **PRICED, cost_units_from={"arg": "limit", "per": 100}))
    calls = [("t", {"limit": 800}), ("t", {"limit": "201"}), ("t", {"limit": 200}), ("t", {})]
    assert actions(decided(bundle, *calls)) == [A, B, A, B]


@pytest.mark.contract("POL-003")
def test_a_call_whose_cost_cannot_be_told_falls_to_decision_on_error(decided: Decisions) -> None:
    bundle = policy(rule("b", "budget", **PRICED, cost_units_from={"arg": "limit"}))
    (found,) = decided(bundle, ("t", {"limit": "many"}))
    assert (found["action"], found["explain"]["reason_code"]) == (B, "UNJUDGED_ARGS")


@pytest.mark.contract("POL-003")
def test_a_call_costs_what_its_tool_is_worth(decided: Decisions) -> None:
    bundle = policy(rule("b", "budget", **PRICED, cost_units_by_tool={"d*": 4, "dear": 7}))
    calls = [(tool, {}) for tool in ("dull", "dear", "dull", "t", "t", "t")]
    assert actions(decided(bundle, *calls)) == [A, B, A, A, A, B]


# -- words ------------------------------------------------------------------------------------------------------------

REFUSING: dict[str, tuple[dict[str, Any], str]] = {
    "deny": ({}, "action"),
    "budget": ({"scope": "run", "limit_calls": 0}, "on_exceed"),
    "rate_limit": ({"scope": "run", "capacity": 1, "refill_tokens": 1, "refill_period_ms": HOUR}, "on_limit"),
    "breaker": ({"scope": "run", "repeat_threshold": 2, "repeat_window_ms": HOUR}, "on_trip"),
    "dedupe": ({"scope": "run", "window_ms": HOUR}, "on_duplicate"),
}


@pytest.mark.contract("ERR-003")
@pytest.mark.parametrize("kind", REFUSING)
def test_every_kind_that_refuses_has_words_of_its_own(tmp_path: Path, kind: str) -> None:
    spec, action = REFUSING[kind]
    words = {"reason_code": "OURS", "message": "Not today", "hint_text": "Come back tomorrow."}
    setup = shim(tmp_path, policy(rule("x", kind, **spec, **{action: R}, **words)))
    reply = setup.run(("t", {}), ("t", {}))[1]
    found = decisions(setup)[1]
    assert (found["action"], found["explain"]["reason_code"]) == (R, "OURS")
    assert "Not today" in found["explain"]["summary"]
    assert found["hint"]["hint_text"] == "Come back tomorrow."
    issued = setup.events.events_of("hint_issued")[-1]["hint"]
    assert issued["hint_text"] == "Come back tomorrow."
    data = reply["error"]["data"]["subluminal"]
    assert data["reason_code"] == "OURS" and data["hint"]["hint_text"] == "Come back tomorrow."
    if kind == "breaker":
        assert setup.events.events_of("breaker_trip")[0]["breaker"]["reason_code"] == "OURS"


# -- dedupe -----------------------------------------------------------------------------------------------------------

ONCE = {"scope": "tool", "window_ms": HOUR, "on_duplicate": B}


@pytest.mark.contract("POL-006")
def test_chosen_arguments_make_a_call_the_same(decided: Decisions) -> None:
    bundle = policy(rule("once", "dedupe", **ONCE, key="custom", key_args=["title"]))
    calls = [("t", {"title": "a", "n": 1}), ("t", {"title": "a", "n": 2}), ("t", {"title": "b"}), ("t", {"n": 1})]
    assert actions(decided(bundle, *calls)) == [A, B, A, A]


@pytest.mark.contract("POL-006")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_allow_overrides_dedupe_above_it_and_below(decided: Decisions, order: tuple[int, int]) -> None:
    rules = rule("once", "dedupe", **ONCE), rule("again", "allow", tools("t"), override=["dedupe"])
    found = decided(policy(*(rules[index] for index in order)), *[("t", {})] * 2, *[("u", {})] * 2)
    assert actions(found) == [A, A, A, B]
    assert [decision["rule_id"] for decision in found] == ["again", "again", None, "once"]


# -- calls that cannot be judged, and large ones ----------------------------------------------------------------------


def large(agent: Any, tool: str, text: str = "x", size: int = 1_200_000) -> tuple[bytes, Any]:
    """A call of 1.2 MB, and its answer. White space and the order of members are as some clients have them."""
    arguments = json.dumps({"path": "/tmp/é", "content": text * size, "more": {"a": ["]", '"}', "\\"]}})
    raw = arguments.encode()
    name = f"{tool}-{next(_IDS)}"
    line = b'{"jsonrpc":"2.0", "id":"%s","params":{"arguments" : %s , "name":"%s"},"method":"tools/call"}' % (
        name.encode(),
        raw,
        tool.encode(),
    )
    agent.send_raw(line + b"\n")
    return raw, agent.reply(name)


_IDS = itertools.count()


@pytest.mark.contract("BUF-004")
def test_under_the_starter_a_large_write_passes_and_is_known_by_its_arguments(tmp_path: Path) -> None:
    starter = tmp_path / "policy.yaml"
    starter.write_bytes(template_files(STARTER, str(starter))[str(starter)])
    setup = shim(tmp_path, starter)
    with setup.start() as agent:
        agent.initialize()
        raw, reply = large(agent, "write_file")
        assert "result" in reply, reply
        small = agent.call("write_file", {"path": "a"})
        assert "result" in small
        agent.finish()
    setup.events.wait_type("run_end")
    big, little = (event["call"] for event in setup.events.events_of("tool_call_start"))
    assert big["bytes_in"] > MAX_INSPECT_BYTES
    assert (big["args_hash"], big["args_raw_hash"]) == ("", hashlib.sha256(raw).hexdigest())
    assert len(big["args_stream_hash"]) == 64 and big["args_stream_hash"] != big["args_raw_hash"]
    assert "args_raw_hash" not in little


@pytest.mark.contract("POL-006")
def test_under_the_starter_the_same_large_creation_is_a_duplicate(tmp_path: Path) -> None:
    starter = tmp_path / "policy.yaml"
    starter.write_bytes(template_files(STARTER, str(starter))[str(starter)])
    setup = shim(tmp_path, starter)
    with setup.start() as agent:
        agent.initialize()
        for text in ("x", "y", "x"):
            large(agent, "create_issue", text)
        agent.finish()
    found = decisions(setup)
    assert actions(found) == [A, A, R]
    assert found[2]["explain"]["reason_code"] == "DUPLICATE_CALL"


@pytest.mark.contract("POL-005")
def test_a_large_call_again_and_again_trips_a_breaker(tmp_path: Path) -> None:
    loop = rule("loop", "breaker", scope="tool", repeat_threshold=3, repeat_window_ms=HOUR, on_trip=B)
    setup = shim(tmp_path, policy(loop))
    with setup.start() as agent:
        agent.initialize()
        for text in ("x", "x", "y", "x"):
            large(agent, "t", text)
        agent.finish()
    assert actions(decisions(setup)) == [A, A, A, B]


@pytest.mark.contract("POL-007")
@pytest.mark.parametrize("classes", [["harmless"], ["read_like"]])
def test_classes_that_fail_open_are_those_of_tag_rules(tmp_path: Path, classes: list[str]) -> None:
    """The server calls both tools read_like; the policy calls one of them harmless."""
    rules = (
        rule("tag", "tag", tools("t"), add_risk_class=["harmless"]),
        rule("secret", "deny", {"args": {"has_keys": ["secret"]}}),
    )
    served = fake_server(tools={name: {"annotations": {"readOnlyHint": True}} for name in ("t", "u")})
    setup = Shim(tmp_path, "one", served, policy=policy(*rules, fail_open_classes=classes))
    with setup.start() as agent:
        agent.initialize()
        agent.request("tools/list")
        for tool in ("t", "u"):
            large(agent, tool)
        agent.finish()
    found = decisions(setup)
    assert actions(found) == ([A, B] if classes == ["harmless"] else [B, B])
    assert {decision["explain"]["reason_code"] for decision in found} == {"UNINSPECTED_ARGS"}
