"""One call that several doors saw is one for reading; what only looks alike is not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subluminal.contracts.vocabulary import ACTION_STRICTNESS, ACTIONS
from subluminal.ledger.fold.call import Call
from subluminal.ledger.fold.joined import join

TRANSPORTS = ("mcp_stdio", "in_process", "messages_api")


def call(door: str, decision: str | None = "ALLOW", tool_use_id: str | None = "toolu_1", **facts: Any) -> Call:
    made = Call(f"{door}-1", "run-1", "git", "git_push", "hash", "2026-01-01T00:00:00.000Z")
    made.transport, made.decision, made.tool_use_id = door, decision, tool_use_id
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def doors(*calls: Call) -> list[list[str]]:
    return [joined.doors for joined in join(calls)]


def test_doors_that_saw_the_same_call_are_told_together_and_the_strictest_decision_stands() -> None:
    (joined,) = join([call("mcp_stdio"), call("in_process", "BLOCK"), call("messages_api", "THROTTLE")])
    assert joined.doors == ["mcp_stdio", "in_process", "messages_api"]
    assert joined.standing.decision == "BLOCK"


def test_of_equal_decisions_the_first_door_speaks() -> None:
    (joined,) = join([call("mcp_stdio", latency_ms=5), call("in_process", latency_ms=3)])
    assert joined.standing.latency_ms == 5


def test_a_door_that_has_not_decided_yet_says_nothing_against_one_that_has() -> None:
    (joined,) = join([call("mcp_stdio", None), call("in_process")])
    assert joined.standing.decision == "ALLOW"


def test_without_an_id_of_the_client_nothing_is_joined() -> None:
    assert doors(call("mcp_stdio", tool_use_id=None), call("in_process", tool_use_id=None)) == [
        ["mcp_stdio"],
        ["in_process"],
    ]


def test_what_differs_in_run_id_server_tool_or_arguments_is_another_call() -> None:
    for name in ("run_id", "tool_use_id", "server_name", "tool_name", "args_hash"):
        assert len(doors(call("mcp_stdio"), call("in_process", **{name: "other"}))) == 2


def test_two_calls_of_one_door_are_two_and_each_finds_its_partner() -> None:
    seen = [call("mcp_stdio"), call("in_process"), call("mcp_stdio"), call("in_process"), call("mcp_stdio")]
    assert doors(*seen) == [["mcp_stdio", "in_process"]] * 2 + [["mcp_stdio"]]


@given(st.lists(st.tuples(st.sampled_from(TRANSPORTS), st.sampled_from((*ACTIONS, None)), st.booleans()), max_size=8))
def test_whatever_calls_are_joined_no_decision_is_hidden_behind_a_milder_one(
    told: list[tuple[str, str | None, bool]],
) -> None:
    """A hostile producer may use the client's id of another's call, through any door, before it or after it."""
    calls = [call(door, decision, "toolu_1" if same else "toolu_2") for door, decision, same in told]
    joined = join(calls)
    assert sorted(map(id, calls)) == sorted(id(one) for group in joined for one in group.calls)
    for group in joined:
        assert group.standing in group.calls
        strictness = [ACTION_STRICTNESS.get(one.decision or "", -1) for one in group.calls]
        assert ACTION_STRICTNESS.get(group.standing.decision or "", -1) == max(strictness)
