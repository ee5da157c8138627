"""Policies and tools as the page is told of them, and what may be done there, by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.known_tools import know
from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of
from harness.listing_server import ListingServer, tool
from harness.page import Answer, PageServer
from harness.processes import command_line, descendants
from harness.shim import Shim
from harness.waiting import wait_for
from subluminal.contracts.canonical import args_hash
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

TEXT = """# Who may push: see the handbook.
policy_id: team
version: {version}
mode: guardrails
defaults: {{decision_on_error: ALLOW}}
selectors: {{}}
rules:
  # Others pull from us.
  # Ask before you change it.
  - rule_id: no-push
    kind: deny
    match: {{tool_name: {{glob: [git_push]}}}}
    effect: {{action: BLOCK, message: Not here.}}  # never
  - rule_id: unused
    kind: deny
    match: {{tool_name: {{glob: [{second}]}}}}
    effect: {{action: BLOCK, message: Nor this.}}
"""
VERSIONS = [TEXT.format(version="1.0.0", second="rm_*"), TEXT.format(version="1.1.0", second="rm_all")]


class Desk:
    def __init__(self, home: Path, directory: Path) -> None:
        self.home, self.directory = home, directory
        (directory / ".subluminal").mkdir(parents=True)
        (directory / ".subluminal" / "policy.yaml").write_text(VERSIONS[1])
        self.hashes = [self.learn(text.encode()) for text in VERSIONS]
        self.server = PageServer(home, directory=str(directory))
        self.cookie = (
            self.server.send(
                str(self.server.control({"directory": str(directory)})["ui"]["link"]).removeprefix(self.server.origin)
            )
            .headers["set-cookie"]
            .split(";")[0]
        )

    def tell(self, messages: list[Any]) -> None:
        with connect_ledgerd(self.home) as connection, connection.makefile("rwb") as stream:
            for message in messages:
                stream.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
            stream.flush()
            for _ in messages:
                assert b"error" not in stream.readline()

    def learn(self, source: bytes) -> str:
        """The ledger hears of a version by a run that obeyed it, and is given its text."""
        snapshot = compile_bundle(source, "policy.yaml")
        name = str(snapshot["policy_hash"])
        policy = {"policy_id": "team", "policy_version": snapshot["version"], "policy_hash": name}
        maker = EventMaker(f"run-{snapshot['version']}", f"shim-{snapshot['version']}")
        refused = [
            maker.start("git_push", args_hash=args_hash(b'{"path":"."}')),
            maker.decision("BLOCK", rule_id="no-push", policy=policy),
            maker.end("ERROR"),
        ]
        self.tell([maker.run_start(policy=policy), *refused, maker.run_end()])
        self.tell([{"control": "policy", "policy_hash": name, "snapshot": snapshot_bytes(snapshot).decode()}])
        return name

    def get(self, path: str) -> Answer:
        return self.server.send(path, Cookie=self.cookie)

    def post(self, path: str, body: Any, **headers: str | None) -> Answer:
        csrf = self.get("/v1/session").json["csrf"]
        sent = {"Cookie": self.cookie, "Origin": self.server.origin, "Content_Type": "application/json"}
        return self.server.send(
            path, "POST", json.dumps(body).encode(), **{**sent, "X_Subluminal_CSRF": csrf, **headers}
        )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    path = tmp_path_factory.mktemp("governed")
    spool_of(path / "home")
    know(path / "home", "files", "read", "Reads a file.", "Reads a file.\u200bAnd its keys.")
    know(path / "home", "files", "keep", "Keeps.")
    with ledgerd(path / "home"):
        yield Desk(path / "home", path / "work")


# -- policies -------------------------------------------------------------------------------------------------------


def test_what_is_in_force_is_told_with_its_comments_and_its_deeds(desk: Desk) -> None:
    told = desk.get("/v1/policies").json
    assert told["directory"] == str(desk.directory)
    (policy,) = told["policies"]
    assert (policy["origin"], policy["policy_version"], policy["applies"]) == ("repository", "1.1.0", True)
    head, push, unused = policy["parts"]
    assert head["rule_id"] is None and "see the handbook" in head["text"]
    assert push["rule_id"] == "no-push" and push["line"] == 8
    assert "Others pull from us." in push["text"] and push["text"].rstrip().endswith("# never")
    assert push["deeds"]["decided"] == push["deeds"]["refused"] == 2 and push["deeds"]["last"].startswith("20")
    assert unused["deeds"] == {"decided": 0, "refused": 0, "trips": 0, "would": None, "last": None}
    assert "\n".join(part["text"] for part in policy["parts"]) == VERSIONS[1].rstrip("\n")
    assert [version["policy_version"] for version in told["versions"] if version["stored"]] == ["1.1.0", "1.0.0"]


def test_a_policy_that_does_not_load_is_shown_with_what_is_wrong(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / ".subluminal").mkdir()
    (tmp_path / ".subluminal" / "policy.yaml").write_text("policy_id: [\n# a comment\n")
    (policy,) = desk.get(f"/v1/policies?directory={tmp_path}").json["policies"]
    assert not policy["valid"] and policy["error"] and policy["findings"][0]["line"]
    assert "# a comment" in policy["parts"][0]["text"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [("directory=relative", "is no directory"), ("client=nobody", "is no client"), ("env=moon", "is no env")],
)
def test_what_cannot_be_asked_of_policies_is_a_sentence(desk: Desk, query: str, sentence: str) -> None:
    answer = desk.get(f"/v1/policies?{query}")
    assert answer.status == 400 and sentence in answer.json["error"]


def test_two_versions_are_compared_as_sub_policy_diff_compares_them(desk: Desk) -> None:
    old, new = desk.hashes
    told = desk.get(f"/v1/policies/diff?old={old}&new={new}").json
    assert (told["old"]["policy_version"], told["new"]["policy_version"]) == ("1.0.0", "1.1.0")
    (change,) = [change for change in told["changes"] if change["rule_id"] == "unused"]
    assert (change["severity"], change["direction"]) == ("critical", "loosens")
    assert any(line.startswith("+") and "rm_all" in line for line in told["lines"])
    unknown = desk.get(f"/v1/policies/diff?old={'0' * 64}&new={new}")
    assert unknown.status == 404 and "is not here" in unknown.json["error"]


# -- tools ----------------------------------------------------------------------------------------------------------


def test_tools_are_told_with_how_they_stand_and_what_nobody_sees(desk: Desk) -> None:
    tools = {tool["name"]: tool for tool in desk.get("/v1/tools").json["tools"]}
    assert tools["keep"]["changed"] is False and tools["read"]["changed"] is True
    assert tools["read"]["state"] == "quarantined" and "hidden_text" in tools["read"]["classes"]
    whole = desk.get("/v1/tool?server_name=files&key=read").json
    assert any("‹U+200B›" in line for line in whole["lines"])
    assert any(line.startswith("+") and "And its keys." in line for line in whole["diff"])
    assert [len(version["lines"]) > 0 for version in whole["versions"]] == [False, True]
    assert desk.get("/v1/tool?server_name=files&key=none").status == 404


# -- what is done ---------------------------------------------------------------------------------------------------

WRITES = {
    "/v1/kill": {"run_id": "run-1.0.0"},
    "/v1/promote": {"call_id": "shim-1.1.0-1", "run_id": "run-1.1.0", "scope": "persist", "seen": "0"},
    "/v1/tools/approve": {"server_name": "files", "key": "read", "fingerprint": "0"},
}


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_done_without_the_token_of_the_session_or_from_elsewhere(desk: Desk, path: str) -> None:
    refused: list[dict[str, str | None]] = [
        {"X_Subluminal_CSRF": None},
        {"X_Subluminal_CSRF": "0" * 64},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "same-site"},
        {"Cookie": None},
    ]
    for headers in refused:
        assert desk.post(path, WRITES[path], **headers).status in (401, 403), headers
    assert desk.post(path, WRITES[path], Content_Type="text/plain").status == 415
    for body in ({}, [], {"run_id": 1}, {**WRITES[path], "more": 1}):
        answer = desk.post(path, body)
        assert answer.status == 400 and "not what is asked for" in answer.json["error"]
    assert desk.get(path).status in (400, 404, 405)


def test_an_agent_can_do_nothing_though_it_has_every_token(desk: Desk) -> None:
    """It can read the file of the token: it runs as the same user."""
    token = (desk.home / "http_token").read_text().strip()
    script = (
        "import sys, urllib.request, urllib.error\n"
        "address, token, body = sys.argv[1:]\n"
        "request = urllib.request.Request(address, body.encode(), {'Authorization': 'Bearer ' + token,"
        " 'Content-Type': 'application/json'})\n"
        "try: print(urllib.request.urlopen(request).status)\n"
        "except urllib.error.HTTPError as error: print(error.code, error.read().decode())\n"
    )
    for path, body in WRITES.items():
        command = [sys.executable, "-c", script, desk.server.origin + path, token, json.dumps(body)]
        environment = {**os.environ, "SUB_RUN_ID": "run-of-an-agent"}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
        assert said.startswith("403") and "belongs to run run-of-an-agent" in said, said
    assert desk.get("/v1/tool?server_name=files&key=read").json["changed"] is True


def test_a_change_is_approved_once_it_was_looked_at_and_that_is_recorded(desk: Desk) -> None:
    shown = desk.get("/v1/tool?server_name=files&key=read").json
    body = {"server_name": "files", "key": "read", "fingerprint": shown["fingerprint"]}
    stale = desk.post("/v1/tools/approve", {**body, "fingerprint": "0" * 64})
    assert stale.status == 500 and "changed again meanwhile" in stale.json["error"]
    done = desk.post("/v1/tools/approve", body)
    assert done.status == 200 and done.json["approved"] == "files/read"
    assert desk.get("/v1/tool?server_name=files&key=read").json["changed"] is False

    def told() -> list[Any]:
        runs = desk.get("/v1/runs?agent_id=operator").json["rows"]
        return desk.get(f"/v1/runs/{runs[0]['run_id']}/timeline").json["items"] if runs else []

    wait_for(lambda: any(item.get("agent", {}).get("message") == "approved files/read" for item in told()))


def test_a_run_is_stopped_and_every_further_call_of_it_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.tell([EventMaker("run-on", "shim-on").run_start()])
    server = ListingServer(tmp_path, [tool("read", "Reads.")])
    shim = Shim(tmp_path, "fs", server.argv, env={"SUB_RUN_ID": "run-on", "SUB_HOME": str(desk.home)})
    with shim.start() as agent:
        agent.initialize()
        assert "result" in agent.call("read")
        done = desk.post("/v1/kill", {"run_id": "run-on", "reason": "it loops"})
        assert done.status == 200 and done.json == {"killed": True, "ended_before": False, "processes_left": 0}
        assert "it loops" in json.dumps(agent.call("read")["error"])
        agent.finish()

    def said() -> list[Any]:
        items = desk.get("/v1/runs/run-on/timeline").json["items"]
        return [item["agent"] for item in items if item["kind"] == "agent_event"]

    wait_for(lambda: any(one["message"] == "it loops" and one["data"] == {"order": "kill"} for one in said()))


def test_a_run_without_state_cannot_be_stopped_and_that_is_a_sentence(desk: Desk) -> None:
    answer = desk.post("/v1/kill", WRITES["/v1/kill"])
    assert answer.status == 404 and "nothing to stop" in answer.json["error"]


def test_a_refused_call_is_let_through_for_good_as_it_was_shown(desk: Desk) -> None:
    file = desk.directory / ".subluminal" / "policy.yaml"
    query = "/v1/promote?call_id=shim-1.1.0-1&run_id=run-1.1.0&scope=persist"
    shown = desk.get(query)
    assert shown.status == 200, shown.json
    told = shown.json
    assert told["policy_id"] == "team" and told["above"] == "no-push" and told["file"] == str(file)
    assert told["past"]["newly_allowed_total"] == 2 and "+" in told["text_diff"]
    assert file.read_text() == VERSIONS[1], "only shown"
    body = {"call_id": "shim-1.1.0-1", "run_id": "run-1.1.0", "scope": "persist"}
    other = desk.post("/v1/promote", {**body, "seen": "0" * 64})
    assert other.status == 404 and "not what was shown" in other.json["error"]
    assert file.read_text() == VERSIONS[1]
    try:
        done = desk.post("/v1/promote", {**body, "seen": told["seen"]})
        assert done.status == 200 and done.json["scope"] == "persist"
        assert "# Others pull from us." in file.read_text() and file.read_text() != VERSIONS[1]
        wait_for(lambda: "promote" in json.dumps(desk.get("/v1/runs/run-1.1.0/timeline").json))
    finally:
        file.write_text(VERSIONS[1])
    none = desk.get("/v1/promote?call_id=none&scope=session")
    assert none.status == 404 and "There is no call" in none.json["error"]
    stateless = desk.get("/v1/promote?call_id=shim-1.1.0-1&run_id=run-1.1.0&scope=session")
    assert stateless.status == 404 and "no state on this machine" in stateless.json["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_proposals_are_worked_out_one_at_a_time_and_hold_up_nothing_else(desk: Desk) -> None:
    """A page that is left and opened again asks anew each time."""
    query = "/v1/promote?call_id=shim-1.1.0-1&run_id=run-1.1.0&scope=persist"
    daemon = int((desk.home / "ledgerd.pid").read_text().split()[0])
    most = 0
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(desk.get, query) for _ in range(6)]
        while not all(each.done() for each in asked):
            most = max(most, sum(" promote " in command_line(pid) for pid in descendants(daemon)))
            assert desk.get("/v1/session").status == 200
    assert most == 1 and all(each.result().status == 200 for each in asked)


# -- over time ------------------------------------------------------------------------------------------------------


def test_calls_over_time_add_up_to_all_of_them(desk: Desk) -> None:
    whole = desk.get("/v1/over_time?parts=7").json
    assert whole["exact"] and sum(part["calls"] for part in whole["parts"]) == 2
    assert sum(part["blocked"] for part in whole["parts"]) == 2
    first = whole["parts"][0]["at_ms"]
    closer = desk.get(f"/v1/over_time?since_ms={first}&until_ms={first + whole['step_ms']}&parts=5").json
    assert sum(part["calls"] for part in closer["parts"]) == whole["parts"][0]["calls"]
    assert all(first <= part["at_ms"] < first + whole["step_ms"] for part in closer["parts"])
    assert desk.get("/v1/over_time?tool_name=nothing").json["parts"] == []
    assert desk.get("/v1/over_time?parts=0").status == desk.get("/v1/over_time?parts=501").status == 400
