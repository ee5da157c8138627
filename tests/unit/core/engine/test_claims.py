"""One call that several doors see is judged at each and charged once; an id is never a way round a limit."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from harness.engine import Run, compiled, rule, tools
from subluminal.core.engine.claims import CLAIM_MS

IDS = {"claudecode/toolUseId": "toolu_1"}


def limited(limit: int, **more: Any) -> Run:
    return Run(compiled(rule("few", "budget", tools("*"), scope="run", limit_calls=limit, on_exceed="BLOCK"), **more))


def at(run: Run, transport: str, args: Any = None, ids: dict[str, str] | None = IDS, **call: Any) -> str:
    return run.action("t", args, transport=transport, call_context=ids, **call)


def test_a_call_that_two_doors_see_is_charged_once() -> None:
    run = limited(2)
    assert [at(run, "mcp_stdio"), at(run, "in_process"), at(run, "messages_api")] == ["ALLOW"] * 3
    assert at(run, "mcp_stdio", {"other": 1}) == "ALLOW"
    assert at(run, "mcp_stdio", {"another": 1}) == "BLOCK"


def test_a_door_claims_an_id_once() -> None:
    run = limited(2)
    assert [at(run, "mcp_stdio") for _ in range(3)] == ["ALLOW", "ALLOW", "BLOCK"]


@pytest.mark.parametrize(
    "other",
    [{"args": {"n": 1}}, {"ids": {"claudecode/toolUseId": "toolu_2"}}, {"ids": None}, {"ids": {}}, {"server": "x"}],
)
def test_what_differs_in_id_server_or_arguments_is_another_call(other: dict[str, Any]) -> None:
    run = limited(1)
    assert at(run, "mcp_stdio") == "ALLOW"
    assert at(run, "in_process", **other) == "BLOCK"


DOORS = ("messages_api", "hook", "mcp_stdio")


@pytest.mark.parametrize("order", list(permutations(DOORS)), ids="-".join)
def test_three_doors_are_one_charge_in_whatever_order_they_are_asked(order: tuple[str, ...]) -> None:
    run = limited(2)
    assert [at(run, door) for door in order] == ["ALLOW"] * 3
    assert [at(run, door) for door in order] == ["ALLOW"] * 3, "the same id again is another call, for all of them"
    assert at(run, order[0]) == "BLOCK"
    assert at(run, order[1]) == "BLOCK", "a door that has seen the id before is charged, whoever else has not"


@pytest.mark.parametrize("again", DOORS)
def test_of_three_doors_each_that_sees_the_id_twice_charges_twice(again: str) -> None:
    run = limited(2)
    assert [at(run, door) for door in DOORS] == ["ALLOW"] * 3
    assert [at(run, again), at(run, again)] == ["ALLOW", "BLOCK"]


@pytest.mark.parametrize("refusing", DOORS)
def test_a_door_that_refuses_leaves_the_claims_of_the_others_as_they_are(refusing: str) -> None:
    """Its policy may be another: the run's state is the same."""
    counted = rule("few", "budget", tools("*"), scope="run", limit_calls=1, on_exceed="BLOCK")
    run, strict = limited(1), Run(compiled(counted, rule("no", "deny", tools("t"))))
    strict.state = run.state
    decided = [at(strict if door == refusing else run, door) for door in DOORS]
    expected = ["BLOCK" if door == refusing else "ALLOW" for door in DOORS]
    if refusing == DOORS[0]:  # an attempt is charged, and nobody has claimed the call
        expected[1:] = ["BLOCK", "BLOCK"]
    assert decided == expected


def test_a_refused_call_leaves_no_claim() -> None:
    run = limited(0)
    assert [at(run, "mcp_stdio"), at(run, "in_process")] == ["BLOCK", "BLOCK"]


def test_every_door_asks_the_access_rules() -> None:
    run = Run(
        compiled(
            rule("few", "budget", tools("*"), scope="run", limit_calls=9, on_exceed="BLOCK"),
            rule("no", "deny", {**tools("t"), "server_name": {"glob": ["s"]}}),
        )
    )
    assert [at(run, "mcp_stdio"), at(run, "in_process")] == ["BLOCK", "BLOCK"]


def test_a_claim_does_not_last_for_ever() -> None:
    run = limited(1)
    assert at(run, "mcp_stdio") == "ALLOW"
    run.at += CLAIM_MS
    assert at(run, "in_process") == "BLOCK"


def test_arguments_that_were_not_read_are_never_joined() -> None:
    run = limited(1)
    assert at(run, "mcp_stdio", uninspected=True) == "ALLOW"
    assert at(run, "in_process", uninspected=True) == "BLOCK"


def test_windows_dedupe_and_buckets_take_a_joined_call_for_one() -> None:
    breaker = {"repeat_threshold": 2, "repeat_window_ms": 60_000, "on_trip": "BLOCK"}
    bucket = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 60_000, "on_limit": "BLOCK"}
    for kind, effect in (
        ("breaker", breaker),
        ("rate_limit", bucket),
        ("dedupe", {"window_ms": 60_000, "on_duplicate": "BLOCK"}),
    ):
        run = Run(compiled(rule("once", kind, tools("*"), scope="run", **effect)))
        assert [at(run, "mcp_stdio"), at(run, "in_process")] == ["ALLOW", "ALLOW"], kind
        assert at(run, "mcp_stdio") != "ALLOW", kind


def test_an_error_of_a_joined_call_is_one_error() -> None:
    breaker = {"scope": "run", "error_threshold": 2, "window_ms": 60_000, "on_trip": "BLOCK"}
    run = Run(compiled(rule("failing", "breaker", tools("*"), **breaker)))
    verdicts = [run.call("t", transport=door, call_context=IDS) for door in ("mcp_stdio", "in_process")]
    for verdict in verdicts:
        run.end(verdict, ok=False)
    assert at(run, "mcp_stdio", {"next": 1}) == "ALLOW"
