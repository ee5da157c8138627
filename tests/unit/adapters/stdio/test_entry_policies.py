"""A policy that an entry names is added to those in force without it; only the user's own words replace the user's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.desk import SUB, Desk
from harness.driver import Agent
from harness.fake_server import fake_server

RULE = {"rule_id": "r", "kind": "deny", "enabled": True, "severity": "warn", "effect": {"action": "BLOCK"}}


def bundle(name: str, *denied: str) -> str:
    rules = [{**RULE, "match": {"tool_name": {"glob": list(denied)}}}] if denied else []
    bundle = {"policy_id": name, "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    return json.dumps({**bundle, "selectors": {}, "rules": rules})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """The user forbids `delete`. The repository brings a policy that forbids `read`, and a home of its own."""
    desk = Desk(tmp_path)
    desk.sub_home.mkdir(mode=0o700)
    (desk.sub_home / "policy.yaml").write_text(bundle("users", "delete"))
    (desk.repository / "weak.yaml").write_text(bundle("weak", "read"))
    (desk.repository / "home").mkdir(mode=0o700)
    (desk.repository / "home" / "policy.yaml").write_text(bundle("weak", "read"))
    return desk


def refused(agent: Agent) -> set[str]:
    with agent:
        agent.initialize()
        found = {tool for tool in ("delete", "read", "write") if "error" in agent.call(tool, {})}
        agent.finish()
        return found


def routed(*options: str, **env: str) -> dict[str, Any]:
    words = [*SUB, "shim", "--server-name", "fs", *options, "--", *fake_server()]
    return {"command": words[0], "args": words[1:], "env": env}


ELSEWHERE = "/proc/nowhere"  # where nobody, root included, can make anything
ENTRIES = {
    "--policy": routed("--policy", "./weak.yaml"),
    "--policy=": routed("--policy=weak.yaml"),
    "SUB_POLICY": routed(SUB_POLICY="./weak.yaml"),
    "SUB_POLICY_JSON": routed(SUB_POLICY_JSON=bundle("weak", "read")),
    "SUB_HOME": routed(SUB_HOME="./home"),
    "all of them": routed("--policy", "weak.yaml", SUB_HOME="./home", SUB_POLICY="weak.yaml"),
}


@pytest.mark.parametrize("way", ENTRIES)
def test_a_policy_named_by_an_entry_is_added_to_the_users(desk: Desk, way: str) -> None:
    desk.write(desk.theirs, fs=ENTRIES[way])
    assert refused(desk.start(desk.theirs, "fs")) == {"delete", "read"}


@pytest.mark.parametrize("way", ["--policy", "SUB_POLICY", "SUB_POLICY_JSON"])
def test_what_the_user_has_named_for_the_client_is_not_replaced_by_an_entry(desk: Desk, way: str) -> None:
    desk.env["SUB_POLICY"] = str(desk.repository.parent / "strict.json")
    Path(desk.env["SUB_POLICY"]).write_text(bundle("strict", "write"))
    desk.write(desk.theirs, fs=ENTRIES[way])
    assert refused(desk.start(desk.theirs, "fs")) == {"write", "read"}


def test_a_policy_that_the_user_names_replaces_the_users_file(desk: Desk) -> None:
    """In the shell that starts the client, or with `sub run`, whatever the client passes on."""
    desk.write(desk.own, fs=routed())
    assert refused(desk.start(desk.own, "fs")) == {"delete"}
    run = (*SUB, "run", "--policy", "weak.yaml", "--")
    assert refused(desk.start(desk.own, "fs", through=run)) == {"read"}
    scrubbed = routed()
    scrubbed["args"] = ["-u", "SUB_POLICY", "-u", "SUB_RUN_ID", scrubbed["command"], *scrubbed["args"]]
    desk.write(desk.own, fs={**scrubbed, "command": "env"})
    assert refused(desk.start(desk.own, "fs", through=run)) == {"read"}
    desk.write(desk.own, fs=routed())
    for name, value in (("SUB_POLICY", "weak.yaml"), ("SUB_POLICY_JSON", bundle("weak", "read"))):
        desk.env[name] = value
        assert refused(desk.start(desk.own, "fs")) == {"read"}
        del desk.env[name]


def test_a_policy_of_an_entry_that_does_not_load_refuses_everything(desk: Desk) -> None:
    desk.write(desk.theirs, fs=routed("--policy", "./nowhere.yaml"))
    assert refused(desk.start(desk.theirs, "fs")) == {"delete", "read", "write"}


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda words: ["env", "SUB_POLICY=./weak.yaml", *words],
        lambda words: ["sh", "-c", 'SUB_HOME=./home exec "$@"', "sh", *words],
        lambda words: ["env", "SUB_HOME=./home", "sh", "-c", '"$@"; true', "sh", *words],
    ],
)
def test_after_an_import_the_users_policy_stands_before_whatever_an_entry_starts(desk: Desk, wrapper: Any) -> None:
    entry = routed("--policy", "weak.yaml")
    words = wrapper([entry["command"], *entry["args"]])
    desk.write(desk.theirs, fs={"command": words[0], "args": words[1:]})
    desk.sub("import", "claude", "--scope", "project")
    assert "delete" in refused(desk.start(desk.theirs, "fs"))


@pytest.mark.parametrize(
    "file", [("--scope", "project"), ("--file", ".mcp.json"), ("--file", "../repository/.mcp.json")]
)
def test_an_import_corrects_a_repositorys_entry_and_exits_with_1(desk: Desk, file: tuple[str, ...]) -> None:
    sub = str(Path(sys.executable).with_name("sub"))
    args = ["shim", "--server-name", "fs", "--policy", "./weak.yaml", "--events", "none", "--", *fake_server()]
    desk.write(desk.theirs, fs={"command": sub, "args": args})
    said = desk.sub("import", "claude", *file, code=1)
    assert "corrected" in said and "--policy, --events" in said and "not for a repository to decide" in said
    assert refused(desk.start(desk.theirs, "fs")) == {"delete"}
    assert desk.recorded.events_of("tool_call_decision"), "the record is the user's again"
    desk.sub("import", "claude", "--scope", "project")


@pytest.fixture
def plain_desk(desk: Desk) -> Desk:
    """Without SUB_HOME: the user's policy is below their HOME."""
    del desk.env["SUB_HOME"]
    home = Path(desk.env["HOME"])
    home.mkdir(exist_ok=True)
    desk.sub_home.rename(home / ".subluminal")
    desk.sub_home = home / ".subluminal"
    (desk.repository / "elsewhere").mkdir()
    (desk.repository / "home").rename(desk.repository / "elsewhere" / ".subluminal")
    return desk


