"""Servers behind the HTTP door that never end, answer too early or not at all, and say what they should not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from harness.http_servers import Heard, Wire, raw_server, well_behaved
from harness.processes import memory_kib
from harness.proxy import Connection, Proxy, call, proxy
from harness.waiting import wait_for

OBSERVE: dict[str, Any] = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [],
}
STATELESS = {"MCP_Protocol_Version": "2026-07-28"}
LARGE = 16 * 1024 * 1024  # more than the kernel keeps for a connection
SECRET = "tok-5fa1c6d92b7e4c03"


def statuses(door: Proxy) -> list[str]:
    return [end["status"] for end in door.events.events_of("tool_call_end")]


def sent(door: Proxy, message: Any, **headers: str | None) -> Connection:
    connection = door.connect()
    connection.send(door.request(json.dumps(message).encode(), **headers))
    return connection


def descriptors(door: Proxy) -> int:
    return len(os.listdir(f"/proc/{door.process.pid}/fd"))


# -- without an end -----------------------------------------------------------------------------------------------


def endless_events(wire: Wire) -> None:
    wire.stream()
    event = b"data: " + json.dumps({"jsonrpc": "2.0", "method": "x", "params": "x" * 60_000}).encode() + b"\n\n"
    while True:
        wire.send(event)


def endless_body(wire: Wire) -> None:
    wire.head(200, 1 << 40, Content_Type="application/json")
    wire.send(b'{"jsonrpc":"2.0","id":1,"result":{"x":"')
    while True:
        wire.send(b"x" * 65536)


def endless_event(wire: Wire) -> None:
    wire.stream()
    wire.send(b'data: {"jsonrpc":"2.0","id":1,"result":{"x":"')
    while True:
        wire.send(b"x" * 65536)


@pytest.mark.parametrize("endless", [endless_events, endless_body, endless_event])
def test_a_client_that_does_not_read_holds_the_server_up_and_fills_no_memory(tmp_path: Path, endless: Any) -> None:
    held_up = Event()

    def answer(heard: Heard, wire: Wire) -> None:
        wire.connection.settimeout(1.0)
        try:
            endless(wire)
        except TimeoutError:
            held_up.set()

    with raw_server({"tools/call": answer}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        before = memory_kib(door.process.pid)
        waiting = sent(door, call("a"))
        assert held_up.wait(30)
        assert memory_kib(door.process.pid) - before < 64 * 1024
        waiting.close()
        assert door.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}).status == 200


def test_an_endless_head_is_an_error(tmp_path: Path) -> None:
    def answer(heard: Heard, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            wire.send(b"X-More: " + b"x" * 8000 + b"\r\n")

    with raw_server({"tools/call": answer}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        assert door.call("a").status == 502
    assert statuses(door) == ["ERROR"]


def test_a_server_that_never_answers_ends_in_the_record_at_its_time(tmp_path: Path) -> None:
    def never(heard: Heard, wire: Wire) -> None:
        wire.wait_closed()

    config = tmp_path / "sub" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("[servers.linear]\ntimeout_ms = 300\n")
    with (
        raw_server({"tools/call": never}) as server,
        proxy(tmp_path, OBSERVE, url=server.url) as door,
    ):
        alone = sent(door, call("a"), **STATELESS)
        door.initialize()
        in_session = sent(door, call("a"))
        wait_for(lambda: statuses(door) == ["TIMEOUT", "TIMEOUT"], what="both to have had their time")
        before = descriptors(door)
        alone.close()
        in_session.close()
        wait_for(lambda: descriptors(door) <= before - 4, what="both connections of each to be closed")
    assert statuses(door) == ["TIMEOUT", "TIMEOUT"]


# -- too early ----------------------------------------------------------------------------------------------------


def test_an_answer_before_the_body_was_sent_leaves_nothing_open(tmp_path: Path) -> None:
    """The server reads the head alone, answers and closes; the message waits in a file."""
    listener = socket.create_server(("127.0.0.1", 0))
    body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'

    def serve() -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            connection.recv(1024)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            held.append(connection)

    held: list[socket.socket] = []
    Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    with proxy(tmp_path, OBSERVE, url=url) as door:
        counts = []
        for _ in range(3):
            assert door.call("a", {"text": "x" * LARGE}).status == 200
            counts.append(descriptors(door))
        wait_for(lambda: descriptors(door) <= counts[0], what="the files of the messages to be closed")
    assert statuses(door) == ["OK"] * 3
    for each in (*held, listener):
        each.close()


def test_a_reply_before_its_request_and_with_a_foreign_id_answers_nothing(tmp_path: Path) -> None:
    def early(heard: Heard, wire: Wire) -> None:
        wire.stream()
        for number in (2, 99, "1", None):
            wire.event({"jsonrpc": "2.0", "id": number, "result": {"content": []}})
        wire.event({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}})
        wire.event(wire.result({"content": [], "isError": True}))

    with raw_server({"tools/call": early}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        assert len(door.call("a", request_id=1).events()) == 6
        assert len(door.call("a", request_id=2).events()) == 6
    assert statuses(door) == ["ERROR", "OK"]  # the second one's own stream had a reply for it, and before its error


WRONG: dict[str, bytes] = {
    "a length that is too long": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{}",
    "cut in a chunk": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x50",
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_not_whole_is_a_502(tmp_path: Path, name: str) -> None:
    def answer(heard: Heard, wire: Wire) -> None:
        wire.send(WRONG[name])
        wire.connection.shutdown(socket.SHUT_RDWR)
        wire.stay = False

    with raw_server({"tools/call": answer}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        assert door.call("a").status == 502
    assert statuses(door) == ["ERROR"]


# -- what it should not say ---------------------------------------------------------------------------------------


def test_a_stream_has_one_address_however_often_it_names_one(tmp_path: Path) -> None:
    stay = Event()

    def stream(heard: Heard, wire: Wire) -> None:
        wire.stream()
        for number in range(2000):
            wire.send(b"event: endpoint\ndata: /messages?n=%d\n\n" % number)
        wire.send(b"event: endpoint\ndata: http://127.0.0.1:1/elsewhere\n\n: done\n\n")
        stay.wait(30)

    with raw_server({"GET": stream}, "/sse") as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        listening = door.connect()
        listening.send(door.request(b"", method="GET", Content_Type=None, Content_Length=None))
        listening.head()
        text = b""
        while b": done" not in text:
            text += listening.read_chunk()
        named = [line[6:].decode() for line in text.split(b"\n") if line.startswith(b"data: ")]
        assert len(named) == 2000 and b"elsewhere" not in text
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        assert door.raw(door.request(body, path=named[0])).status == 404
        assert door.raw(door.request(body, path=named[-1])).status == 200
        assert server.of("ping")[0].target == "/messages?n=1999"
        stay.set()


def test_what_the_server_was_shown_comes_back_in_no_header_and_no_event(tmp_path: Path) -> None:
    def echoing(heard: Heard, wire: Wire) -> None:
        shown = heard.headers["authorization"]
        text = {"content": [{"type": "text", "text": f"you said {shown}"}]}
        wire.json(wire.result(text), X_Echo=shown, X_Other="kept")

    with (
        raw_server({"tools/call": echoing}) as server,
        proxy(
            tmp_path, OBSERVE, url=server.url, options=["--bearer-env", "THE_TOKEN"], env={"THE_TOKEN": SECRET}
        ) as door,
    ):
        answer = door.call("a", Authorization="Bearer of-the-client", Cookie="c=1", Subluminal_Run_Id="r")
        heard = server.of("tools/call")[0].headers
    assert heard["authorization"] == f"Bearer {SECRET}"  # once, and ours
    assert not {"cookie", "subluminal-run-id", "subluminal-token"} & set(heard)
    assert "x-echo" not in answer.headers and answer.header("x-other") == "kept"
    assert SECRET.encode() not in door.events.raw()


def test_no_credential_follows_a_redirect(tmp_path: Path) -> None:
    with raw_server() as elsewhere:

        def redirect(heard: Heard, wire: Wire) -> None:
            wire.head(307, Location=elsewhere.url)

        with (
            raw_server({"*": redirect}) as server,
            proxy(
                tmp_path, OBSERVE, url=server.url, options=["--bearer-env", "THE_TOKEN"], env={"THE_TOKEN": SECRET}
            ) as door,
        ):
            assert door.call("a").status == 502
            assert door.raw(door.request(b"", method="GET", Content_Length=None)).status == 502
        assert elsewhere.heard == []


def test_a_batch_with_white_space_around_it_is_merged_and_recorded(tmp_path: Path) -> None:
    def batch(heard: Heard, wire: Wire) -> None:
        if not isinstance(heard.message, list):
            return well_behaved(heard, wire)
        replies = [{"jsonrpc": "2.0", "id": each["id"], "result": {"content": []}} for each in heard.message]
        return wire.body(b"\n  " + json.dumps(replies, indent=1).encode() + b"\n", Content_Type="application/json")

    deny = {"rule_id": "r", "kind": "deny", "match": {"tool_name": {"glob": ["rm"]}}, "effect": {"action": "BLOCK"}}
    deny["effect"] = {"action": "BLOCK", "reason_code": "NO", "message": "No."}
    with raw_server({"*": batch}) as server, proxy(tmp_path, {**OBSERVE, "rules": [deny]}, url=server.url) as door:
        door.initialize("2025-03-26")
        answer = door.post([call("a", request_id=1), call("rm", request_id=2)])
        assert {reply["id"]: "error" in reply for reply in answer.json()} == {1: False, 2: True}
    assert sorted(statuses(door)) == ["ERROR", "OK"]


# -- the end of the door ------------------------------------------------------------------------------------------


def test_calls_that_are_open_when_the_door_ends_end_in_the_record(tmp_path: Path) -> None:
    def never(heard: Heard, wire: Wire) -> None:
        wire.wait_closed()

    with raw_server({"tools/call": never}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        waiting = [sent(door, call("a", request_id=number)) for number in range(3)]
        waiting += [sent(door, call("a", request_id=number), **STATELESS) for number in range(3)]
        wait_for(lambda: len(server.of("tools/call")) == 6)
    assert statuses(door) == ["CANCELLED"] * 6
    assert [event["run"]["summary"]["calls_total"] for event in door.events.events_of("run_end")] == [6]


def test_a_thousand_silent_streams_leave_room_for_calls(tmp_path: Path) -> None:
    stay = Event()

    def stream(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.send(b": hello\n\n")
        stay.wait(60)

    with raw_server({"GET": stream}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        request = door.request(b"", method="GET", Content_Type=None, Content_Length=None)
        listening = [door.connect() for _ in range(1000)]
        for connection in listening:
            connection.send(request)
        for connection in listening:
            assert connection.head()[0] == 200
        assert door.call("a").status == 200
        for connection in listening:
            connection.close()
        wait_for(lambda: descriptors(door) < 100, what="the descriptors of streams that nobody listens to")
        stay.set()
