"""The end of a call waits a moment for the next write: never longer, and a decision that was answered never waits."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.shim import Shim

KILLS = 8


def test_an_end_is_written_while_nothing_else_happens(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"get": {}}))
    with setup.start() as agent:
        agent.initialize()
        agent.call("get", {})
        assert setup.events.wait_type("tool_call_end")["status"] == "OK"
        agent.finish()


def test_calls_one_after_another_all_have_their_end_in_order(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"get": {}}))
    setup.run(*[("get", {"n": n}) for n in range(50)])
    types = [kind for kind in setup.events.types() if kind.startswith("tool_call_")]
    assert types == ["tool_call_start", "tool_call_decision", "tool_call_end"] * 50


def test_a_decision_whose_answer_was_seen_survives_a_kill_in_that_moment(tmp_path: Path) -> None:
    for number in range(KILLS):
        home = tmp_path / str(number)
        home.mkdir()
        setup = Shim(home, "store", fake_server(tools={"get": {}}))
        with setup.start() as agent:
            agent.initialize()
            agent.call("get", {})
            agent.signal(signal.SIGKILL)
            agent.wait_exit()
        assert [event["decision"]["action"] for event in setup.events.events_of("tool_call_decision")] == ["ALLOW"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_writes_the_ends_that_waited(tmp_path: Path, number: int) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"get": {}}))
    with setup.start() as agent:
        agent.initialize()
        agent.call("get", {})
        agent.signal(number)
        agent.wait_exit()
    assert [event["status"] for event in setup.events.events_of("tool_call_end")] == ["OK"]
    assert setup.events.types()[-1] == "run_end"
