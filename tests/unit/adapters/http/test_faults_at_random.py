"""Sessions with faults on either side, at random: every call that began has one end, and what is counted agrees."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.fake_server import fake_server
from harness.http_servers import Heard, Wire, raw_server, well_behaved
from harness.proxy import Connection, Proxy, call, proxy

POLICY: dict[str, Any] = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-rm",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["rm"]}},
            "effect": {"action": "BLOCK", "reason_code": "NO_RM", "message": "Nothing is removed here."},
        },
        {
            "rule_id": "broken",
            "kind": "breaker",
            "match": {"tool_name": {"glob": ["dies"]}},
            "effect": {"breaker": {"scope": "run", "error_threshold": 5, "window_ms": 60_000, "on_trip": "BLOCK"}},
        },
    ],
}
STATELESS = {"MCP_Protocol_Version": "2026-07-28"}
TOOLS = ("ok", "rm", "never", "dies", "cut", "foreign", "twice", "status", "streams", "large")
ACTIONS = 120


def at_random(heard: Heard, wire: Wire) -> None:
    tool = heard.message["params"]["name"] if heard.rpc == "tools/call" else "ok"
    if tool == "never":
        wire.wait_closed()
    elif tool == "dies":
        wire.stay = False
    elif tool == "cut":
        wire.stream()
        wire.send(b"data: {")
    elif tool == "foreign":
        wire.json({"jsonrpc": "2.0", "id": 12345, "result": {}})
    elif tool == "twice":
        wire.stream()
        wire.event(wire.result({"content": []}))
        wire.event(wire.result({"content": []}))
    elif tool == "status":
        wire.json({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}}, 404)
    elif tool == "streams":
        wire.stream()
        wire.event({"jsonrpc": "2.0", "method": "notifications/x"})
        wire.event(wire.result({"content": [], "isError": True}))
    elif tool == "large":
        wire.json(wire.result({"content": [{"type": "text", "text": "x" * 1_500_000}]}))
    else:
        well_behaved(heard, wire)


class Play:
    """Some connections wait for an answer, some are cut, some cut themselves."""

    def __init__(self, door: Proxy, random: Random) -> None:
        self.door = door
        self.random = random
        self.waiting: list[Connection] = []
        self.number = 0

    def act(self) -> None:
        random = self.random
        what = random.choices(("call", "batch", "leave", "session", "end", "half"), (10, 1, 3, 1, 1, 1))[0]
        if what == "session":
            self.door.session = None
            self.door.initialize(random.choice(("2025-03-26", "2025-11-25")))
        elif what == "end":
            self.door.raw(self.door.request(b"", method="DELETE"))
        elif what == "leave" and self.waiting:
            self.waiting.pop(random.randrange(len(self.waiting))).close()
        elif what == "half":
            connection = self.door.connect()
            connection.send(self.door.request(self._call())[: -random.randrange(1, 40)])
            connection.close()
        else:
            body = self._call() if what == "call" else b"[" + self._call() + b"," + self._call() + b"]"
            connection = self.door.connect()
            connection.send(self.door.request(body, **random.choice(({}, STATELESS))))
            self.waiting.append(connection)

    def _call(self) -> bytes:
        self.number += self.random.choice((0, 1, 1, 1))
        arguments = {"text": "x" * 1_200_000} if self.random.random() < 0.05 else {"n": self.number}
        return json.dumps(call(self.random.choice(TOOLS), arguments, self.number)).encode()


def check(door: Proxy) -> None:
    events = door.events.events()
    started = Counter(event["call"]["call_id"] for event in events if event["type"] == "tool_call_start")
    ended = Counter(event["call"]["call_id"] for event in events if event["type"] == "tool_call_end")
    assert len(started) > ACTIONS / 4
    assert set(started.values()) == {1}
    assert ended == started
    order: dict[str, list[str]] = {}
    for event in events:
        if event["type"] in ("tool_call_start", "tool_call_end"):
            order.setdefault(event["call"]["call_id"], []).append(event["type"])
    assert {tuple(kinds) for kinds in order.values()} == {("tool_call_start", "tool_call_end")}
    outcomes = {event["status"] for event in events if event["type"] == "tool_call_end"}
    # Whether a client leaves before its server dies is a matter of the moment.
    assert {"OK", "ERROR"} <= outcomes <= {"OK", "ERROR", "CANCELLED"}
    totals = [event["run"]["summary"]["calls_total"] for event in events if event["type"] == "run_end"]
    assert sum(totals) == len(started)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_call_has_one_end_behind_a_url(tmp_path: Path, seed: int) -> None:
    with raw_server({"*": at_random}) as server, proxy(tmp_path, POLICY, url=server.url) as door:
        play = Play(door, Random(seed))
        for _ in range(ACTIONS):
            play.act()
    check(door)


@pytest.mark.parametrize("seed", [3])
def test_every_call_has_one_end_behind_a_command(tmp_path: Path, seed: int) -> None:
    tools = {
        "never": {"never": True},
        "dies": {"crash": {"exit": 1}},
        "cut": {"crash": {"exit": 0, "when": "partial"}},
        "foreign": {"reply_id": "12345"},
        "twice": {"reply_twice": True},
        "status": {"error": {"code": 1, "message": "x"}},
        "streams": {"is_error": "no"},
        "large": {"result_bytes": 1_500_000},
        "*": {},
    }
    with proxy(tmp_path, POLICY, command=fake_server(tools=tools)) as door:
        play = Play(door, Random(seed))
        for _ in range(ACTIONS):
            play.act()
    check(door)
