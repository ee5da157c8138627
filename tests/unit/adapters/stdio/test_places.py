"""Where paths lead and URLs go, through a real shim: where the run began, the server's directories, changing links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Agent
from harness.engine import rule, tools
from harness.fake_server import fake_server
from harness.shim import Shim
from subluminal.contracts.vocabulary import UNJUDGED_ARGS

OUTSIDE = {
    **rule("stay-inside", "deny", tools("write_*")),
    "unless": {"args": {"path_within": {"path": [".", "~/work"]}}},
}
SECRETS = rule("no-secrets", "deny", {"args": {"path_within": {"path": ["secrets"]}}})
HOSTS = rule("no-private", "deny", {"args": {"host_in": {"url": ["private", "loopback"]}}})


def bundle(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy_id": "p",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": list(rules),
    }


class Workplace:
    """A repository below `base`, and shims that are started in one of its directories."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.repo = base / "repo"
        (self.repo / ".git").mkdir(parents=True)
        (self.repo / "sub").mkdir()
        (base / "outside").mkdir()

    def start(self, cwd: Path, *rules: dict[str, Any], command: tuple[str, ...] = (), run_id: str = "r") -> Agent:
        served = [*command, *fake_server(tools={"write_file": {}, "fetch": {}})]
        shim = Shim(self.base, "fs", served, policy=bundle(*rules), env={"SUB_RUN_ID": run_id})
        return Agent(shim.command, env=shim.env, cwd=cwd, timeout=60)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def refused(agent: Agent, tool: str = "write_file", **args: Any) -> str | None:
    reply = agent.call(tool, args)
    return reply["error"]["data"]["subluminal"]["rule_id"] if "error" in reply else None


def test_nothing_is_written_outside_the_repository(place: Workplace) -> None:
    (place.repo / "out").symlink_to(place.base / "outside")
    with place.start(place.repo / "sub", OUTSIDE) as agent:
        agent.initialize()
        for path in ("x", "../x", str(place.repo / "new" / "x"), f"file://{place.repo}/x", "../sub/./x"):
            assert refused(agent, path=path) is None, path
        for path in ("../../x", "/etc/x", "../out/x", "../out/../x", "~/x", "%2e%2e/../x", f"file://{place.base}/x", 5):
            assert refused(agent, path=path) == "stay-inside", path
        assert refused(agent, paths=["x"]) == "stay-inside", "no path, no exception"


def test_a_link_that_changes_between_two_calls_is_seen(place: Workplace) -> None:
    with place.start(place.repo, OUTSIDE) as agent:
        agent.initialize()
        assert refused(agent, path="sub/x") is None
        (place.repo / "sub").rename(place.repo / "moved")
        (place.repo / "sub").symlink_to(place.base / "outside")
        assert refused(agent, path="sub/x") == "stay-inside"


def test_the_first_server_of_a_run_says_where_it_began(place: Workplace) -> None:
    elsewhere = place.base / "elsewhere"
    elsewhere.mkdir()
    with place.start(place.repo / "sub", OUTSIDE) as agent:
        agent.initialize()
        assert refused(agent, path="x") is None
    with place.start(elsewhere, OUTSIDE) as agent:
        agent.initialize()
        assert refused(agent, path="x") == "stay-inside"
        assert refused(agent, path=str(place.repo / "x")) is None
    with place.start(elsewhere, OUTSIDE, run_id="another") as agent:
        agent.initialize()
        assert refused(agent, path="x") is None


def test_a_directory_in_the_servers_command_is_where_its_paths_may_start(place: Workplace) -> None:
    with place.start(place.repo, OUTSIDE, command=("env", f"DATA={place.base}/outside")) as agent:
        agent.initialize()
        assert refused(agent, path="x") == "stay-inside"
        assert refused(agent, path=str(place.repo / "x")) is None


def test_what_cannot_be_followed_is_told_to_the_agent(place: Workplace) -> None:
    (place.repo / "loop").symlink_to("loop")
    with place.start(place.repo, SECRETS) as agent:
        agent.initialize()
        told = agent.call("write_file", {"path": "loop/x"})["error"]["data"]["subluminal"]
        assert told["rule_id"] == "no-secrets" and told["reason_code"] == UNJUDGED_ARGS
        assert refused(agent, path="secrets/x") == "no-secrets" and refused(agent, path="x") is None


def test_no_private_address_is_asked(place: Workplace) -> None:
    with place.start(place.repo, HOSTS) as agent:
        agent.initialize()
        for url in ("http://127.0.0.1", "http://0x7f.1/", "http://169.254.169.254/x", "http://good.com\\@10.0.0.1/"):
            assert refused(agent, "fetch", url=url) == "no-private", url
        assert refused(agent, "fetch", url="https://example.com/") is None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the environment of other processes is not shown here")
def test_the_home_of_the_policy_is_not_the_one_that_an_entry_sets(place: Workplace) -> None:
    """The harness sets HOME as an entry of a configuration would; the client's own is another."""
    with place.start(place.repo, OUTSIDE) as agent:
        agent.initialize()
        assert refused(agent, path=str(place.base / "home" / "work" / "x")) == "stay-inside"
        assert refused(agent, path=os.path.join(os.environ["HOME"], "work", "x")) is None
