"""A command behind the HTTP door that dies, hangs, floods, forks or says what it should not."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from harness import fake_server as fake_server_module
from harness.fake_server import fake_server, text_result
from harness.processes import is_alive
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
DENY_RM = {
    "rule_id": "no-rm",
    "kind": "deny",
    "match": {"tool_name": {"glob": ["rm"]}},
    "effect": {"action": "BLOCK", "reason_code": "NO_RM", "message": "Nothing is removed here."},
}
STATELESS = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": "a"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LARGE = 2 * 1024 * 1024


def pids(path: Path) -> list[int]:
    return [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []


def statuses(door: Proxy) -> list[str]:
    return [end["status"] for end in door.events.events_of("tool_call_end")]


def sent(door: Proxy, message: Any, **headers: str | None) -> Connection:
    connection = door.connect()
    connection.send(door.request(json.dumps(message).encode(), **headers))
    return connection


def from_file(place: Path, **script: Any) -> list[str]:
    """A fake server whose script is too long for a command line."""
    (place / "script").write_text(json.dumps(script))
    return [sys.executable, "-S", "-E", fake_server_module.__file__, "--script", f"@{place / 'script'}"]


def descriptors(door: Proxy) -> int:
    return len(os.listdir(f"/proc/{door.process.pid}/fd"))


# -- what is sent to it -------------------------------------------------------------------------------------------


def test_a_large_message_is_not_lost_while_the_server_starts_and_leaves_nothing_open(tmp_path: Path) -> None:
    command = fake_server(tools={"a": {"echo": True}}, start_delay_ms=300)
    with proxy(tmp_path, OBSERVE, command=command) as door:
        before = 0
        for number in range(4):
            answer = door.call("a", {"text": "x" * LARGE}, number, **STATELESS)
            assert json.loads(answer.text)["args_bytes"] > LARGE
            before = before or descriptors(door)
        wait_for(lambda: descriptors(door) <= before, what="the files of large messages to be closed")
    assert statuses(door) == ["OK"] * 4


def test_one_message_is_one_line_whatever_is_in_it_where_nothing_is_refused(tmp_path: Path) -> None:
    watch = {**OBSERVE, "mode": "observe"}
    record = tmp_path / "record"
    with proxy(tmp_path, watch, command=fake_server(tools={"*": {}}, record=str(record), split_on_cr=True)) as door:
        door.initialize()
        one, two = (json.dumps(call("a", request_id=number)).encode() for number in (5, 6))
        bodies = [one + b"\n" + two, one + b"\r" + two, one + b"\r\n\r\n" + two, b"\n" * 10 + one]
        connections = [door.connect() for _ in bodies]
        for connection, body in zip(connections, bodies, strict=True):
            connection.send(door.request(body))
        wait_for(lambda: record.read_bytes().count(b"\n") == 2 + len(bodies), what="the lines")
        for connection in connections:
            connection.close()
    assert b"\r" not in record.read_bytes()


def test_a_server_that_does_not_read_makes_its_client_wait_and_nobody_else(tmp_path: Path) -> None:
    stuck = ["sh", "-c", "exec sleep 600"]
    with proxy(tmp_path, OBSERVE, command=stuck) as door:
        message = call("a", {"text": "x" * 900_000})
        message["params"]["_meta"] = META
        waiting = [sent(door, message, **STATELESS) for message["id"] in range(12)]
        answer = wait_for(
            lambda: door.call("a", request_id=99, **STATELESS), enough=lambda answer: answer.status == 503
        )
        assert "does not read" in answer.error["message"]
        for connection in waiting:
            connection.close()
    assert set(statuses(door)) == {"CANCELLED"}


# -- what it says -------------------------------------------------------------------------------------------------


def test_refused_calls_of_a_batch_are_answered_with_the_others_however_the_server_answers(tmp_path: Path) -> None:
    alone = {"jsonrpc": "2.0", "id": 1, "result": text_result("ok")}
    script = f"""
import sys, json
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, list) or "id" in asked:
        print(json.dumps({alone!r} | ({{}} if isinstance(asked, list) else {{"id": asked["id"]}})), flush=True)
