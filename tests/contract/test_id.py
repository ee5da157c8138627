"""ID: who acted, as given by the environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.shim import Shim, load_policy

GIVEN = {
    "SUB_RUN_ID": "01JABCDEF",
    "SUB_AGENT_ID": "release-bot",
    "SUB_ENV": "ci",
    "SUB_CLIENT": "headless",
    "SUB_PRINCIPAL": "svc:deploy",
    "SUB_WORKLOAD": json.dumps({"repo": "org/app", "branch": "main", "labels": {"team": "core"}}),
}


@pytest.mark.contract("ID-001")
def test_identity_given_in_the_environment_is_on_every_event(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), env=GIVEN)
    setup.run(("echo", {}))
    events = setup.events.events()
    assert len(events) >= 5
    for event in events:
        assert event["run_id"] == "01JABCDEF"
        assert event["agent_id"] == "release-bot"
        assert event["env"] == "ci"
        assert event["client"] == "headless"
        assert event["principal"] == "svc:deploy"
        assert event["workload"] == json.loads(GIVEN["SUB_WORKLOAD"])


@pytest.mark.contract("ID-001")
def test_without_any_identity_the_shims_of_one_agent_share_a_run(tmp_path: Path) -> None:
    first, second = Shim(tmp_path, "one", fake_server()), Shim(tmp_path, "two", fake_server())
    first.run(("echo", {}))
    second.run(("echo", {}))
    runs = {event["run_id"] for setup in (first, second) for event in setup.events.events()}
    assert len(runs) == 1
    assert all(runs)


POD = {
    "SUB_RUN_ID": "run-pod",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "POD_NAMESPACE": "payments",
    "POD_NAME": "agent-7c9f",
    "SERVICE_ACCOUNT": "refunds",
}


def in_pod(tmp_path: Path) -> dict[str, str]:
    labels = tmp_path / "labels"
    labels.write_text('app="agent"\ntier="gold"\n')
    return {**POD, "SUB_POD_LABELS_FILE": str(labels)}


@pytest.mark.contract("ID-001")
def test_the_downward_api_of_a_pod_is_on_every_event_and_the_pod_is_prod(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), env=in_pod(tmp_path))
    setup.run(("echo", {}))
    for event in setup.events.events():
        assert event["env"] == "prod"
        assert event["workload"] == {
            "namespace": "payments",
            "service_account": "refunds",
            "pod": "agent-7c9f",
            "labels": {"app": "agent", "tier": "gold"},
        }
        assert event["principal"], "the uid's name: a container sets no USER"


@pytest.mark.contract("ID-001")
@pytest.mark.parametrize(
    ("selectors", "applies"),
    [
        ({"workload": {"namespace": ["payments", "other"]}}, True),
        ({"workload": {"namespace": ["shop"]}}, False),
        ({"workload": {"service_account": ["refunds"]}}, True),
        ({"workload": {"service_account": ["default"]}}, False),
        ({"workload": {"labels": {"tier": "gold"}}}, True),
        ({"workload": {"labels": {"tier": "gold", "app": "agent"}}}, True),
        ({"workload": {"labels": {"tier": "silver"}}}, False),
        ({"workload": {"labels": {"team": "core"}}}, False),
        ({"env": ["prod"]}, True),
        ({"env": ["dev", "ci"]}, False),
    ],
)
def test_a_policy_selects_pods_by_what_the_downward_api_says(
    tmp_path: Path, selectors: dict[str, object], applies: bool
) -> None:
    policy = {**load_policy("deny_above_allow.yaml"), "selectors": selectors}
    env = {**in_pod(tmp_path), "CI": ""}  # also where the tests run in CI
    setup = Shim(tmp_path, "linear", fake_server(tools={"delete_all": {}}), policy=policy, env=env)
    # As a child of a client that has this environment: what only an entry says sheds no policy.
    client = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    setup.command = [sys.executable, "-c", client, *setup.command]
    (reply,) = setup.run(("delete_all", {}))
    assert ("error" in reply) is applies


@pytest.mark.contract("ID-001")
@pytest.mark.parametrize("kind", ["fifo", "huge", "bytes"])
def test_a_hostile_labels_file_does_not_break_the_tool(tmp_path: Path, kind: str) -> None:
    env = in_pod(tmp_path)
    path = tmp_path / "labels"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b'k="v"\n' * 1_000_000 if kind == "huge" else os.urandom(4096))
    setup = Shim(tmp_path, "linear", fake_server(), env=env)
    (reply,) = setup.run(("echo", {}))
    assert "result" in reply
    assert all("labels" not in event["workload"] for event in setup.events.events())


@pytest.mark.contract("ID-001")
@pytest.mark.parametrize(("value", "env"), [("true", "ci"), ("1", "ci"), ("false", "dev"), ("0", "dev"), ("", "dev")])
def test_ci_is_what_its_variable_says(tmp_path: Path, value: str, env: str) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), env={"CI": value})
    setup.run(("echo", {}))
    assert {event["env"] for event in setup.events.events()} == {env}


@pytest.mark.contract("ID-001")
def test_what_was_said_of_the_run_stands_in_run_start_with_its_secrets_masked(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    meta = {"issue_id": "ISS-7", "note": f"use {token}", "more": [token], token: "as a key"}
    setup = Shim(tmp_path, "linear", fake_server(), env={"SUB_RUN_META": json.dumps(meta)})
    setup.run(("echo", {}))
    (start,) = setup.events.events_of("run_start")
    told = start["run"]["meta"]
    assert (told["issue_id"], told["server_name"]) == ("ISS-7", "linear")
    assert told["note"].startswith("use ") and len(told) == 5
    assert token.encode() not in setup.events.raw()


@pytest.mark.contract("ID-001")
@pytest.mark.parametrize("text", ["nonsense", "{", "[" * 2000, '{"a":' * 500, "k=" + "v" * 100_000, "server_name=x"])
def test_a_run_meta_that_makes_no_sense_does_not_break_the_tool(tmp_path: Path, text: str) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), env={"SUB_RUN_META": text})
    with setup.start() as agent:
        agent.initialize()
        assert "result" in agent.call("echo")
        agent.finish()
        said = agent.stderr
    assert "SUB_RUN_META is ignored" in said and "Traceback" not in said
    setup.events.wait_type("run_end")
    (start,) = setup.events.events_of("run_start")
    assert start["run"]["meta"] == {"server_name": "linear"}


@pytest.mark.contract("ID-001")
@pytest.mark.parametrize(
    "broken",
    [{"SUB_ENV": "moon"}, {"SUB_CLIENT": "telnet"}, {"SUB_WORKLOAD": "{not json"}, {"SUB_WORKLOAD": "[1]"}],
    ids=["env", "client", "workload text", "workload type"],
)
def test_identity_that_makes_no_sense_does_not_break_the_tool(tmp_path: Path, broken: dict[str, str]) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), env={"SUB_RUN_ID": "run-odd", **broken})
    (reply,) = setup.run(("echo", {}))
    assert "result" in reply
    assert {event["run_id"] for event in setup.events.events()} == {"run-odd"}


@pytest.mark.contract("ID-001")
def test_the_client_may_be_named_on_the_command_line(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "linear", fake_server(), client="codex")
    setup.run(("echo", {}))
    assert {event["client"] for event in setup.events.events()} == {"codex"}
