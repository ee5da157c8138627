"""Policy while the shim runs: a change is in force within a second, and what does not load never means no policy."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Agent
from harness.engine import rule, tools
from harness.fake_server import fake_server
from harness.shim import Shim, isolated_env
from harness.waiting import GENEROUS_S, wait_for

IN_FORCE_S = 1.0
# How many calls' time the machine may add: the shim looks between two of them, and so do we.
CALLS_OF_SLACK = 10


def bundle(*denied: str, mode: str = "guardrails", version: str = "1") -> str:
    rules = [rule(f"no-{name}", "deny", tools(name)) for name in denied]
    head = {"policy_id": "p", "version": version, "mode": mode, "defaults": {"decision_on_error": "BLOCK"}}
    return json.dumps({**head, "selectors": {}, "rules": rules})


def shim(tmp_path: Path, **env: str) -> Shim:
    return Shim(tmp_path, "store", fake_server(tools={"*": {}}), env=env)


def user_policy(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir(exist_ok=True)
    return tmp_path / "sub" / "policy.yaml"


def refused(agent: Agent, tool: str) -> bool:
    return "error" in agent.call(tool)


def wait_until_refused(agent: Agent, tool: str, expected: bool = True) -> None:
    wait_for(lambda: refused(agent, tool) is expected, what="the change in force", meanwhile=agent.settle)


def seconds_until_refused(agent: Agent, tool: str) -> tuple[float, float]:
    """How long it took, and the longest that one of the calls on the way took."""
    began, longest = time.monotonic(), 0.0
    while True:
        asked = time.monotonic()
        found = refused(agent, tool)
        now = time.monotonic()
        longest = max(longest, now - asked)
        if found or now - began > GENEROUS_S:
            return now - began, longest
        agent.settle(0.02)


def loads(setup: Shim) -> list[tuple[bool, str]]:
    return [(e["load"]["ok"], e["policy"]["policy_version"]) for e in setup.events.events_of("policy_loaded")]


def test_a_changed_file_is_in_force_within_a_second(tmp_path: Path) -> None:
    policy = user_policy(tmp_path)
    policy.write_text(bundle("a"))
    setup = shim(tmp_path)
    with setup.start() as agent:
        agent.initialize()
        assert refused(agent, "a") and not refused(agent, "b")
        policy.write_text(bundle("b", version="2"))
        took, longest = seconds_until_refused(agent, "b")
        assert not refused(agent, "a")
        agent.finish()
    assert took < IN_FORCE_S + CALLS_OF_SLACK * longest
    assert loads(setup) == [(True, "1"), (True, "2")]


def test_an_invalid_file_keeps_the_last_good_one_and_says_so(tmp_path: Path) -> None:
    policy = user_policy(tmp_path)
    policy.write_text(bundle("a"))
    setup = shim(tmp_path)
    with setup.start() as agent:
        agent.initialize()
        policy.write_text('{"policy_id": "p", "rules": [')
        failed = setup.events.wait_for(lambda e: e["type"] == "policy_loaded" and not e["load"]["ok"])
        assert refused(agent, "a") and not refused(agent, "b")
        assert failed["load"]["error"]
        policy.write_text(bundle("b", version="3"))
        wait_until_refused(agent, "b")
        agent.finish()
    assert [ok for ok, _ in loads(setup)] == [True, False, True]


def test_a_file_that_is_created_comes_into_force(tmp_path: Path) -> None:
    setup = shim(tmp_path)
    with setup.start() as agent:
        agent.initialize()
        assert not refused(agent, "a")
        user_policy(tmp_path).write_text(bundle("a"))
        wait_until_refused(agent, "a")
        agent.finish()


def test_a_named_file_that_is_deleted_keeps_the_last_good_one(tmp_path: Path) -> None:
    policy = tmp_path / "named.json"
    policy.write_text(bundle("a"))
    setup = shim(tmp_path, SUB_POLICY=str(policy))
    with setup.start() as agent:
        agent.initialize()
        assert refused(agent, "a")
        policy.unlink()
        setup.events.wait_for(lambda e: e["type"] == "policy_loaded" and not e["load"]["ok"])
        assert refused(agent, "a") and not refused(agent, "b")
        agent.finish()


@pytest.mark.parametrize("content", ["{", "rules: 17", None], ids=["cut off", "wrong", "missing"])
def test_a_policy_that_never_loaded_refuses_everything(tmp_path: Path, content: str | None) -> None:
    policy = tmp_path / "named.yaml"
    if content is not None:
        policy.write_text(content)
    setup = shim(tmp_path, SUB_POLICY=str(policy))
    with setup.start() as agent:
        assert agent.initialize()
        error = agent.call("anything")["error"]
        assert (error["code"], error["data"]["subluminal"]["reason_code"]) == (-32081, "POLICY_INVALID")
        policy.write_text(bundle("a"))
        wait_until_refused(agent, "b", expected=False)
        assert refused(agent, "a")
        agent.finish()


@pytest.mark.parametrize(("mode", "passes"), [("observe", True), ("guardrails", False), ("control", False)])
def test_an_ambiguous_message_is_treated_as_the_mode_says_and_a_reload_changes_it(
    tmp_path: Path, mode: str, passes: bool
) -> None:
    policy = user_policy(tmp_path)
    policy.write_text(bundle(mode=mode))
    with shim(tmp_path).start() as agent:
        agent.initialize()

        def ambiguous(number: int) -> bool:
            line = '{"jsonrpc":"2.0","id":"%d","method":"tools/call","params":{"name":"a","name":"b","arguments":{}}}\n'
            agent.send_raw((line % number).encode())
            return "result" in agent.reply(str(number))

        assert ambiguous(1) is passes
        policy.write_text(bundle(mode="guardrails" if passes else "observe", version="2"))
        numbers = itertools.count(2)
        wait_for(lambda: ambiguous(next(numbers)) is not passes, what="the change in force", meanwhile=agent.settle)


def terminating() -> dict[str, Any]:
    """The first call to `stop` exceeds its budget, and that ends the run."""
    once = rule("stop", "budget", tools("stop"), scope="run", limit_calls=0, on_exceed="TERMINATE_RUN")
    head = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    return {**head, "selectors": {}, "rules": [once]}


def test_a_run_terminated_by_one_shim_is_over_for_all_of_them(tmp_path: Path) -> None:
    policy = tmp_path / "stop.json"
    policy.write_text(json.dumps(terminating()))
    both = [
        Shim(tmp_path, name, fake_server(tools={"*": {}}), policy=policy, env={"SUB_RUN_ID": "shared"})
        for name in ("a", "b")
    ]
    other = Shim(tmp_path, "c", fake_server(tools={"*": {}}), policy=policy, env={"SUB_RUN_ID": "another"})
    with both[0].start() as one, both[1].start() as two, other.start() as third:
        for agent in (one, two, third):
            agent.initialize()
            assert "result" in agent.call("fine")
        assert one.call("stop")["error"]["code"] == -32084
        assert two.call("fine")["error"]["code"] == -32084
        assert one.call("fine")["error"]["code"] == -32084
        assert "result" in third.call("fine")
        for agent in (one, two, third):
            agent.finish()
    assert [setup.events.wait_type("run_end")["run"]["status"] for setup in (*both, other)] == [
        "TERMINATED",
        "TERMINATED",
        "SUCCEEDED",
    ]


def test_sub_kill_ends_a_run_from_outside(tmp_path: Path) -> None:
    setup = shim(tmp_path, SUB_RUN_ID="doomed")
    with setup.start() as agent:
        agent.initialize()
        assert "result" in agent.call("fine")
        command = [sys.executable, "-m", "subluminal", "kill", "doomed"]
        done = subprocess.run(command, env=isolated_env(tmp_path), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert agent.call("fine")["error"]["code"] == -32084
        agent.finish()
    assert setup.events.wait_type("run_end")["run"]["status"] == "TERMINATED"


def test_a_large_message_that_began_before_the_kill_is_not_completed_after_it(tmp_path: Path) -> None:
    """In observe mode it streams on at once; its end must not reach the server once the run is over."""
    executed = tmp_path / "executed"
    setup = Shim(tmp_path, "store", fake_server(tools={"*": {}}, executed=str(executed)), env={"SUB_RUN_ID": "doomed"})
    with setup.start() as agent:
        agent.initialize()
        bulk = "x" * 2_000_000
        params = {"name": "t", "arguments": {"a": bulk}}
        line = json.dumps({"jsonrpc": "2.0", "id": "big", "method": "tools/call", "params": params}) + "\n"
        agent.send_raw(line[:1_500_000].encode())
        command = [sys.executable, "-m", "subluminal", "kill", "doomed"]
        subprocess.run(command, env=isolated_env(tmp_path), capture_output=True, timeout=30, check=True)
        agent.send_raw(line[1_500_000:].encode())
        assert agent.reply("big")["error"]["code"] == -32084
        agent.wait_exit()
    assert not executed.exists() or executed.read_bytes() == b""
    decision = setup.events.wait_type("tool_call_decision")["decision"]
    assert decision["action"] == "TERMINATE_RUN"
