"""A command behind the HTTP door: there the door itself is the HTTP server that a revision speaks of."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.proxy import Answer, Connection, Proxy, call, proxy
from harness.waiting import wait_for
from subluminal.http.loop import PipeEnd

SERVER = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

ran = []
for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    name, arguments = params.get("name"), params.get("arguments") or {}
    if number is None or method is None:
        continue
    if method == "initialize":
        say(id=number, result={"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {}})
    elif method == "tools/list":
        region = {"type": "string", "x-mcp-header": "Region"}
        schema = {"type": "object", "properties": {"region": region}}
        say(id=number, result={"tools": [{"name": "routed", "inputSchema": schema}]})
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        say(method="notifications/subscriptions/acknowledged", params={"_meta": meta})
    elif method != "tools/call":
        say(id=number, error={"code": -32601, "message": "no such method"})
    elif name == "fail":
        say(id=number, error={"code": arguments["code"], "message": "no"})
    elif name == "hold":
        held = number
    elif name == "ran":
        say(id=number, result={"content": [{"type": "text", "text": json.dumps(ran)}]})
    else:
        ran.append(name)
        if name == "tell":
            meta = {"io.modelcontextprotocol/subscriptionId": arguments["subscription"]}
            say(method="notifications/tools/list_changed", params={"_meta": meta})
        if name == "release":
            say(id=held, result={"content": [{"type": "text", "text": "held"}]})
        if name == "log":
            say(method="notifications/message", params={"level": "info", "data": "well"})
        say(id=number, result={"content": [{"type": "text", "text": name}]})
"""
COMMAND = [sys.executable, "-c", SERVER]
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, number: Any = 1, meta: Any = META, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}


def begin(door: Proxy, message: dict[str, Any]) -> Connection:
    """As `ask`, without waiting for the answer."""
    name = message["params"].get("name")
    given = {"Mcp_Protocol_Version": STATELESS, "Mcp_Method": message["method"], "Mcp_Name": name}
    connection = door.connect()
    connection.send(door.request(json.dumps(message).encode(), **given))
    return connection


def ask(door: Proxy, message: dict[str, Any], **headers: str | None) -> Answer:
    """A request of the stateless revision, with the headers that belong to it unless others are given."""
    name = message["params"].get("name")
    given = {"Mcp_Protocol_Version": STATELESS, "Mcp_Method": message["method"], "Mcp_Name": name, **headers}
    return door.post(message, **given)


# -- revision 2026-07-28 ------------------------------------------------------------------------------------------


def test_two_requests_with_one_id_are_two(tmp_path: Path) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        door.headers = {"Subluminal-Run-Id": "one"}  # of one run and one peer: one process
        first = begin(door, request("tools/call", 7, name="hold"))
        wait_for(lambda: len(door.events.events_of("tool_call_decision")) == 1, what="the first to be on its way")
        others = [begin(door, request("tools/call", 7, name=name)) for name in ("second", "third")]
        assert ask(door, request("tools/call", 8, name="release")).text == "release"
        assert first.answer().text == "held"
        assert [each.answer().text for each in others] == ["second", "third"]
    assert len(door.events.events_of("tool_call_end")) == 4


