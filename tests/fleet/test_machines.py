"""Real shims, keepers and daemons on machines that have joined: what is published is obeyed, and a stop is a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.fleet import Fleet, bundle
from harness.shim import Shim, isolated_env
from harness.waiting import wait_for
from subluminal.contracts.errors import FleetError
from subluminal.fleet.machine.joining import leave, left_behind

FAST = {"refresh_ms": 200, "stop_poll_ms": 200}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        yield made


def shim(tmp_path: Path, **env: str) -> Shim:
    """On the machine whose home is `sub`."""
    return Shim(tmp_path, "store", fake_server(tools={"*": {}}), env=env)


@contextmanager
def keeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "subluminal", "fleet", "keep", "--quiet", "--until-eof"]
    process = subprocess.Popen(command, env=isolated_env(tmp_path), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def refusal(agent: Agent, tool: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = agent.call(tool).get("error")
    return found


def reason(agent: Agent, tool: str) -> str | None:
    found = refusal(agent, tool)
    return None if found is None else str(found["data"]["subluminal"]["reason_code"])


def wait_for_reason(agent: Agent, tool: str, expected: str | None) -> None:
    wait_for(lambda: reason(agent, tool) == expected, what=f"{tool} to be {expected}", meanwhile=agent.settle)


def last_decision(setup: Shim) -> dict[str, Any]:
    found: dict[str, Any] = setup.events.events_of("tool_call_decision")[-1]["decision"]
    return found


def test_a_running_shim_obeys_what_is_published_and_what_is_stopped(fleet: Fleet, tmp_path: Path) -> None:
    fleet.publish(bundle("base", deny="delete*"))
    fleet.join("sub", **FAST)
    setup = shim(tmp_path)
    with keeper(tmp_path), setup.start() as agent:
        agent.initialize()
        assert reason(agent, "delete_all") == "DENYLIST_MATCH"
        assert reason(agent, "write") is None
        fleet.publish(bundle("base", deny="write*", version="2"))
        wait_for_reason(agent, "write", "DENYLIST_MATCH")
        assert reason(agent, "delete_all") is None
        fleet.stop(reason="incident 4711", by="grace", tool="delete*")
        wait_for_reason(agent, "delete_all", "FLEET_STOP")
        told = refusal(agent, "delete_all")
        assert told is not None
        for word in ("grace", "delete*", "incident 4711"):
            assert word in told["message"]
        fleet.repository.resume([])
        wait_for_reason(agent, "delete_all", None)


def test_a_stop_forbids_in_observe_mode_and_over_the_users_own_policy(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub")
    allow = {"rule_id": "a", "kind": "allow", "match": {}, "effect": {"action": "ALLOW"}}
    own = {**bundle("own", mode="observe"), "rules": [allow]}
    (tmp_path / "sub" / "policy.yaml").write_text(json.dumps(own))
    machine = fleet_machine(fleet, tmp_path)
    fleet.stop(server="store")
    machine.look_for_stops()
    with shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "anything") == "FLEET_STOP"


def test_a_stop_of_an_agent_stops_that_agent_alone(fleet: Fleet, tmp_path: Path) -> None:
    machine = fleet.join("sub")
    fleet.stop(agent="nightly")
    machine.look_for_stops()
    with shim(tmp_path, SUB_AGENT_ID="nightly").start() as agent:
        agent.initialize()
        assert reason(agent, "read") == "FLEET_STOP"
    with shim(tmp_path, SUB_AGENT_ID="other").start() as agent:
        agent.initialize()
        assert reason(agent, "read") is None


def test_a_stop_survives_a_restart_of_everything_with_the_origin_unreachable(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub", **FAST)
    fleet.stop(reason="stolen keys")
    with keeper(tmp_path), shim(tmp_path).start() as agent:
        agent.initialize()
        wait_for_reason(agent, "read", "FLEET_STOP")
    fleet.origin.end()
    with keeper(tmp_path), shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "read") == "FLEET_STOP"
        wait_for(lambda: task_state(tmp_path, "stop").get("failures", 0) >= 2, what="failed looks for stops")
        assert reason(agent, "read") == "FLEET_STOP"


def test_a_broken_policy_of_a_repository_does_not_keep_a_stop_away(fleet: Fleet, tmp_path: Path) -> None:
    machine = fleet.join("sub")
    with shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "read") is None
        (tmp_path / ".subluminal").mkdir()
        (tmp_path / ".subluminal" / "policy.yaml").write_text("policy_id: [")
        fleet.stop(tool="read")
        machine.look_for_stops()
        wait_for_reason(agent, "read", "FLEET_STOP")


@pytest.mark.parametrize("harm", ["altered", "missing", "half", "no list", "no stops"])
def test_what_was_laid_and_is_not_whole_counts_as_an_invalid_policy(fleet: Fleet, tmp_path: Path, harm: str) -> None:
    fleet.publish(bundle("base", deny="delete*"))
    machine = fleet.join("sub")
    laid = tmp_path / "sub" / "fleet" / "policy"
    snapshot = next(laid.glob("*.json"))
    content = snapshot.read_bytes()
    if harm == "altered":
        snapshot.write_bytes(content.replace(b"delete", b"delude"))
    elif harm == "missing":
        snapshot.unlink()
    elif harm == "half":
        snapshot.write_bytes(content[: len(content) // 2])
    elif harm == "no list":
        (laid / "policies.laid").unlink()
    else:
        (laid / "stops.laid").write_bytes(b"")
    with shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "read") == "POLICY_INVALID"
    machine.refresh()
    machine.look_for_stops()
    with shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "read") is None and reason(agent, "delete_x") == "DENYLIST_MATCH"


def test_a_machine_that_was_offline_too_long_fails_by_class_and_every_decision_says_so(
    fleet: Fleet, tmp_path: Path
) -> None:
    open_for_reads = {"fail_open_classes": ["reads"]}
    fleet.publish(bundle("base", deny="read_secret", reads="read*", defaults=open_for_reads))
    fleet.join("sub", max_offline_ms=1500)
    setup = shim(tmp_path)
    with setup.start() as agent:
        agent.initialize()
        assert reason(agent, "write") is None, "not overdue yet"
        wait_for_reason(agent, "write", "POLICY_OVERDUE")
        told = refusal(agent, "write")
        assert told is not None and "has not confirmed its policy since" in told["message"]
        assert reason(agent, "read_file") is None, "reads fail open"
        explained = last_decision(setup)["explain"]
        assert explained["reason_code"] == "POLICY_OVERDUE"
        assert "has not confirmed its policy since" in explained["summary"]
        assert reason(agent, "read_secret") == "DENYLIST_MATCH", "a deny stands"
        assert "has not confirmed its policy since" in last_decision(setup)["explain"]["summary"]
        fleet_machine(fleet, tmp_path, max_offline_ms=1 << 40).refresh(int(time.time() * 1000))
        wait_for_reason(agent, "write", None)


def test_ledgerd_starts_the_keeper_again_when_it_dies_and_ends_it_with_itself(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub", **FAST)
    command = [sys.executable, "-m", "subluminal", "ledgerd", "--foreground", "--quiet"]
    daemon = subprocess.Popen(command, env=isolated_env(tmp_path, SUB_LEDGER_IDLE_S="0.2"))
    try:
        first = wait_for(lambda: keeper_pid(tmp_path), what="a keeper")
        os.kill(first, signal.SIGKILL)
        second = wait_for(lambda: keeper_pid(tmp_path), enough=lambda pid: pid not in (0, first), what="another keeper")
        fleet.stop(tool="x")
        wait_for(lambda: fleet_machine(fleet, tmp_path).stop_ids(), what="the stop to be laid")
        assert daemon.poll() is None, "a daemon with a keeper does not end because nobody calls"
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    wait_for(lambda: not is_alive(second), what="the keeper to end with its daemon")


def test_a_keeper_ends_when_its_machine_leaves(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub", **FAST)
    with keeper(tmp_path) as process:
        wait_for(lambda: keeper_pid(tmp_path), what="a keeper")
        assert leave(str(tmp_path / "sub"))
        wait_for(lambda: process.poll() is not None, what="the keeper to end")
    with shim(tmp_path).start() as agent:
        agent.initialize()
        assert reason(agent, "read") is None


def test_a_machine_that_left_in_the_middle_of_a_step_and_joined_another_fleet_obeys_that_one_alone(
    fleet: Fleet, tmp_path: Path
) -> None:
    home = str(tmp_path / "sub")
    fleet.publish(bundle("base", deny="write*"))
    old = fleet.join("sub")
    fleet.publish(bundle("base", deny="other*", version="2"))
    with Fleet(tmp_path / "second") as second:
        second.publish(bundle("theirs", deny="read*"))

        def leave_and_join() -> Iterator[bytes]:
            """What the old origin is asked for comes when the machine is another fleet's."""
            leave(home)
            assert left_behind(home) == []
            joined.append(second.join(home))
            yield (fleet.metadata / "timestamp.json").read_bytes()

        joined: list[Any] = []
        fleet.origin.answers["/metadata/timestamp.json"] = leave_and_join
        with pytest.raises(FleetError, match="has left"):
            old.refresh()
        assert [each.load()["policy_id"] for each in old.in_force()] == ["theirs"]
        second.publish(bundle("theirs-too", deny="read*"))
        assert joined[0].refresh()
        assert joined[0].policy_ids() == ["theirs-too"]


