"""The real clients in a replay: their servers are those of the record, and nothing is executed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients import programs
from clients.hooked import SUB, Hooked, Session
from clients.models import Text
from harness.waiting import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
BYE = Text("Done.")
POLICY = """
policy_id: replayed
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: no-secret
    kind: deny
    match: {server_name: {glob: [box]}, args: {key_equals: {text: secret}}}
    effect: {action: REJECT_WITH_HINT, hint_text: Ask for something public.}
"""
STRICTER = (
    POLICY
    + """
  - rule_id: no-hello
    kind: deny
    match: {server_name: {glob: [box]}, args: {key_equals: {text: hello}}}
    effect: {action: BLOCK, reason_code: NO_HELLO, message: Say nothing.}
"""
)


@pytest.fixture(params=["claude_code", "codex"])
def user(
    request: pytest.FixtureRequest, cli_dir: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hooked]:
    server = home / "box_server.py"
    shutil.copy(programs.ECHO_SERVER, server)
    monkeypatch.setattr(programs, "ECHO_SERVER", server)
    made = Hooked(request.param, cli_dir, home)
    made.adopt(POLICY)
    (made.sub_home / "config.toml").write_text('[record]\nresults = "all"\n')
    yield made
    made.clean_up()


def replayed(user: Hooked, name: str, *turns: Any, options: tuple[str, ...] = ()) -> tuple[Session, dict[str, Any]]:
    report = user.home / f"{name}.json"
    session = user.session(*turns, under=(SUB, "replay", "last", "--report", str(report), *options, "--"))
    assert report.exists(), session.output
    return session, json.loads(report.read_text())


def test_a_session_is_replayed_without_its_server_and_without_its_own_tools(user: Hooked) -> None:
    ran = user.project / "ran.txt"
    turns = (user.echo(), user.echo("secret"), user.shell(f"touch {ran}"), user.echo("twice"), BYE)
    first = user.session(*turns)
    assert ran.exists(), first.output
    assert [call["decision"] for call in user.query("--server", "box")] == [
        "ALLOW",
        "REJECT_WITH_HINT",
        "ALLOW",
    ]
    wait_for(user.runs, what="the end of the run", enough=lambda runs: all(run["status"] != "RUNNING" for run in runs))
    ran.unlink()
    programs.ECHO_SERVER.unlink()  # whoever starts the server now fails
    before = user.sub("runs", "--json").stdout

    again, report = replayed(user, "same", *turns)
    assert report["same"] and report["calls"]["same"] == report["calls"]["recorded"] == 3, report
    for number, words in enumerate(("echo: hello", "rule no-secret", "replay of a recorded one", "echo: twice")):
        assert words in again.results[number]
    assert not ran.exists()
    assert report["builtin"] == {"recorded": 1, "hooks": True, "refused": 1, "ran": 0}
    assert user.sub("runs", "--json").stdout == before, "a replay leaves nothing in the ledger"

    stricter = user.home / "stricter.yaml"
    stricter.write_text(STRICTER)
    _, report = replayed(user, "other", *turns, options=("--policy", str(stricter)))
    assert [each["now"]["reason_code"] for each in report["other_decisions"]] == ["NO_HELLO"]
    _, report = replayed(user, "asked", user.echo(), user.echo("something else"), BYE)
    assert [each["nearest"]["keys"] for each in report["other_calls"]] == [["text"]]
    assert len(report["not_made"]) == 2
