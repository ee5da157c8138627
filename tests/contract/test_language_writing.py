"""How the policy language is written, through a real shim: durations, sizes and defaults do what they say.

Each case has a call on either side of what is written, so that it fails if the field is ignored or read in another
unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.engine import rule
from harness.fake_server import fake_server
from harness.shim import Shim
from harness.waiting import wait_for

A, B, R, T = "ALLOW", "BLOCK", "REJECT_WITH_HINT", "THROTTLE"

Decisions = Callable[..., list[dict[str, Any]]]
Calls = list[tuple[str, dict[str, Any]]]


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy_id": "writing",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": B},
        "selectors": {},
        "rules": list(rules),
    }


def shim(tmp_path: Path, *rules: dict[str, Any]) -> Shim:
    served = fake_server(tools={"t": {}, "bad": {"is_error": "no"}, "slow": {"delay_ms": 120}})
    return Shim(tmp_path, "one", served, policy=policy(*rules))


def decisions(setup: Shim) -> list[dict[str, Any]]:
    setup.events.wait_type("run_end")
    return [event["decision"] for event in setup.events.events_of("tool_call_decision")]


@pytest.fixture
def decided(tmp_path: Path) -> Decisions:
    """decided((rule, ...), (tool, args), ...): a whole run, and its decisions."""

    def run(rules: tuple[dict[str, Any], ...], *calls: tuple[str, Any]) -> list[dict[str, Any]]:
        setup = shim(tmp_path, *rules)
        setup.run(*calls)
        return decisions(setup)

    return run


def actions(found: list[dict[str, Any]]) -> list[str]:
    return [decision["action"] for decision in found]


# -- durations --------------------------------------------------------------------------------------------------------

# What is written, and a second call of the first's kind, which is refused as long as the duration lasts.
ONCE: dict[str, tuple[dict[str, Any], Calls]] = {
    "budget.window": (
        rule("x", "budget", scope="run", limit_calls=1, window="{}", on_exceed=B),
        [("t", {"n": 1}), ("t", {"n": 2})],
    ),
    "dedupe.window": (
        rule("x", "dedupe", scope="run", window="{}", on_duplicate=B),
        [("t", {}), ("t", {})],
    ),
    "breaker.window": (
        rule("x", "breaker", scope="run", error_threshold=1, window="{}", on_trip=B),
        [("bad", {}), ("t", {})],
    ),
    "breaker.repeat_window": (
        rule("x", "breaker", scope="run", repeat_threshold=2, repeat_window="{}", on_trip=B),
        [("t", {}), ("t", {})],
    ),
    "rate_limit.refill_period": (
        rule("x", "rate_limit", scope="run", capacity=1, refill_tokens=1, refill_period="{}", on_limit=B),
        [("t", {"n": 1}), ("t", {"n": 2})],
    ),
}


REQUIREMENTS = {"budget": "POL-003", "rate_limit": "POL-004", "breaker": "POL-005", "dedupe": "POL-006"}


def each_of(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.contract(REQUIREMENTS[name.split(".")[0]])) for name in names]


def lasting(name: str, duration: str) -> tuple[dict[str, Any], Calls]:
    spec, calls = ONCE[name]
    kind, field = name.split(".")
    return {**spec, "effect": {kind: {**spec["effect"][kind], field: duration}}}, calls


@pytest.mark.parametrize("duration", ["3600000ms", "3600s", "60m", "1h", "1d"])
@pytest.mark.parametrize("name", each_of(ONCE))
def test_what_lasts_an_hour_refuses_at_once(decided: Decisions, name: str, duration: str) -> None:
    spec, calls = lasting(name, duration)
    assert actions(decided((spec,), *calls)) == [A, B]


@pytest.mark.parametrize("duration", ["250ms", "1s"])
@pytest.mark.parametrize("name", each_of(name for name in ONCE if name != "breaker.repeat_window"))
def test_what_lasts_a_moment_is_soon_over(tmp_path: Path, name: str, duration: str) -> None:
    """A repeat window is left out: refused repeats renew it."""
    spec, calls = lasting(name, duration)
    setup = shim(tmp_path, spec)
    (first, args), (again, others) = calls
    with setup.start() as agent:
        agent.initialize()
        agent.call(first, args)
        number = itertools.count(10)
        fresh = name != "dedupe.window"  # a dedupe asks for the same call, the others for any
        wait_for(
            lambda: "result" in agent.call(again, {"n": next(number)} if fresh else others),
            what=f"{name} of {duration} to be over",
        )
        agent.finish()


@pytest.mark.contract("POL-003")
def test_a_duration_is_told_as_it_is_meant(decided: Decisions) -> None:
    """Of 90 minutes, not of 90 of anything else."""
    spec = rule("x", "budget", scope="machine", limit_calls=1, window="90m", on_exceed=R)
    found = decided((spec,), ("t", {"n": 1}), ("t", {"n": 2}))
    assert actions(found) == [A, R]
    assert "1 call in 90 min (on this machine) is used up; the next fits in 90 minutes" in found[1]["hint"]["hint_text"]


@pytest.mark.contract("POL-004")
@pytest.mark.parametrize(("written", "backoff_ms"), [("250ms", 250), ("2s", 2_000), ("3m", 180_000)])
def test_a_backoff_is_what_the_agent_is_asked_to_wait(decided: Decisions, written: str, backoff_ms: int) -> None:
    spec = rule(
        "x",
        "rate_limit",
        scope="run",
        capacity=1,
        refill_tokens=1,
        refill_period="1h",
        on_limit=T,
        backoff=written,
    )
    found = decided((spec,), ("t", {"n": 1}), ("t", {"n": 2}))
    assert [decision["action"] for decision in found] == [A, T]
    assert found[1]["backoff_ms"] == backoff_ms


@pytest.mark.contract("POL-005")
@pytest.mark.parametrize(("threshold", "second"), [("50ms", B), ("1h", A)])
def test_a_latency_threshold_says_what_is_slow(decided: Decisions, threshold: str, second: str) -> None:
    spec = rule("x", "breaker", scope="run", latency_threshold=threshold, window="1h", on_trip=B)
    assert actions(decided((spec,), ("slow", {}), ("t", {}))) == [A, second]


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("POL-002")
@pytest.mark.parametrize(("written", "size"), [("10KiB", 10_240), ("10KB", 10_000), ("700B", 700), (700, 700)])
def test_bytes_are_counted_to_the_byte(tmp_path: Path, written: Any, size: int) -> None:
    small = rule("small", "allow", {"args": {"bytes": {"max": written}}})
    setup = shim(tmp_path, small, rule("else", "deny"))
    with setup.start() as agent:
        agent.initialize()
        for number, length in enumerate((size, size + 1)):
            agent.send_raw(
                b'{"jsonrpc":"2.0","id":"%d","method":"tools/call","params":{"name":"t","arguments":{"a":"%s"}}}\n'
                % (number, b"x" * (length - len('{"a":""}')))
            )
            agent.reply(str(number))
        agent.finish()
    assert [decision["rule_id"] for decision in decisions(setup)] == ["small", "else"]


@pytest.mark.contract("POL-002")
def test_a_deny_from_a_size_on_takes_what_is_larger(decided: Decisions) -> None:
    spec = rule("large", "deny", {"args": {"bytes": {"min": "10KiB"}}})
    found = decided((spec,), ("t", {"a": "x" * 11_000}), ("t", {"a": "x" * 9_000}))
    assert actions(found) == [B, A]


@pytest.mark.contract("POL-002")
def test_a_range_may_be_of_sizes(decided: Decisions) -> None:
    spec = rule("x", "deny", {"args": {"numeric_range": {"length": {"min": "1KiB", "max": "1MB"}}}})
    lengths = (1_023, 1_024, 1_000_000, 1_000_001, "2048")
    found = decided((spec,), *[("t", {"length": length}) for length in lengths])
    assert actions(found) == [A, B, B, A, B]


@pytest.mark.contract("POL-003")
def test_a_price_may_be_for_a_size(decided: Decisions) -> None:
    """3 units of a KiB: 2,048 bytes cost 2, 1,025 would cost 2 more, 1,024 cost the last one."""
    spec = rule(
        "x",
        "budget",
        scope="run",
        limit_cost_units=3,
        cost_units_from={"arg": "length", "per": "1KiB"},
        on_exceed=B,
    )
    found = decided((spec,), *[("t", {"length": length}) for length in (2_048, 1_025, 1_024, 1)])
    assert actions(found) == [A, B, A, B]


# -- what need not be written -----------------------------------------------------------------------------------------


def bare(spec: dict[str, Any], *left_out: str) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in left_out}


@pytest.mark.contract("POL-002")
def test_a_rule_is_enabled_unless_it_says_otherwise(decided: Decisions) -> None:
    wanted = {"args": {"has_keys": ["a"]}}
    on = bare(rule("on", "deny", wanted), "enabled")
    off = {**rule("off", "deny", {"args": {"has_keys": ["b"]}}), "enabled": False}
    found = decided((on, off), ("t", {"a": 1}), ("t", {"b": 1}))
    assert [(decision["action"], decision["rule_id"]) for decision in found] == [(B, "on"), (A, None)]


@pytest.mark.contract("POL-002")
def test_a_rule_warns_unless_it_says_otherwise(decided: Decisions) -> None:
    plain = bare(rule("plain", "deny", {"args": {"has_keys": ["a"]}}), "severity", "enabled")
    grave = {**rule("grave", "deny", {"args": {"has_keys": ["b"]}}), "severity": "critical"}
    found = decided((plain, grave), ("t", {"a": 1}), ("t", {"b": 1}))
    assert [(decision["action"], decision["severity"]) for decision in found] == [(B, "warn"), (B, "critical")]


@pytest.mark.contract("POL-002")
def test_one_text_stands_for_a_list_of_it(decided: Decisions) -> None:
    one = rule("one", "deny", {"args": {"key_glob": {"path": "*.env"}}})
    found = decided((one,), ("t", {"path": "a.env"}), ("t", {"path": "*"}), ("t", {"path": "a.txt"}))
    assert actions(found) == [B, A, A]