def test_a_keeper_ends_when_its_machine_has_joined_another_fleet(fleet: Fleet, tmp_path: Path) -> None:
    fleet.join("sub", **FAST)
    with keeper(tmp_path) as process, Fleet(tmp_path / "second") as second:
        wait_for(lambda: keeper_pid(tmp_path), what="a keeper")
        leave(str(tmp_path / "sub"))
        second.join(str(tmp_path / "sub"))
        wait_for(lambda: process.poll() is not None, what="the keeper to end")
        assert process.returncode == 0


def test_the_record_keeps_the_policy_and_the_stop_that_decided(fleet: Fleet, tmp_path: Path) -> None:
    from harness.command_line import run_sub
    from subluminal.ledger.store.policies import find_snapshot

    fleet.publish(bundle("base", deny="delete*"))
    machine = fleet.join("sub")
    fleet.stop(tool="write")
    machine.look_for_stops()
    for source in machine.in_force():
        loaded = source.load()
        found = find_snapshot(str(tmp_path / "sub" / "snapshots"), loaded["policy_hash"])
        assert found is not None and json.loads(found)["policy_id"] == loaded["policy_id"]
    assert find_snapshot(str(tmp_path / "sub" / "snapshots"), "../joined") is None
    told = run_sub(tmp_path / "sub", "policy", "explain", "--server", "s", "--tool", "write", "--json")
    assert json.loads(told.stdout)["decision"]["reason_code"] == "FLEET_STOP"
    assert run_sub(tmp_path / "sub", "policy", "lint").returncode == 0


