"""The model API, a hook and a shim see one call: three producers of one run, their journals, and how it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import run_sub
from harness.engine import rule, tools
from harness.in_process import isolate
from harness.ledger import ledgerd, spool_of
from harness.waiting import wait_for
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.gate.record import CallRecord
from subluminal.ledger.read.ledger import open_ledger
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.producer.asking import ask, settle
from subluminal.producer.producer import Producer, assemble

DOORS = ("messages_api", "hook", "mcp_stdio")


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    members = {"policy_id": "p", "version": "1", "mode": "guardrails", "selectors": {}, "rules": list(rules)}
    return compile_bundle(json.dumps({**members, "defaults": {"decision_on_error": "BLOCK"}}).encode(), "policy.json")


BUDGET = rule("few", "budget", tools("*"), scope="run", limit_calls=2, on_exceed="BLOCK")


class Doors:
    """A producer for each door, as processes of their own have them: what they share is the run's state."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "sub"
        spool_of(self.home)
        self.at: dict[str, Producer] = {}
        self.ms = 1_700_000_000_000

    def open(self, door: str, *rules: dict[str, Any]) -> None:
        producer = self.at[door] = assemble(os.environ, policy=policy(BUDGET, *rules))
        producer.open({"server_name": door})

    def ask(self, door: str, name: str | None, tool: str = "look", **call: Any) -> tuple[CallRecord, str | None]:
        context = None if name is None else {"claudecode/toolUseId": name}
        made = ToolCall("notes", tool, b'{"n":1}', 7, door, context, **call)
        self.ms += 1
        return ask(self.at[door], made, self.ms, 1_000, lambda code, message, data: (message, len(message)))

    def one_call(self, order: tuple[str, ...], name: str, tool: str = "look") -> list[str]:
        """As clients make it: asked at each door in turn until one refuses, ended at those that let it through."""
        decided, let_through = [], []
        for door in order:
            record, refused = self.ask(door, name, tool)
            decided.append(record.decision.action)
            if refused is not None:
                break
            let_through.append((door, record))
        for door, record in reversed(let_through):
            status = "OK" if decided[-1] == "ALLOW" else "ERROR"
            settle(self.at[door], record, status, self.ms, 1_010, b'"seen"', latency_ms=10)
            self.at[door].hand_over()
        return decided

    def close(self) -> None:
        for producer in self.at.values():
            assert producer.close("SUCCEEDED") is None
            producer.close_state()
            producer.doorbell.close()
        wait_for(self._is_stored, what="the end of the run in the ledger")

    def _is_stored(self) -> bool:
        with open_ledger(str(self.home / "ledger.db")) as ledger:
            return [run["status"] for run in ledger.runs().rows] == ["SUCCEEDED"]

    def told(self, *arguments: str) -> list[dict[str, Any]]:
        done = run_sub(self.home, *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    isolate(tmp_path, monkeypatch)
    monkeypatch.delenv("SUB_EVENTS")
    made = Doors(tmp_path)
    with ledgerd(made.home):
        yield made
    done = run_sub(made.home, "verify", "run-1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("order", list(permutations(DOORS)), ids="-".join)
def test_it_is_charged_once_whichever_door_is_asked_first(doors: Doors, order: tuple[str, ...]) -> None:
    for door in DOORS:
        doors.open(door)
    assert doors.one_call(order, "toolu_1") == ["ALLOW"] * 3
    assert doors.one_call(order, "toolu_2") == ["ALLOW"] * 3, "one of two had been charged"
    assert doors.one_call(order, "toolu_3") == ["BLOCK"]
    doors.close()
    calls = doors.told("query", "--json", "--no-sync")
    called = sorted((call["tool_use_id"], call["decision"], call["transport"]) for call in calls)
    first = order[0]
    assert called == [("toolu_1", "ALLOW", first), ("toolu_2", "ALLOW", first), ("toolu_3", "BLOCK", first)]


def test_it_is_one_call_wherever_it_is_read_and_its_doors_are_told(doors: Doors) -> None:
    for door in DOORS[:2]:
        doors.open(door)
    doors.open("mcp_stdio", rule("no", "deny", tools("remove")))
    assert doors.one_call(DOORS, "toolu_1") == ["ALLOW"] * 3
    assert doors.one_call(DOORS, "toolu_2", "remove") == ["ALLOW", "ALLOW", "BLOCK"]
    doors.close()

    (run,) = doors.told("runs", "--json", "--no-sync")
    assert [run[name] for name in ("calls_total", "calls_allowed", "calls_blocked", "errors_total")] == [2, 1, 1, 0]
    assert sorted((call["tool_name"], call["decision"]) for call in doors.told("query", "--json", "--no-sync")) == [
        ("look", "ALLOW"), ("remove", "BLOCK")
    ]  # fmt: skip
    groups = doors.told("query", "--group-by", "tool_name", "--json", "--no-sync")
    assert sorted((group["tool_name"], group["calls"]) for group in groups) == [("look", 1), ("remove", 1)]
    tailed = doors.told("tail", "--no-follow", "--json")
    assert sorted((call["tool_name"], call["decision"]) for call in tailed) == [("look", "ALLOW"), ("remove", "BLOCK")]

    (shown,) = doors.told("show", "run-1", "--json", "--no-sync")
    calls = {item["tool_name"]: item for item in shown["timeline"] if item["kind"] == "call"}
    assert len([item for item in shown["timeline"] if item["kind"] == "call"]) == 2
    assert [(door["transport"], door["decision"]) for door in calls["remove"]["doors"]] == [
        ("messages_api", "ALLOW"), ("hook", "ALLOW"), ("mcp_stdio", "BLOCK")
    ]  # fmt: skip
    assert [door["transport"] for door in calls["look"]["doors"]] == list(DOORS)
    text = run_sub(doors.home, "show", "run-1", "--no-sync").stdout
    assert "seen by messages_api (ALLOW), hook (ALLOW), mcp_stdio (BLOCK)" in text
    first = calls["look"]["doors"][0]["call_id"]
    described = run_sub(doors.home, "show", first, "--no-sync").stdout
    assert "messages_api (ALLOW), hook (ALLOW), mcp_stdio (ALLOW)" in described


def test_a_door_that_sees_an_id_twice_has_seen_two_calls(doors: Doors) -> None:
    for door in DOORS:
        doors.open(door)
    assert doors.one_call(DOORS, "toolu_1") == ["ALLOW"] * 3
    assert doors.one_call(DOORS, "toolu_1") == ["ALLOW"] * 3
    assert doors.one_call(("hook",), "toolu_1") == ["BLOCK"]
    doors.close()
    (run,) = doors.told("runs", "--json", "--no-sync")
    assert [run[name] for name in ("calls_total", "calls_allowed", "calls_blocked")] == [3, 2, 1]


def test_a_call_that_the_provider_carried_out_is_told_as_observed(doors: Doors) -> None:
    doors.open("messages_api", rule("no", "deny", tools("web_search")))
    record, refused = doors.ask("messages_api", "srvtoolu_1", "web_search", observed=True)
    assert refused is None
    settle(doors.at["messages_api"], record, "OK", doors.ms, 1_010, latency_ms=10)
    doors.one_call(("messages_api",), "toolu_1")
    doors.close()
    calls = {call["tool_name"]: call for call in doors.told("query", "--json", "--no-sync")}
    assert (calls["web_search"]["observed"], calls["look"]["observed"]) == (True, False)
    assert (calls["web_search"]["decision"], calls["web_search"]["would_action"]) == ("ALLOW", "BLOCK")
    text = run_sub(doors.home, "show", calls["web_search"]["call_id"], "--no-sync").stdout
    assert "carried out elsewhere" in text and "BLOCK by rule no" in text
