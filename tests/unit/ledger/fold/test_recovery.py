"""What an agent did after a refusal: the rule, on scripted runs.

A script is one letter for each call, in order: who answered how to which tool with which arguments, and in brackets
after a refusal what is said of it.
"""

from __future__ import annotations

import pytest

from harness.effort import growth
from subluminal.ledger.fold.recovery import BY_IDS, BY_TIME, Made, Reaction, reactions

ACTIONS = {"R": "BLOCK", "H": "REJECT_WITH_HINT", "T": "THROTTLE", "+": "ALLOW", "-": "ALLOW", "P": "ALLOW"}


def made(script: str, *, gap_ms: int = 10) -> list[Made]:
    """Words `Rpush1`: what became of it (R, H, T refused; + went well, - failed, P promoted), tool and arguments."""
    calls = []
    for place, word in enumerate(script.split()):
        kind, tool, args = word[0], word[1:-1], word[-1]
        status = "OK" if kind in "+P" else "ERROR"
        at = 1_000 + gap_ms * place
        call = Made(place, ("git", tool), args, ACTIONS[kind], status, at, at + 5)
        call.promoted = kind == "P"
        calls.append(call)
    return calls


def told(calls: list[Made], status: str = "SUCCEEDED") -> list[str]:
    return [reaction.outcome for reaction in reactions(calls, status)]


@pytest.mark.parametrize(
    ("script", "status", "outcomes"),
    [
        ("Hpush1 +push2", "SUCCEEDED", ["corrected"]),
        ("Hpush1 +log1 +push2", "SUCCEEDED", ["corrected"]),
        ("Hpush1 -push2 +push3", "SUCCEEDED", ["corrected"]),
        ("Hpush1 Hpush2 +push3", "SUCCEEDED", ["repeated", "corrected"]),
        ("Hpush1 Hpush1 Hpush1", "SUCCEEDED", ["repeated", "repeated", "gave_up"]),
        ("Hpush1 +push1", "SUCCEEDED", ["repeated"]),
        ("Tpush1 +push1", "SUCCEEDED", ["corrected"]),
        ("Hpush1 -push2", "SUCCEEDED", ["repeated"]),
        ("Rpush1 +log1 +log2", "SUCCEEDED", ["other_tool"]),
        ("Rpush1", "SUCCEEDED", ["gave_up"]),
        ("Rpush1", "TERMINATED", ["ended"]),
        ("Rpush1", "FAILED", ["ended"]),
        ("Rpush1", "RUNNING", ["open"]),
        ("Rpush1 +log1", "RUNNING", ["open"]),
        ("Rpush1 +push2", "RUNNING", ["corrected"]),
        ("Rpush1 +log1 +log2 +log3 +log4 +log5", "RUNNING", ["other_tool"]),
        ("Rpush1 +log1 +log2 +log3 +log4 +log5 +push2", "SUCCEEDED", ["other_tool"]),
        ("Rpush1 Ppush1", "SUCCEEDED", ["promoted"]),
        ("Rpush1 Plog1 +push2", "SUCCEEDED", ["corrected"]),
        ("+push1 +push2", "SUCCEEDED", []),
    ],
)
def test_what_followed(script: str, status: str, outcomes: list[str]) -> None:
    assert told(made(script), status) == outcomes


def test_how_many_calls_it_took_is_counted_with_the_one_that_went_well() -> None:
    (reaction,) = reactions(made("Hpush1 +log1 -push2 +push3"), "SUCCEEDED")
    assert (reaction.calls, reaction.by) == (3, BY_TIME)
    assert reaction.next is not None and reaction.next.args_hash == "3"


def test_it_is_known_that_exactly_the_suggestion_was_followed() -> None:
    def after(suggested: str) -> Reaction:
        calls = made("Hpush1 +push2")
        calls[0].suggested_hash = suggested
        return reactions(calls, "SUCCEEDED")[0]

    assert after("2").as_hinted and not after("3").as_hinted


def test_calls_of_the_same_message_are_no_reaction_where_that_is_known() -> None:
    calls = made("Rpush1 +push2 +push3")
    for call, message in zip(calls, ("m1", "m1", "m2"), strict=True):
        call.message = message
    (reaction,) = reactions(calls, "SUCCEEDED")
    assert (reaction.outcome, reaction.calls, reaction.by) == ("corrected", 1, BY_IDS)
    assert reaction.next is calls[2]


def test_by_time_alone_a_call_that_was_under_way_is_no_reaction() -> None:
    calls = made("Rpush1 +push2")
    calls[1].started_ms = calls[0].started_ms + 1
    assert told(calls) == ["gave_up"]


def test_two_refusals_of_one_message_are_corrected_by_two_calls_and_not_by_one() -> None:
    calls = made("Rpush1 Rpush2 +push3 +push4")
    for call, message in zip(calls, ("m1", "m1", "m2", "m2"), strict=True):
        call.message = message
    assert told(calls) == ["corrected", "corrected"]
    assert told(calls[:3]) == ["repeated", "corrected"]


def test_what_another_thread_does_is_no_reaction() -> None:
    calls = made("Rpush1 +push2 +log1")
    calls[1].actor = "sub-agent"
    assert told(calls) == ["other_tool"]


def test_the_same_call_sent_again_by_its_client_is_no_reaction() -> None:
    calls = made("Rpush1 Rpush1")
    for call in calls:
        call.use_id = "toolu_1"
    assert told(calls) == ["gave_up", "gave_up"]


def test_a_run_with_many_refusals_is_read_in_one_pass() -> None:
    calls = made(" ".join(["Rpush1", "+push2"] * 5_000))
    assert told(calls) == ["corrected"] * 5_000


@pytest.mark.parametrize("hostile", ["answered late", "one id for all"])
def test_no_run_makes_each_refusal_pass_over_all_the_others(hostile: str) -> None:
    def work(refusals: int) -> None:
        calls = made("Rpush1 " * refusals)
        for call in calls:
            if hostile == "answered late":
                call.ended_ms = 1_000_000_000
            else:
                call.use_id = "use-1"
        assert len(reactions(calls, "SUCCEEDED")) == refusals

    assert growth(work, 1_000, 8_000, limit=3) < 3