"""
    policy = {**OBSERVE, "rules": [DENY_RM]}
    batch = [call("a", request_id=1), call("rm", request_id=2), call("rm", request_id=3)]
    for place, command in (("fake", fake_server(tools={"*": {}})), ("script", [sys.executable, "-c", script])):
        (tmp_path / place).mkdir()
        with proxy(tmp_path / place, policy, command=command) as door:
            door.initialize()
            answer = door.post(batch)
            assert {reply["id"]: "error" in reply for reply in answer.json()} == {1: False, 2: True, 3: True}
        assert sorted(statuses(door)) == ["ERROR", "ERROR", "OK"]


def test_replies_to_several_requests_in_one_array_each_find_their_own(tmp_path: Path) -> None:
    both = [{"jsonrpc": "2.0", "id": number, "result": text_result(str(number))} for number in (1, 2)]
    tools = {"a": {"never": True}, "b": {"never": True, "raw": json.dumps(both) + "\n"}}
    with proxy(tmp_path, OBSERVE, command=fake_server(tools=tools)) as door:
        door.initialize()
        first = sent(door, call("a", request_id=1))
        door.events.wait_type("tool_call_start")
        second = sent(door, call("b", request_id=2))
        assert "1" in json.dumps(first.answer().json()) and "2" in json.dumps(second.answer().json())
    assert statuses(door) == ["OK", "OK"]


def test_a_request_of_the_server_with_the_id_of_a_call_is_no_answer_however_large(tmp_path: Path) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"text": "x" * LARGE}}
    small = {**request, "params": {}}
    tools = {"a": {"raw": json.dumps(request) + "\n" + json.dumps(small) + "\n", "delay_ms": 1}}
    with proxy(tmp_path, OBSERVE, command=from_file(tmp_path, tools=tools)) as door:
        door.initialize()
        answer = door.call("a", request_id=1)
        assert answer.events()[-1]["result"]["content"][0]["text"] == "ok"
    assert statuses(door) == ["OK"]


def test_a_reader_that_leaves_in_the_middle_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    notes = [{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 60_000}}] * 64
    with proxy(tmp_path, OBSERVE, command=from_file(tmp_path, tools={"loud": {"notify": notes}, "*": {}})) as door:
        door.initialize()
        listening = door.connect()
        listening.send(door.request(b"", method="GET", Content_Type=None, Content_Length=None))
        listening.head()
        loud = [sent(door, call("loud", request_id=f"loud {number}")) for number in range(4)]
        wait_for(lambda: len(door.events.events_of("tool_call_start")) == 4)
        listening.close()
        loud.clear()
        assert door.call("b", request_id=2).json()["result"]


def test_a_server_that_floods_stderr_holds_nobody_up_though_nobody_reads_it(tmp_path: Path) -> None:
    command = fake_server(tools={"a": {"stderr_bytes": 4 * 1024 * 1024}})
    read_end, write_end = os.pipe()
    try:
        with proxy(tmp_path, OBSERVE, command=command, stderr=write_end) as door:
            door.initialize()
            assert door.call("a").text == "ok"
    finally:
        os.close(read_end)
        os.close(write_end)


# -- its end ------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_while_its_child_holds_its_streams_is_noticed(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    command = fake_server(
        tools={"a": {"crash": {"exit": 3}}}, pid_file=str(noted), grandchildren={"count": 1, "ignore_signals": True}
    )
    with proxy(tmp_path, OBSERVE, command=command) as door:
        door.initialize()
        answer = door.call("a")
        assert answer.status == 502 and "ended (3)" in answer.error["message"]
        wait_for(lambda: not any(map(is_alive, pids(noted))), what="the end of the whole group")
        assert door.call("a", request_id=2).status == 404  # so the client begins another session
    assert statuses(door) == ["ERROR"]


def test_nothing_stays_behind_of_servers_that_ignore_every_signal(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    command = fake_server(
        tools={"*": {"never": True}},
        pid_file=str(noted),
        ignore=["SIGTERM", "EOF"],
        grandchildren={"count": 1, "ignore_signals": True},
    )
    with proxy(tmp_path, OBSERVE, command=command) as door:
        waiting = []
        for number in range(3):
            door.session = None
            door.initialize()
            waiting.append(sent(door, call("a", request_id=number)))
        wait_for(lambda: len(door.events.events_of("tool_call_start")) == 3)
        assert len(pids(noted)) == 6
    assert not any(map(is_alive, pids(noted)))
    assert statuses(door) == ["CANCELLED"] * 3
    assert [event["run"]["summary"]["calls_total"] for event in door.events.events_of("run_end")] == [3]


def test_nothing_stays_behind_of_a_door_that_is_killed(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    with proxy(tmp_path, OBSERVE, command=fake_server(tools={"*": {}}, pid_file=str(noted))) as door:
        idle = [door.connect() for _ in range(300)]  # so that descriptors above the usual ones are inherited
        for _ in range(2):
            door.session = None
            door.initialize()
        assert len(pids(noted)) == 2
        door.process.send_signal(signal.SIGKILL)
        door.process.wait()
        wait_for(lambda: not any(map(is_alive, pids(noted))), what="the end of the servers")
        assert all(connection.at_end() for connection in idle)
        door.expected_status = -signal.SIGKILL


def test_a_watchdog_holds_no_connection_of_a_client(tmp_path: Path) -> None:
    with proxy(tmp_path, OBSERVE, command=fake_server(tools={"*": {}})) as door:
        many = [door.connect() for _ in range(300)]
        for connection in many:
            connection.send(door.request(b"", method="DELETE", Connection="close", Content_Type=None))
        late = door.connect()
        late.send(door.request(json.dumps(call("a")).encode(), Connection="close"))  # a watchdog begins here
        late.answer()
        assert late.at_end()
        for connection in many:
            connection.answer()
            assert connection.at_end()


# -- sessions -----------------------------------------------------------------------------------------------------


def test_many_sessions_are_bounded_and_the_idle_ones_go(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    with proxy(tmp_path, OBSERVE, command=fake_server(tools={"*": {}}, pid_file=str(noted))) as door:
        sessions = []
        for _ in range(66):
            door.session = None
            answer = door.initialize()
            assert answer.status == 200, answer.body
            sessions.append(door.session)
        assert door.call("a", Mcp_Session_Id=sessions[0]).status == 404
        assert door.call("a", Mcp_Session_Id=sessions[-1]).status == 200
        wait_for(lambda: sum(map(is_alive, pids(noted))) <= 64, what="the end of the oldest")


def test_a_session_is_of_no_use_to_another_run(tmp_path: Path) -> None:
    with proxy(tmp_path, OBSERVE, command=fake_server(tools={"*": {}})) as door:
        door.initialize(Subluminal_Run_Id="one")
        assert door.call("a", Subluminal_Run_Id="one").status == 200
        assert door.call("a", Subluminal_Run_Id="two").status == 404
        assert door.raw(door.request(b"", method="DELETE", Subluminal_Run_Id="two")).status == 404
        listening = door.connect()
        listening.send(
            door.request(b"", method="GET", Mcp_Session_Id=None, Content_Length=None, Subluminal_Run_Id="one")
        )
        listening.head()
        address = listening.read_chunk().decode().partition("data: ")[2].strip()
        body = json.dumps(call("a")).encode()
        assert door.raw(door.request(body, path=address, Subluminal_Run_Id="two")).status == 404
        assert door.raw(door.request(body, path=address, Subluminal_Run_Id="one")).status == 202
        assert json.loads(listening.read_chunk().partition(b"data: ")[2])["id"] == 1


def test_one_id_twice_in_a_session_is_refused_and_in_two_sessions_it_is_not(tmp_path: Path) -> None:
    with proxy(
        tmp_path, OBSERVE, command=fake_server(tools={"a": {"hold_until": 1, "delay_ms": 400}, "*": {}})
    ) as door:
        door.initialize()
        first = sent(door, call("a", request_id=7))
        door.events.wait_type("tool_call_start")
        assert door.call("b", request_id=7).error["code"] == -32081
        door.session = None
        door.initialize()
        assert door.call("b", request_id=7).text == "ok"
        assert first.answer().text == "ok"
