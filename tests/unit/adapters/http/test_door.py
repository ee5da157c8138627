"""Sessions, streams and faults through the HTTP door, in front of a server that says exactly what a test wants."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from harness.http_servers import Heard, Wire, raw_server, sdk_server, well_behaved
from harness.ports import nobody_listens
from harness.proxy import Proxy, call, proxy
from harness.waiting import wait_for
from subluminal.host.run.state import SharedState

OBSERVE: dict[str, Any] = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [],
}
DENY_RM = {
    "rule_id": "no-rm",
    "kind": "deny",
    "match": {"tool_name": {"glob": ["rm"]}},
    "effect": {"action": "BLOCK", "reason_code": "NO_RM", "message": "Nothing is removed here."},
}
BUDGET = {
    "rule_id": "two",
    "kind": "budget",
    "match": {},
    "effect": {"budget": {"scope": "run", "limit_calls": 2, "on_exceed": "BLOCK", "hint_text": "Two are enough."}},
}


def with_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {**OBSERVE, "rules": list(rules)}


def ends(door: Proxy) -> list[dict[str, Any]]:
    return list(door.events.events_of("tool_call_end"))


def statuses(door: Proxy) -> list[str]:
    return [end["status"] for end in ends(door)]


# -- what passes --------------------------------------------------------------------------------------------------


def test_what_was_judged_is_what_is_forwarded_byte_for_byte(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        body = b'{ "jsonrpc":"2.0",\n "id" : 1.50, "method":"tools/call", "params":{"name":"a","arguments":{"x": 1e2}}}'
        answer = door.post(
            body, X_Custom="kept", Cookie="secret", Subluminal_Agent_Id="me", Origin=f"http://127.0.0.1:{door.port}"
        )
        heard = server.of("tools/call")[-1]
    assert heard.body == body
    assert answer.status == 200 and b"1.50" not in answer.body  # the server's own answer, as it wrote it
    assert heard.headers["x-custom"] == "kept"
    assert heard.headers["host"] == server.origin.partition("://")[2]
    assert heard.headers["accept-encoding"] == "identity"
    assert not {"cookie", "origin", "subluminal-agent-id"} & set(heard.headers)
    assert [event["agent_id"] for event in door.events.events_of("tool_call_start")] == ["me"]
    assert [event["call"]["transport"] for event in door.events.events_of("tool_call_start")] == ["mcp_http"]


def test_whoever_hears_an_answer_finds_its_decision_on_record_however_many_come_at_once(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door:
        door.initialize()
        connections = [door.connect() for _ in range(24)]
        for _ in range(3):
            for number, connection in enumerate(connections):
                message = call("rm" if number % 4 == 3 else "a", {"n": number})
                connection.send(door.request(json.dumps(message).encode()))
            for number, connection in enumerate(connections):
                answer = connection.answer().json()
                started = {
                    json.loads(event["call"]["preview"]["args_preview"])["n"]: event["call"]["call_id"]
                    for event in door.events.events_of("tool_call_start")
                }
                decided = {
                    event["call"]["call_id"]: event["decision"]["action"]
                    for event in door.events.events_of("tool_call_decision")
                }
                assert decided[started[number]] == ("BLOCK" if "error" in answer else "ALLOW")
        for connection in connections:
            connection.close()
        told = {name: value for name, value in call("rm").items() if name != "id"}
        assert door.post(told).status == 400
        assert [event["decision"]["action"] for event in door.events.events_of("tool_call_decision")][72:] == ["BLOCK"]
    assert len(ends(door)) == 73


@pytest.mark.parametrize("last", [9, 40, 75])
def test_killed_among_many_every_call_that_went_on_is_charged_and_every_answer_on_record(
    tmp_path: Path, last: int
) -> None:
    doors: list[Proxy] = []

    def killing(heard: Heard, wire: Wire) -> None:
        if len(server.of("tools/call")) >= last:
            doors[0].process.kill()
        well_behaved(heard, wire)

    budget = {"budget": {"scope": "run", "limit_calls": 10_000, "on_exceed": "BLOCK"}}
    many = with_rules({**BUDGET, "effect": budget}, DENY_RM)
    with raw_server({"tools/call": killing}) as server, proxy(tmp_path, many, url=server.url) as door:
        doors.append(door)
        door.expected_status = -signal.SIGKILL
        door.initialize()
        connections = [door.connect() for _ in range(24)]
        sent, answered = 0, set()
        try:
            while True:
                first = sent
                for connection in connections:
                    connection.send(door.request(json.dumps(call("a", {"n": sent}, sent)).encode()))
                    sent += 1
                for number, connection in enumerate(connections, first):
                    assert connection.answer().json()["id"] == number
                    answered.add(number)
        except (OSError, ValueError):  # it is dead
            pass
        door.process.wait()
        wait_for(lambda: server.open_connections == 0, what="the server to have heard all that was sent")
        heard = len(server.of("tools/call"))
        starts = list(door.events.events_of("tool_call_start"))
        state = SharedState.open(starts[0]["run_id"], str(tmp_path / "sub" / "run"))
        assert last <= heard < state.next_seq() <= sent + 1
    decided = {event["call"]["call_id"] for event in door.events.events_of("tool_call_decision")}
    on_record = {
        json.loads(start["call"]["preview"]["args_preview"])["n"]
        for start in starts
        if start["call"]["call_id"] in decided
    }
    assert answered <= on_record


def test_a_session_is_the_servers_own(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        assert door.initialize().header("mcp-session-id") == "session-1"
        door.call("a")
        assert server.of("tools/call")[0].headers["mcp-session-id"] == "session-1"
        ended = door.raw(door.request(b"", method="DELETE"))
        assert ended.status == 200 and server.heard[-1].method == "DELETE"


def test_events_pass_as_bytes_and_are_read_on_the_way(tmp_path: Path) -> None:
    priming = b": hello\n\nid: 7\r\nretry: 10\r\ndata:\r\n\r\n"
    raw = priming + b'event: message\nid: 8\ndata: {"jsonrpc":"2.0",\ndata: "method":"notifications/x"}\n\n'

    def streamed(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.send(raw)
        wire.event(wire.result({"content": []}), id=9)

    with raw_server({"tools/call": streamed}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        answer = door.call("a")
    assert answer.body.startswith(raw) and answer.body.count(b"data: {") == 2
    assert answer.header("content-type") == "text/event-stream"
    assert statuses(door) == ["OK"]


def test_a_refused_call_of_a_batch_is_answered_with_the_others(tmp_path: Path) -> None:
    def batch(heard: Heard, wire: Wire) -> None:
        if not isinstance(heard.message, list):
            return well_behaved(heard, wire)
        return wire.json([{"jsonrpc": "2.0", "id": each["id"], "result": {"content": []}} for each in heard.message])

    with raw_server({"*": batch}) as server, proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door:
        door.initialize("2025-03-26")
        answer = door.post([call("a", request_id=1), call("rm", request_id=2), call("b", request_id=3)])
        refused = door.post([call("rm", request_id=4), call("rm", request_id=5)])
        (heard,) = [each for each in server.heard if isinstance(each.message, list)]
    assert [each["params"]["name"] for each in heard.message] == ["a", "b"]
    assert {reply["id"]: "error" in reply for reply in answer.json()} == {1: False, 2: True, 3: False}
    assert [reply["id"] for reply in refused.json()] == [4, 5]
    assert sorted(statuses(door)) == ["ERROR", "ERROR", "ERROR", "OK", "OK"]


def test_an_answer_to_a_request_of_the_server_is_no_call(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door:
        door.initialize()
        assert door.post({"jsonrpc": "2.0", "id": "s-1", "result": {"name": "rm"}}).status == 202
        assert server.heard[-1].message["id"] == "s-1"
    assert ends(door) == []


def test_the_error_by_which_clients_choose_an_era_passes_unchanged(tmp_path: Path) -> None:
    body = {"jsonrpc": "2.0", "id": 5, "error": {"code": -32601, "message": "no such method", "data": {"x": 1}}}

    def discover(heard: Heard, wire: Wire) -> None:
        wire.json(body, 404)

    with raw_server({"server/discover": discover}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        answer = door.post({"jsonrpc": "2.0", "id": 5, "method": "server/discover"})
    assert (answer.status, answer.json()) == (404, body)


# -- streams ------------------------------------------------------------------------------------------------------


def test_the_reply_to_a_cut_stream_comes_on_another_and_the_call_is_one(tmp_path: Path) -> None:
    def cut(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.event("", id="e1", retry=5)

    def resumed(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.event({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}, id="e2")

    with (
        raw_server({"tools/call": cut, "GET": resumed}) as server,
        proxy(tmp_path, OBSERVE, url=server.url) as door,
    ):
        door.initialize("2025-11-25")
        assert b"id: e1" in door.call("a").body
        answer = door.raw(door.request(b"", method="GET", Content_Type=None, Content_Length=None, Last_Event_ID="e1"))
        assert answer.events()[0]["id"] == 1
        assert server.of("GET")[0].headers["last-event-id"] == "e1"
    assert statuses(door) == ["OK"]


def test_the_first_bytes_of_an_event_do_not_wait_for_the_next(tmp_path: Path) -> None:
    seen = Event()

    def slow(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.event({"jsonrpc": "2.0", "method": "notifications/x"})
        assert seen.wait(20)
        wire.event(wire.result({"content": []}))

    with raw_server({"tools/call": slow}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        connection = door.connect()
        connection.send(door.request(json.dumps(call("a")).encode()))
        connection.head()
        assert b"notifications/x" in connection.read_chunk()
        seen.set()
        assert b"result" in connection.read_chunk()
        connection.close()


def test_the_address_of_the_old_transport_is_ours_and_leads_to_the_servers(tmp_path: Path) -> None:
    posted: list[Heard] = []
    reply = Event()

    def stream(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.send(b"event: endpoint\ndata: /messages?session=s%2F1\n\n")
        assert reply.wait(20)
        wire.event({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})

    def message(heard: Heard, wire: Wire) -> None:
        posted.append(heard)
        wire.body(b"Accepted", 202)
        reply.set()

    with (
        raw_server({"GET": stream, "tools/call": message}, "/sse") as server,
        proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door,
    ):
        listening = door.connect()
        listening.send(door.request(b"", method="GET", Content_Type=None, Content_Length=None))
        listening.head()
        address = listening.read_chunk().decode().partition("data: ")[2].strip()
        assert address.startswith(f"{door.path}/messages/") and "session" not in address
        refused = door.raw(door.request(json.dumps(call("rm", request_id=9)).encode(), path=address))
        assert refused.error["code"] == -32081
        assert door.raw(door.request(json.dumps(call("a")).encode(), path=address)).status == 202
        assert json.loads(listening.read_chunk().partition(b"data: ")[2])["id"] == 1
        listening.close()
        wait_for(lambda: door.raw(door.request(b"{}", path=address)).status == 404)
    assert [heard.target for heard in posted] == ["/messages?session=s%2F1"]
    assert sorted(statuses(door)) == ["ERROR", "OK"]


# -- faults -------------------------------------------------------------------------------------------------------


def test_a_server_that_cannot_be_reached_is_a_502_with_an_error(tmp_path: Path) -> None:
    with nobody_listens() as port, proxy(tmp_path, OBSERVE, url=f"http://127.0.0.1:{port}/mcp") as door:
        answer = door.call("a")
    assert answer.status == 502
    assert "no connection to http://127.0.0.1" in answer.error["message"] and answer.json()["id"] == 1
    (end,) = ends(door)
    assert (end["status"], end["error"]["class"]) == ("ERROR", "transport")


FAULTY: dict[str, tuple[Callable[[Heard, Wire], None], str]] = {
    "closes": (lambda heard, wire: wire.connection.shutdown(2), "without an answer"),
    "redirects": (lambda heard, wire: wire.head(307, Location="http://evil.example/"), "redirects"),
    "encodes": (
        lambda heard, wire: wire.body(b"x", Content_Encoding="gzip", Content_Type="application/json"),
        "encoded",
    ),
    "garbage": (lambda heard, wire: wire.send(b"hello\r\n\r\n"), "not understood"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_an_answer_that_cannot_be_passed_on_is_a_502(tmp_path: Path, name: str) -> None:
    handler, words = FAULTY[name]
    with raw_server({"tools/call": handler}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        answer = door.call("a")
        assert door.call("a", request_id=2).status == 502  # and the door goes on
    assert answer.status == 502 and words in answer.error["message"]
    assert statuses(door) == ["ERROR", "ERROR"]


def test_a_client_that_leaves_is_a_cancel_in_the_stateless_revision_only(tmp_path: Path) -> None:
    def hang(heard: Heard, wire: Wire) -> None:
        wire.wait_closed()

    with raw_server({"tools/call": hang}) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        connection = door.connect()
        body = json.dumps(call("a")).encode()
        headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": "a"}
        connection.send(door.request(body, **headers))
        wait_for(lambda: len(server.of("tools/call")) == 1)
        connection.close()
        assert server.hung_up.wait(20)
        wait_for(lambda: statuses(door) == ["CANCELLED"])


def test_a_call_that_is_repeated_after_a_404_is_one_call_and_charged_once(tmp_path: Path) -> None:
    forgotten = ["session-1"]

    def forgetful(heard: Heard, wire: Wire) -> None:
        if heard.headers.get("mcp-session-id") in forgotten:
            wire.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, 404)
        else:
            well_behaved(heard, wire)

    with (
        raw_server({"tools/call": forgetful}) as server,
        proxy(tmp_path, with_rules(BUDGET), url=server.url) as door,
    ):
        door.initialize()
        params = {"name": "a", "arguments": {"x": 1}, "_meta": {"claudecode/toolUseId": "toolu_1"}}
        message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
        assert door.post(message).status == 404
        forgotten.clear()
        assert door.post({**message, "id": 4}).status == 200
        assert door.call("b", request_id=5).status == 200
        assert "error" in door.call("c", request_id=6).json()  # two were charged, not three
    assert statuses(door) == ["OK", "OK", "ERROR"]
    assert len({event["call"]["call_id"] for event in door.events.events_of("tool_call_start")}) == 3


def test_the_words_of_a_challenge_name_us_and_nothing_else_changes(tmp_path: Path) -> None:
    challenge = (
        'Bearer error="insufficient_scope", scope="a b", resource_metadata="https://up.example/.well-known/x", x=1'
    )

    def challenged(heard: Heard, wire: Wire) -> None:
        wire.body(b"", 401, WWW_Authenticate=challenge)

    with (
        raw_server({"initialize": challenged}) as server,
        proxy(tmp_path, OBSERVE, url=server.url, options=["--public-url", "https://tools.example/sub"]) as door,
    ):
        answer = door.raw(door.request(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize"}).encode()))
    assert answer.status == 401
    ours = "https://tools.example/.well-known/oauth-protected-resource/sub/mcp/linear"
    assert answer.header("www-authenticate") == challenge.replace("https://up.example/.well-known/x", ours)


# -- many runs ----------------------------------------------------------------------------------------------------


def test_each_run_has_its_own_budget(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, with_rules(BUDGET), url=server.url) as door:
        for run in ("one", "two"):
            outcomes = ["result" in door.call("a", {"n": n}, n, Subluminal_Run_Id=run).json() for n in range(3)]
            assert outcomes == [True, True, False]
    assert {event["run_id"] for event in door.events.events_of("run_end")} == {"one", "two"}


def test_large_messages_pass_both_ways_and_are_judged(tmp_path: Path) -> None:
    size = 3 * 1024 * 1024
    with sdk_server(json=True) as server, proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door:
        door.initialize()
        assert door.call("size_of", {"text": "x" * size}).text == str(size)
        assert len(door.call("big", {"size": size}).text) == size
        hidden = json.dumps({**call("rm", {"text": "x" * size}), "z": 1}).encode()
        assert door.post(hidden).error["code"] == -32081
    assert statuses(door) == ["OK", "OK", "ERROR"]


# -- requests that look alike ---------------------------------------------------------------------------------------


def test_a_request_is_judged_by_its_own_head_and_body_however_like_the_one_before_it(tmp_path: Path) -> None:
    """On one connection, after a request that was admitted: each is what it would be on a connection of its own."""
    with raw_server() as server, proxy(tmp_path, with_rules(DENY_RM), url=server.url) as door:
        door.initialize()
        connection = door.connect()

        def ask(name: str, **headers: str | None) -> Any:
            connection.send(door.request(json.dumps(call(name, {"text": "x" * len(name)})).encode(), **headers))
            return connection.answer()

        allowed = [ask(name) for name in ("a", "a", "abc", "a")]
        refused = ask("rm")
        again = ask("ab")
        foreign = [ask("a", Host="evil.example"), ask("a", Origin="http://evil.example")]
        typed = ask("a", Content_Type="text/plain")
        mixed = ask("a", Mcp_Method="tools/list")
        last = ask("abcd", X_Custom="1")
        connection.close()
        heard = server.of("tools/call")
    assert [answer.status for answer in (*allowed, again, last)] == [200] * 6
    assert refused.error["code"] == -32081
    assert [answer.status for answer in (*foreign, typed)] == [403, 403, 415]
    assert "error" in mixed.json()
    assert [json.loads(each.body)["params"]["name"] for each in heard] == ["a", "a", "abc", "a", "ab", "abcd"]
    assert [int(each.headers["content-length"]) for each in heard] == [len(each.body) for each in heard]
    assert ["x-custom" in each.headers for each in heard] == [False] * 5 + [True]
    assert len(door.events.events_of("tool_call_start")) == 8


def test_answers_that_look_alike_are_each_their_own(tmp_path: Path) -> None:
    with sdk_server(json=True) as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        door.initialize()
        connection = door.connect()
        answers = []
        for text in ("a", "b", "ccc", "ccc", "a" * 500):
            connection.send(door.request(json.dumps(call("echo", {"text": text})).encode()))
            answers.append(connection.answer())
        connection.close()
    assert [answer.text for answer in answers] == ["a", "b", "ccc", "ccc", "a" * 500]
    assert statuses(door) == ["OK"] * 5