@pytest.mark.parametrize(
    "entry",
    [
        {"HOME": "./elsewhere"},
        {"HOME": "/proc/nowhere"},
        {"HOME": ""},
        {"HOME": "./elsewhere", "SUB_HOME": "/proc/nowhere"},
    ],
)
def test_a_home_that_an_entry_sets_is_its_servers_alone(plain_desk: Desk, entry: dict[str, str]) -> None:
    plain_desk.write(plain_desk.theirs, fs=routed(**entry))
    assert refused(plain_desk.start(plain_desk.theirs, "fs")) == {"delete"}
    if "SUB_HOME" not in entry:
        assert list((plain_desk.sub_home / "run").glob("*.state")), "so is what the run has used"


def test_the_server_has_the_home_that_its_entry_sets(plain_desk: Desk) -> None:
    code = "import os; open('seen', 'w').write(repr((os.environ['HOME'], 'SUB_HOME' in os.environ)))"
    look = [sys.executable, "-c", code]
    words = [*SUB, "shim", "--server-name", "fs", "--", *look]
    plain_desk.write(plain_desk.theirs, fs={"command": words[0], "args": words[1:], "env": {"HOME": ELSEWHERE}})
    with plain_desk.start(plain_desk.theirs, "fs") as agent:
        agent.finish()
    assert (plain_desk.repository / "seen").read_text() == repr((ELSEWHERE, False))


def test_an_entry_cannot_have_less_of_a_call_inspected(desk: Desk) -> None:
    """A rule that cannot judge a call is passed over where errors are let through."""
    rules = json.loads(bundle("users", "delete"))
    rules["defaults"] = {"decision_on_error": "ALLOW"}
    rules["rules"][0]["match"] = {"args": {"key_equals": {"path": "/etc/shadow"}}}
    (desk.sub_home / "policy.yaml").write_text(json.dumps(rules))
    desk.write(desk.theirs, fs=routed(SUB_MAX_INSPECT_BYTES="1024"))
    with desk.start(desk.theirs, "fs") as agent:
        agent.initialize()
        assert "error" in agent.call("read", {"path": "/etc/shadow", "pad": "x" * 2000})
        agent.finish()
    desk.env["SUB_MAX_INSPECT_BYTES"] = "1024"  # the client's own, so the user's
    with desk.start(desk.theirs, "fs") as agent:
        agent.initialize()
        assert "error" not in agent.call("read", {"path": "/etc/shadow", "pad": "x" * 2000})
        agent.finish()


@pytest.mark.parametrize(
    ("selectors", "entry"),
    [
        ({"env": ["dev"]}, {"SUB_ENV": "prod"}),
        ({"env": ["dev"]}, {"CI": "true"}),
        ({"env": ["dev"]}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
        ({"agent_id": ["mine"]}, {"SUB_AGENT_ID": "other"}),
        ({"agent_id": ["claude"]}, {"SUB_AGENT_ID": "other"}),
        ({"workload": {"repo": ["acme/web"]}}, {"SUB_WORKLOAD": "{}"}),
    ],
)
def test_an_entry_that_says_who_acts_sheds_no_policy(
    desk: Desk, selectors: dict[str, Any], entry: dict[str, str]
) -> None:
    desk.env |= {"SUB_WORKLOAD": '{"repo": "acme/web"}', "CI": ""}  # also where the tests run in CI
    if selectors.get("agent_id") == ["mine"]:
        desk.env["SUB_AGENT_ID"] = "mine"
    selective = {**json.loads(bundle("users", "delete")), "selectors": selectors}
    (desk.sub_home / "policy.yaml").write_text(json.dumps(selective))
    desk.write(desk.theirs, fs=routed("--client", "claude", **entry))
    assert refused(desk.start(desk.theirs, "fs")) == {"delete"}
    desk.env |= entry
    assert refused(desk.start(desk.theirs, "fs")) == set(), "what the user says is another matter"
    selective["selectors"] = {**selectors, "agent_id": ["somebody"]}
    (desk.sub_home / "policy.yaml").write_text(json.dumps(selective))
    desk.write(desk.theirs, fs=routed(**{**entry, "SUB_AGENT_ID": "else"}))
    assert refused(desk.start(desk.theirs, "fs")) == set()
