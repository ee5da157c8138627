"""ID: who acted, as given by the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.shim import Shim

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
