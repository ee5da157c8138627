"""A server out of the record: lists in pages, answers byte for byte, and errors where there is no answer."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import Any

from subluminal.runs.replay.answering import METHOD_NOT_FOUND, NOT_ON_RECORD, RecordedServer
from subluminal.runs.replay.picking import Miss, Picked
from subluminal.runs.replay.tape import MAX_RESULT_BYTES, Said, Tape, Taped


def call(raw: bytes | None, *, status: str = "OK", state: str = "whole", action: str = "ALLOW", **more: Any) -> Taped:
    why = (action, None, "X", status)
    made = Taped(0, "c-1", "fs", "read", "h", None, 0, 0, 0, *why, [], state=state, **more)
    made.result = None if raw is None else zlib.compress(raw)
    return made


def asked(server: RecordedServer, method: str, params: Any = None, id: str = "1") -> dict[str, Any]:
    line = json.dumps({"jsonrpc": "2.0", "id": json.loads(id), "method": method, "params": params or {}})
    answer = server.heard(line.encode())
    assert answer is not None
    reply: dict[str, Any] = json.loads(answer)
    return reply


def server_with(*said: tuple[str, Any], calls: tuple[Taped, ...] = ()) -> RecordedServer:
    told = [Said("fs", method, zlib.compress(json.dumps(result).encode())) for method, result in said]
    tape = Tape("run-1", {}, list(calls), [*told, Said("other", "tools/list", zlib.compress(b'{"tools":[7]}'))])
    return RecordedServer(tape.of_server("fs"), "fs", {})


def answered(picked: Picked | None, id: str = "1") -> bytes:
    picks = {} if picked is None else {id.encode(): picked}
    server = RecordedServer(Tape("run-1", {}), "fs", picks)
    answer = server.heard(b'{"id":%b,"method":"tools/call","params":{}}' % id.encode())
    assert answer is not None
    return answer


def test_a_result_goes_out_byte_for_byte_under_the_id_of_the_call() -> None:
    raw = b'{"content":[],  "n":1.50,\n"e":"\\u00e9"}'
    for id in ("7", '"a"', "null"):
        answer = answered(Picked("h", call(raw)), id)
        assert answer == b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id.encode(), raw.replace(b"\n", b" "))


def test_an_error_of_the_server_is_an_error_and_a_failed_tool_a_result() -> None:
    assert json.loads(answered(Picked("h", call(b'{"code":-1,"message":"x"}', status="ERROR"))))["error"]["code"] == -1
    assert json.loads(answered(Picked("h", call(b'{"isError":true,"code":3}', status="ERROR"))))["result"]["isError"]
    assert "result" in json.loads(answered(Picked("h", call(b'{"code":-1,"message":"x"}'))))


def test_what_has_no_answer_on_record_is_said_and_never_empty() -> None:
    cases = [
        (None, "not on record"),
        (Picked("h", miss=Miss("c-9", ["path"])), "Nearest to it is call c-9; it differs in path"),
        (Picked("h", call(None, state="too_large")), "too large to be kept"),
        (Picked("h", call(None, state="no_room")), "no more room"),
        (Picked("h", call(None, state="lost")), "missing from what was kept"),
        (Picked("h", call(None, state="none", action="BLOCK")), "refused when the run was recorded"),
        (Picked("h", call(None, state="none", status="TIMEOUT", error_message="no reply")), "Recorded as TIMEOUT"),
        (Picked("h", call(b"plain text")), "no result of it"),
        (Picked("h", call(b'"text"')), "no result of it"),
    ]
    for picked, says in cases:
        error = json.loads(answered(picked))["error"]
        assert error["code"] == NOT_ON_RECORD and says in error["message"], says
    broken = call(None)
    broken.result = b"not deflated"
    assert json.loads(answered(Picked("h", broken)))["error"]["code"] == NOT_ON_RECORD


def test_lists_come_in_the_pages_in_which_they_came() -> None:
    server = server_with(
        ("tools/list", {"tools": [{"name": "a"}], "nextCursor": "p2"}), ("tools/list", {"tools": [{"name": "b"}]})
    )
    assert asked(server, "tools/list")["result"]["nextCursor"] == "p2"
    assert asked(server, "tools/list", {"cursor": "p2"})["result"] == {"tools": [{"name": "b"}]}
    assert asked(server, "tools/list", {"cursor": "p3"})["result"] == {"tools": []}


def test_what_a_server_said_takes_no_memory_before_it_is_asked_for() -> None:
    page = zlib.compress(b" " * (MAX_RESULT_BYTES - 1))
    tape = Tape("run-1", {}, [], [Said("fs", "tools/list", page)] * 20)
    tracemalloc.start()
    try:
        RecordedServer(tape, "fs", {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_RESULT_BYTES


def test_without_a_list_on_record_the_tools_are_those_that_were_called() -> None:
    server = server_with(calls=(call(b"{}"),))
    assert asked(server, "tools/list")["result"]["tools"] == [{"name": "read", "inputSchema": {"type": "object"}}]
    assert asked(server, "prompts/list")["result"] == {"prompts": []}


def test_the_opening_is_as_it_was_without_what_a_replay_cannot_do() -> None:
    said = {
        "protocolVersion": "2025-03-26",
        "serverInfo": {"name": "real", "version": "3"},
        "instructions": "be nice",
        "capabilities": {"tools": {"listChanged": True}, "resources": {}, "logging": {}},
    }
    result = asked(server_with(("initialize", said)), "initialize", {"protocolVersion": "2025-06-18"})["result"]
    assert result == {**said, "capabilities": {"tools": {}}}
    unsaid = asked(server_with(), "initialize", {"protocolVersion": "2025-06-18"})["result"]
    assert (unsaid["protocolVersion"], unsaid["serverInfo"]["name"]) == ("2025-06-18", "fs")


def test_a_call_that_few_can_read_is_answered_all_the_same() -> None:
    for arguments in (b'{"a":"\\ud800"}', b"[" * 5_000 + b"]" * 5_000):
        line = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":%b}}' % arguments
        answer = server_with().heard(line)
        assert answer is not None and json.loads(answer)["error"]["code"] == NOT_ON_RECORD


def test_other_methods_and_broken_lines() -> None:
    server = server_with()
    assert asked(server, "ping")["result"] == {}
    assert asked(server, "resources/read")["error"]["code"] == METHOD_NOT_FOUND
    assert asked(server, "server/discover")["error"]["code"] == METHOD_NOT_FOUND
    for line in (b"{", b"3", b'{"method":"notifications/initialized"}', b'{"id":1,"result":{}}', b"\xff", b"[]"):
        assert server.heard(line) is None
    batch = server.heard(b'[{"id":1,"method":"ping"},{"method":"x"},{"id":2,"method":"ping"}]')
    assert batch is not None and [each["id"] for each in json.loads(batch)] == [1, 2]
