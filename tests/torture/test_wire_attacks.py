"""Attacks on the wire through a real shim: ids used twice, messages nobody can read, annotations nobody has seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Agent
from harness.engine import rule, tools
from harness.fake_server import fake_server
from harness.shim import Shim

MIB = 1 << 20


def bundle(*rules: dict[str, Any], mode: str = "guardrails", **defaults: Any) -> dict[str, Any]:
    return {
        "policy_id": "p",
        "version": "1",
        "mode": mode,
        "defaults": {"decision_on_error": "BLOCK", **defaults},
        "selectors": {},
        "rules": list(rules),
    }


# -- an id used twice in flight


def test_pings_under_the_ids_of_failing_calls_do_not_keep_a_breaker_from_tripping(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    script = fake_server(tools={"fail": {"delay_ms": 30, "is_error": "broken"}}, executed=str(executed))
    breaker = rule("b", "breaker", tools("*"), scope="run", error_threshold=3, window_ms=600_000, on_trip="BLOCK")
    setup = Shim(tmp_path, "s", script, policy=bundle(breaker))
    with setup.start() as agent:
        agent.initialize()
        for number in range(100, 110):
            before = len(agent.messages)
            agent.start_call("fail", {}, id=number)
            agent.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
            agent.pump_until(lambda before=before: len(agent.messages) >= before + 2, what="two answers")
        agent.finish()
    assert len(executed.read_bytes().splitlines()) == 3
    ends = [(e["call"]["tool_name"], e["status"]) for e in setup.events.events_of("tool_call_end")]
    assert ends.count(("fail", "ERROR")) == 10
    assert ("(ping)", "ERROR") in ends
    assert "OK" not in dict(ends).values()


# -- refused, and answered

CALL = b'{"jsonrpc":"2.0","id":"me","method":"tools/call","params":{"name":"t","arguments":{"x":1}}}'
NOBODY_READS = {
    "a truncated emoji in the name": CALL.replace(b'"t"', b'"\\ud83d"'),
    "a truncated emoji in the arguments": CALL.replace(b'"x":1', b'"x":"\\ud83d"'),
    "a truncated emoji in a key": CALL.replace(b'"x":1', b'"\\ud83d":1'),
    "a truncated emoji in another member": CALL.replace(b'"params"', b'"note":"\\ud83d","params"'),
    "NaN in the arguments": CALL.replace(b'"x":1', b'"x":NaN'),
    "NaN beside them": CALL.replace(b'"name"', b'"y":NaN,"name"'),
    "trailing bytes": CALL + b" x",
    "a trailing comma": CALL + b",",
    "a raw control character in a string": CALL.replace(b'"t"', b'"t\x01"'),
    "a raw tab in a string": CALL.replace(b'"x":1', b'"x":"a\tb"'),
    "a NUL between members": CALL.replace(b',"method"', b'\0,"method"'),
    "a byte order mark": b"\xef\xbb\xbf" + CALL,
    "invalid UTF-8": CALL.replace(b'"x":1', b'"x":"\xff"'),
    "a bare CR": CALL.replace(b',"method"', b',\r"method"'),
    "an escaped key": CALL.replace(b'"id"', b'"\\u0069d"').replace(b'"t"', b'"t\\ud83d"'),
    "a call behind a notification": b'{"jsonrpc":"2.0","method":"notifications/x"}' + CALL,
}


# What is passed over in a large message cannot change its name or id, whatever the server makes of it.
NOT_LOOKED_AT = (
    "a truncated emoji in the arguments",
    "a truncated emoji in a key",
    "a truncated emoji in another member",
)
LARGE = {
    f"{name}, large": line.replace(b'"arguments":{', b'"arguments":{"bulk":"' + b"x" * 2 * MIB + b'",')
    for name, line in NOBODY_READS.items()
    if name not in NOT_LOOKED_AT
}


@pytest.fixture(scope="module")
def goes_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Shim, Path]]:
    """One session for all that nobody can read: it goes on after each. And what its server received."""
    place = tmp_path_factory.mktemp("goes-on")
    record = place / "stream"
    setup = Shim(place, "s", fake_server(tools={"*": {}}, record=str(record)), policy=bundle())
    with setup.start() as agent:
        yield agent, setup, record
        agent.finish()


@pytest.mark.parametrize("name", [*NOBODY_READS, *LARGE])
def test_whoever_waits_for_an_answer_to_what_nobody_can_read_gets_one(
    goes_on: tuple[Agent, Shim, Path], name: str
) -> None:
    agent, setup, record = goes_on
    before = len(setup.events.events_of("tool_call_start"))
    agent.send_raw({**NOBODY_READS, **LARGE}[name].replace(b'"me"', json.dumps(name).encode()) + b"\n")
    error = agent.reply(name)["error"]
    assert error["data"]["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE"
    assert "result" in agent.call("t"), "and goes on"
    assert json.dumps(name).encode() not in record.read_bytes()
    assert setup.events.events_of("tool_call_start")[before]["call"]["tool_name"] in ("t", "t\x01", "(unreadable)")


BATCHES = {
    "larger than is inspected": (CALL.replace(b'"x":1', b'"x":"' + b"x" * 2 * MIB + b'"'), CALL.replace(b"me", b"you")),
    "a truncated emoji": (CALL.replace(b'"t"', b'"\\ud83d"'), CALL.replace(b"me", b"you")),
    "cut short": (CALL, CALL.replace(b"me", b"you")[:-2]),
}


@pytest.mark.parametrize(("first", "second"), BATCHES.values(), ids=BATCHES.keys())
def test_a_batch_that_cannot_be_taken_apart_is_answered_under_every_id_in_it(
    tmp_path: Path, first: bytes, second: bytes
) -> None:
    note = b'{"jsonrpc":"2.0","method":"notifications/x"}'
    setup = Shim(tmp_path, "s", fake_server(tools={"*": {}}), policy=bundle())
    with setup.start() as agent:
        agent.send_raw(b"[" + b",".join((first, note, second)) + b"]\n")
        assert [answer["error"]["code"] for answer in agent.replies(["me", "you"])] == [-32081] * 2
        assert len(agent.received) == 1, "one array"
        agent.finish()
    (start,) = setup.events.events_of("tool_call_start")
    assert start["call"]["tool_name"] == "(batch)"


def test_a_batch_without_any_id_that_can_be_found_is_answered_once_under_null(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "s", fake_server(tools={"*": {}}), policy=bundle())
    with setup.start() as agent:
        agent.send_raw(b'[{"jsonrpc":"2.0","method":"notifications/x","params":{"a":NaN}}]\n')
        assert agent.reply(None)["error"]["code"] == -32081
        agent.finish()


def test_a_single_message_without_an_id_that_can_be_found_gets_no_answer(tmp_path: Path) -> None:
    """Clients end the session at a reply whose id they cannot read; a notification is never answered."""
    setup = Shim(tmp_path, "s", fake_server(tools={"*": {}}), policy=bundle())
    with setup.start() as agent:
        agent.send_raw(b'not JSON\n{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","name":"u"}}\n')
        agent.call("t")
        assert len(agent.received) == 1
        agent.finish()
    names = [event["call"]["tool_name"] for event in setup.events.events_of("tool_call_start")]
    assert names == ["(unreadable)", "u", "t"]


# -- annotations nobody has seen

DENY_WRITES = rule("no-writes", "deny", {"risk_class": ["write_like"]})
TOOLS = {"rm": {"annotations": {"destructiveHint": True}}, "cat": {"annotations": {"readOnlyHint": True}}}


def reason(reply: dict[str, Any]) -> str:
    return str(reply["error"]["data"]["subluminal"]["reason_code"]) if "error" in reply else "ran"


LISTS = {
    "spelled plainly": b'{"jsonrpc":"2.0","id":"list","method":"tools/list"}\n',
    "spelled with escapes": b'{"jsonrpc":"2.0","id":"list","method":"tools\\/list"}\n',
    "asked for with a large message": b'{"id":"list","params":{"_meta":{"x":"%s"}},"method":"tools/list"}\n'
    % (b"x" * 2 * MIB),
}


@pytest.mark.parametrize("ask", LISTS.values(), ids=LISTS.keys())
@pytest.mark.parametrize("bulk", [1, 60_000], ids=["small list", "large list"])
def test_a_destructive_tool_does_not_run_before_it_is_listed_nor_after(tmp_path: Path, ask: bytes, bulk: int) -> None:
    executed = tmp_path / "executed"
    first = {"first": {"description": "x" * bulk}}
    server = fake_server(tools={**first, **TOOLS}, executed=str(executed))
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "config.toml").write_text("[shim]\nmax_inspect_bytes = 20000\n")
    setup = Shim(tmp_path, "s", server, policy=bundle(DENY_WRITES))
    with setup.start() as agent:
        agent.initialize()
        error = agent.call("rm")["error"]
        assert error["data"]["subluminal"]["reason_code"] == "TOOL_NOT_LISTED"
        assert "tools/list" in error["message"]
        assert reason(agent.call("cat")) == "TOOL_NOT_LISTED"
        agent.send_raw(ask)
        assert len(agent.reply("list")["result"]["tools"]) == 3
        assert [reason(agent.call(tool)) for tool in ("rm", "cat", "first")] == ["DENYLIST_MATCH", "ran", "ran"]
        agent.finish()
    assert [json.loads(line)["tool"] for line in executed.read_bytes().splitlines()] == ["cat", "first"]


def test_a_respawned_shim_of_the_run_knows_what_the_one_before_has_learned(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "s", fake_server(tools=TOOLS), policy=bundle(DENY_WRITES), env={"SUB_RUN_ID": "one"})
    with setup.start() as agent:
        agent.initialize()
        agent.request("tools/list")
        agent.signal(9)
        agent.wait_exit()
    with setup.start() as agent:
        agent.initialize()
        assert [reason(agent.call(tool)) for tool in ("rm", "cat")] == ["DENYLIST_MATCH", "ran"]
        agent.finish()
    setup.env["SUB_RUN_ID"] = "another"
    with setup.start() as agent:
        agent.initialize()
        assert reason(agent.call("cat")) == "TOOL_NOT_LISTED"
        agent.finish()


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ({"decision_on_error": "ALLOW"}, ["ran", "ran"]),
        ({"fail_open_read_tools": True}, ["TOOL_NOT_LISTED", "ran"]),
    ],
)
def test_the_policy_says_what_becomes_of_a_tool_that_was_not_listed(
    tmp_path: Path, defaults: dict[str, Any], expected: list[str]
) -> None:
    reads = rule("reads", "tag", tools("cat"), add_risk_class=["read_like"])
    setup = Shim(tmp_path, "s", fake_server(tools=TOOLS), policy=bundle(reads, DENY_WRITES, **defaults))
    with setup.start() as agent:
        agent.initialize()
        assert [reason(agent.call(tool)) for tool in ("rm", "cat")] == expected
        agent.finish()


# -- arguments of open calls


def is_decision(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "tool_call_decision")


def test_the_arguments_of_open_calls_are_not_kept(tmp_path: Path) -> None:
    count, size = 60, 1_000_000
    setup = Shim(
        tmp_path,
        "s",
        fake_server(tools={"t": {"hold_until": count + 1}}),
        policy=bundle(
            rule("b", "breaker", tools("*"), scope="run", error_threshold=3, window_ms=1000, on_trip="BLOCK")
        ),
    )
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    with setup.start(timeout=60) as agent:
        agent.initialize()
        for number in range(3):
            agent.start_call("t", {"data": "x" * size}, id=f"warm {number}", _meta=meta)
        setup.events.wait_count(is_decision, 3)
        before = agent.memory_kib()
        for number in range(count - 3):
            agent.start_call("t", {"data": "x" * size}, id=number, _meta=meta)
        setup.events.wait_count(is_decision, count)
        assert agent.memory_kib() - before < 12 * 1024, f"{count} arguments of {size // 1000} kB"
        agent.start_call("t", id="last")
        assert all("result" in reply for reply in agent.replies([*range(count - 3), "last"]))