@pytest.fixture(scope="module")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One door for all the requests that must not get past it: its command says what it ran."""
    with proxy(tmp_path_factory.mktemp("stateless"), command=COMMAND) as door:
        assert ask(door, request("tools/list", "first")).status == 200
        yield door


@pytest.mark.parametrize(
    ("message", "headers", "code"),
    [
        (request("tools/call", name="a", meta={}), {}, -32602),
        (request("tools/call", name="a", meta={"io.modelcontextprotocol/protocolVersion": STATELESS}), {}, -32602),
        (request("tools/call", name="a", meta={**META, "io.modelcontextprotocol/protocolVersion": "x"}), {}, -32020),
        (request("tools/call", name="a"), {"Mcp_Method": None}, -32020),
        (request("tools/call", name="a"), {"Mcp_Method": "TOOLS/CALL"}, -32020),
        (request("tools/call", name="a"), {"Mcp_Name": None}, -32020),
        (request("tools/call", name="a"), {"Mcp_Name": "safe"}, -32020),
        (request("tools/call", name="a"), {"Mcp_Protocol_Version": None}, -32020),
        (request("tools/list"), {"Mcp_Method": "prompts/list"}, -32020),
        (request("tools/call", name="routed", arguments={"region": "eu"}), {}, -32020),
        (request("tools/call", name="routed", arguments={"region": "eu"}), {"Mcp_Param_Region": "us"}, -32020),
        (
            request("tools/call", name="routed", arguments={"region": "Hello"}),
            {"Mcp_Param_Region": "=?base64?SGVsbG8?="},  # its padding is missing
            -32020,
        ),
    ],
)
def test_a_request_whose_headers_and_message_differ_does_not_reach_the_command(
    stateless: Proxy, message: dict[str, Any], headers: dict[str, str | None], code: int
) -> None:
    answer = ask(stateless, message, **headers)
    assert (answer.status, answer.error["code"], answer.json()["id"]) == (400, code, 1)
    assert ask(stateless, request("tools/call", "last", name="ran")).text == "[]"


def test_headers_that_say_the_same_pass_however_they_are_written(tmp_path: Path) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        assert ask(door, request("tools/list", "first")).status == 200
        call_it = request("tools/call", name="routed", arguments={"region": "Hello"})
        assert ask(door, call_it, Mcp_Param_Region="=?base64?SGVsbG8=?=").text == "routed"
        assert ask(door, call_it, Mcp_Param_Region="Hello", Mcp_Name="  routed  ").text == "routed"


@pytest.mark.parametrize(("code", "status"), [(-32602, 400), (-32021, 400), (-32022, 400), (-32603, 200), (7, 200)])
def test_an_error_of_the_command_has_the_status_of_its_code(tmp_path: Path, code: int, status: int) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        answer = ask(door, request("tools/call", name="fail", arguments={"code": code}))
        assert (answer.status, answer.error["code"]) == (status, code)
        assert ask(door, request("no/such")).status == 404
        door.initialize()
        assert door.call("fail", {"code": code}).status == 200  # older revisions know no such thing


def test_a_revision_that_nobody_knows_is_the_commands_to_refuse(tmp_path: Path) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        meta = {**META, "io.modelcontextprotocol/protocolVersion": "v999"}
        answer = ask(door, request("server/discover", meta=meta), Mcp_Protocol_Version="v999")
        assert (answer.status, answer.error["code"]) == (404, -32601)


def test_what_a_subscription_brings_comes_on_its_own_stream(tmp_path: Path) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        streams = {number: listening(door, number) for number in ("one", 2)}
        ask(door, request("tools/call", "tell", name="tell", arguments={"subscription": 2}))
        assert b"list_changed" in streams[2].read_chunk()
        ask(door, request("tools/call", "tell", name="tell", arguments={"subscription": "one"}))
        assert b"list_changed" in streams["one"].read_chunk()
        assert ask(door, request("tools/call", "log", name="log")).text == "log"
        for stream in streams.values():
            stream.close()


def listening(door: Proxy, number: Any) -> Connection:
    connection = door.connect()
    body = json.dumps(request("subscriptions/listen", number)).encode()
    headers = {"Mcp_Protocol_Version": STATELESS, "Mcp_Method": "subscriptions/listen"}
    connection.send(door.request(body, **headers))
    assert connection.head()[0] == 200
    assert b"acknowledged" in connection.read_chunk()
    return connection


# -- revisions with sessions --------------------------------------------------------------------------------------


def test_a_session_begins_with_initialize(tmp_path: Path) -> None:
    with proxy(tmp_path, command=["touch", str(tmp_path / "started")]) as door:
        answer = door.post(call("a"))
        assert (answer.status, answer.error["code"], answer.header("mcp-session-id")) == (400, -32600, "")
        assert door.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 400
    assert not (tmp_path / "started").exists()
    (end,) = door.events.events_of("tool_call_end")
    assert end["status"] == "ERROR"


def test_what_a_call_says_on_its_way_comes_with_its_reply_though_the_client_listens_elsewhere(tmp_path: Path) -> None:
    with proxy(tmp_path, command=COMMAND) as door:
        door.initialize()
        stream = door.connect()
        stream.send(door.request(b"", method="GET", Accept="text/event-stream"))
        assert stream.head()[0] == 200
        answer = door.call("log")
        assert [event.get("method") for event in answer.events()] == ["notifications/message", None]
        stream.close()


# -- pipes --------------------------------------------------------------------------------------------------------


def test_a_pipe_is_closed_once_by_either_loop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def close(fd: int) -> None:
        PipeEnd(fd).close()

    for loop, closes in ((asyncio.new_event_loop(), True), (uvloop.new_event_loop(), False)):
        read_end, write_end = os.pipe()
        loop.run_until_complete(close(write_end))
        assert (not is_open(write_end)) is closes  # uvloop closes the descriptor by itself, before the object
        os.close(read_end)
        if not closes:
            os.close(write_end)
        loop.close()


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