def test_laying_policies_and_stops_at_once_loses_neither(fleet: Fleet, tmp_path: Path) -> None:
    from threading import Thread

    fleet.publish(bundle("base", deny="delete*"))
    machine = fleet.join("sub")
    for number in range(10):
        fleet.publish(bundle("base", deny=f"d{number}"))
        fleet.stop(tool=f"t{number}")
        threads = [Thread(target=machine.refresh), Thread(target=machine.look_for_stops)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.load()["policy_id"] for each in machine.in_force()] == ["base"] + ["fleet-stop"] * (number + 1)


def fleet_machine(fleet: Fleet, tmp_path: Path, **options: Any) -> Any:
    from harness.fleet import Machine
    from subluminal.fleet.joined import Joined

    return Machine(tmp_path / "sub", Joined(url=fleet.origin.url, **options))


def task_state(tmp_path: Path, task: str) -> dict[str, Any]:
    try:
        state = json.loads((tmp_path / "sub" / "fleet" / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    found: dict[str, Any] = state.get("tasks", {}).get(task, {})
    return found


def keeper_pid(tmp_path: Path) -> int:
    try:
        return int(json.loads((tmp_path / "sub" / "fleet" / "state.json").read_text()).get("pid", 0))
    except (OSError, ValueError):
        return 0


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
