"""Whatever a server could read as a tool call, the door has judged; what has two readings goes no further.

Every request here would run `danger` on at least one real server if it were passed on (or is the plain one beside it):
both SDKs behind a URL, and a command whose reader ends lines at CR and folds the case of keys.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.fake_server import fake_server, text_result
from harness.http_servers import sdk_server, typescript_server
from harness.proxy import Proxy, call, proxy

POLICY = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-echo",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["echo"]}},
            "effect": {"action": "BLOCK", "reason_code": "NOT_HERE", "message": "echo is not for you."},
        }
    ],
}
DANGER = json.dumps(call("echo", {"text": "smuggled"})).encode()
PLAIN = json.dumps(call("what_ran")).encode()


@pytest.fixture(scope="module", params=["python", "typescript", "command"])
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Where the server is, as `proxy` wants it; `executed` is where a command says what it ran."""
    with ExitStack() as stack:
        if request.param == "python":
            yield {"url": stack.enter_context(sdk_server(json=True)).url}
        elif request.param == "typescript":
            yield {"url": stack.enter_context(typescript_server()) + "/mcp"}
        else:
            executed = tmp_path_factory.mktemp("command") / "executed"
            yield {"command": lenient_command(executed), "executed": executed}


def lenient_command(executed: Path) -> list[str]:
    tools = {"echo": {"echo_args": True}, "what_ran": {"result": text_result("[]")}, "*": {}}
    return fake_server(tools=tools, executed=str(executed), parser="fold", split_on_cr=True)


@pytest.fixture(scope="module")
def door(behind: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    where = {name: value for name, value in behind.items() if name != "executed"}
    with proxy(tmp_path_factory.mktemp("door"), POLICY, **where) as running:
        running.initialize()
        yield running


@pytest.fixture
def has_run(behind: dict[str, Any], door: Proxy) -> Callable[[], list[str]]:
    """The arguments or names of `danger` that were carried out."""
    if "executed" not in behind:
        return lambda: list(json.loads(door.call("what_ran").text))
    door.call("what_ran")  # what came before it has been read by then
    lines = behind["executed"].read_text().splitlines()
    return lambda: [line for line in lines if json.loads(line)["tool"] == "echo"]


@pytest.fixture(autouse=True)
def nothing_ran(has_run: Callable[[], list[str]]) -> Iterator[None]:
    yield
    assert has_run() == []


def test_the_plain_call_is_refused_and_another_is_not(door: Proxy) -> None:
    answer = door.post(DANGER)
    assert answer.status == 200
    assert answer.error["code"] == -32081
    assert "echo is not for you." in answer.error["message"]
    assert door.call("what_ran").text == "[]"


BODIES = {
    "duplicate name": DANGER.replace(b'"name": "echo"', b'"name": "what_ran", "name": "echo"'),
    "duplicate name, first": DANGER.replace(b'"name": "echo"', b'"name": "echo", "name": "what_ran"'),
    "case": DANGER.replace(b'"name"', b'"Name"'),
    "batch": b"[" + DANGER + b"]",
    "batch, second": b"[" + PLAIN + b"," + DANGER.replace(b'"id": 1', b'"id": 2') + b"]",
    "byte order mark": b"\xef\xbb\xbf" + DANGER,
    "utf-16": DANGER.decode().encode("utf-16"),
    "trailing": DANGER + b"x",
    "two": PLAIN + DANGER,
    "two lines": PLAIN + b"\n" + DANGER,
    "nul": DANGER + b"\0",
    "escaped name": DANGER.replace(b'"name": "echo"', b'"name": "\\u0065cho"'),
    "escaped key": DANGER.replace(b'"name"', b'"n\\u0061me"'),
    "escaped method": DANGER.replace(b'"tools/call"', b'"tools\\/call"'),
    "a line within a text": DANGER.replace(b"smuggled", b"a\n" + DANGER.replace(b'"', b'\\"')),
    "a line of its own": b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"x":"\r\n' + DANGER + b'\r\n"}}',
    "a line between members": PLAIN[:-1] + b"\n" + DANGER + b"\n}",
    "a carriage return": PLAIN + b"\r" + DANGER,
    "a form feed": PLAIN + b"\x0c" + DANGER,
    "a line separator": PLAIN + "\u2028".encode() + DANGER,
    "a nested batch": b"[[" + DANGER + b"]]",
    "a batch in a batch": b"[" + PLAIN + b",[" + DANGER + b"]]",
    "a batch with trailing bytes": b"[" + PLAIN + b"]" + DANGER,
    "a batch of notifications": b"[" + DANGER.replace(b'"id": 1, ', b"") * 1 + b"]",
    "one id twice in a batch": b"[" + PLAIN + b"," + DANGER + b"]",
    "a call inside a call": DANGER.replace(
        b'"name": "echo"', b'"name": "what_ran", "x": {"name": "echo"}, "name": "echo"'
    ),
    "a null id": DANGER.replace(b'"id": 1', b'"id": null'),
    "an object as id": DANGER.replace(b'"id": 1', b'"id": {}'),
    "a result beside a method": DANGER[:-1] + b', "result": {}}',
    "an error beside a method": DANGER[:-1] + b', "error": {}}',
    "two methods": DANGER.replace(b'"method"', b'"method": "ping", "method"'),
    "pretty": json.dumps(json.loads(DANGER), indent=2).encode(),
    "no id": DANGER.replace(b'"id": 1, ', b""),
}


# Where the plain call runs, and only that.
PARTLY = ("batch, second", "a batch in a batch", "one id twice in a batch")


@pytest.mark.parametrize("name", BODIES)
def test_bodies(door: Proxy, name: str) -> None:
    answer = door.post(BODIES[name])
    assert answer.status in (200, 400, 502)
    if answer.status == 200 and name not in PARTLY:
        replies = answer.json() if isinstance(answer.json(), list) else [answer.json()]
        assert all("error" in reply for reply in replies)


HEADERS: dict[str, tuple[dict[str, Any], bytes, set[int]]] = {
    "gzip": ({"Content_Encoding": "gzip"}, gzip.compress(DANGER), {415}),
    "deflate": ({"Content_Encoding": "deflate"}, zlib.compress(DANGER), {415}),
    "identity, gzip": ({"Content_Encoding": "identity, gzip"}, gzip.compress(DANGER), {415}),
    "utf-16": ({"Content_Type": "application/json; charset=utf-16"}, DANGER.decode().encode("utf-16"), {415}),
    "two types in one": ({"Content_Type": "application/json, text/plain"}, DANGER, {415}),
    "another type": ({"Content_Type": "text/plain"}, DANGER, {415}),
    "no type": ({"Content_Type": None}, DANGER, {415}),
    "foreign host": ({"Host": "evil.example"}, DANGER, {403}),
    "no host": ({"Host": None}, DANGER, {400}),
    "foreign origin": ({"Origin": "http://evil.example"}, DANGER, {403}),
    "null origin": ({"Origin": "null"}, DANGER, {403}),
    "a host with a dot": ({"Host": "localhost.:{port}"}, DANGER, {403}),
    "a host without its port": ({"Host": "127.0.0.1"}, DANGER, {403}),
    "a host with another port": ({"Host": "127.0.0.1:1"}, DANGER, {403}),
    "a host in other digits": ({"Host": "2130706433:{port}"}, DANGER, {403}),
    "a host as IPv6": ({"Host": "[::ffff:127.0.0.1]:{port}"}, DANGER, {403}),
    "a host with a user": ({"Host": "evil@127.0.0.1:{port}"}, DANGER, {403}),
    "an origin with a path": ({"Origin": "http://127.0.0.1:{port}/"}, DANGER, {403}),
    "an origin of another scheme": ({"Origin": "https://127.0.0.1:{port}"}, DANGER, {403}),
    "an origin without a port": ({"Origin": "http://localhost"}, DANGER, {403}),
    "an empty origin": ({"Origin": ""}, DANGER, {403}),
    "two origins in one": ({"Origin": "http://127.0.0.1:{port}, http://evil.example"}, DANGER, {403}),
    "a type that is dropped": ({"Connection": "Content-Type"}, DANGER, {400}),
    "a session that is dropped": ({"Connection": "keep-alive, Mcp-Session-Id"}, DANGER, {400}),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(door: Proxy, name: str) -> None:
    headers, body, statuses = HEADERS[name]
    headers = {key: value and value.replace("{port}", str(door.port)) for key, value in headers.items()}
    assert door.post(body, **headers).status in statuses


def test_a_web_page_elsewhere_is_not_even_told_what_it_may_ask(door: Proxy) -> None:
    asked = {"Origin": "http://evil.example", "Access_Control_Request_Method": "POST"}
    answer = door.raw(door.request(b"", method="OPTIONS", **asked))
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_second_name_in_the_last_bytes_of_a_large_body_is_found(door: Proxy) -> None:
    padding = b'"' + b"x" * (2 * 1024 * 1024) + b'"'
    large = PLAIN.replace(b'"arguments": {}', b'"arguments": {"text": ' + padding + b'}, "name": "echo"')
    assert large.count(b'"name"') == 2
    assert door.post(large).error["code"] == -32081
    head = door.request(b"", Content_Length=None, Transfer_Encoding="chunked")
    pieces = [large[start : start + 65536] for start in range(0, len(large), 65536)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    assert door.raw(head + body).error["code"] == -32081


PATHS = (
    "/%6dcp/linear", "/MCP/linear", "/mcp/linear/", "/mcp//linear", "/mcp/linear/../linear", "/mcp/linear?x=1",
    "/mcp/linear;x", "/mcp/%6cinear", "/", "/mcp", "/mcp/other",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_paths(door: Proxy, path: str) -> None:
    assert door.raw(door.request(DANGER, path=path)).status == 404


def test_an_absolute_address_and_an_asterisk_are_no_paths(door: Proxy) -> None:
    assert door.raw(door.request(DANGER, path=f"http://127.0.0.1:{door.port}{door.path}")).status == 400
    assert door.raw(door.request(DANGER, path="*", method="OPTIONS")).status in (400, 404)


FRAMINGS = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: %d\r\n" % len(DANGER),
    "length and chunks": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(DANGER),
    "xchunked": b"Transfer-Encoding: xchunked\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "chunked, identity": b"Transfer-Encoding: chunked, identity\r\n",
    "space before the colon": b"Content-Length : %d\r\n" % len(DANGER),
    "plus": b"Content-Length: +%d\r\n" % len(DANGER),
    "folded": b"X: a\r\n b\r\nContent-Length: %d\r\n" % len(DANGER),
    "bare line end": b"X: a\nContent-Length: %d\r\n" % len(DANGER),
    "two hosts": b"Host: evil.example\r\nContent-Length: %d\r\n" % len(DANGER),
    "two sessions": b"Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\nContent-Length: %d\r\n" % len(DANGER),
    "two versions": b"Mcp-Protocol-Version: a\r\nMcp-Protocol-Version: b\r\nContent-Length: %d\r\n" % len(DANGER),
    "two names": b"Mcp-Name: what_ran\r\nMcp-Name: echo\r\nContent-Length: %d\r\n" % len(DANGER),
    "two parameters": b"Mcp-Param-X: a\r\nmcp-param-x: b\r\nContent-Length: %d\r\n" % len(DANGER),
    "two runs": b"Subluminal-Run-Id: a\r\nSubluminal-Run-Id: b\r\nContent-Length: %d\r\n" % len(DANGER),
    "two types": b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(DANGER),
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_framings(door: Proxy, name: str) -> None:
    head = f"POST {door.path} HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nContent-Type: application/json\r\n"
    answer = door.raw(head.encode() + FRAMINGS[name] + b"\r\n" + DANGER)
    assert answer.status in (400, 501)


def test_chunks_with_extensions_and_trailers_are_judged_as_what_they_hold(door: Proxy) -> None:
    head = door.request(b"", Content_Length=None, Transfer_Encoding="chunked")
    middle = len(DANGER) // 2
    body = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in (DANGER[:middle], DANGER[middle:]))
    answer = door.raw(head + body + b"0\r\nX-Trailer: a\r\n\r\n")
    assert answer.error["code"] == -32081


def test_a_pipelined_second_request_is_judged_as_the_first_is(door: Proxy) -> None:
    connection = door.connect()
    connection.send(door.request(PLAIN) + door.request(DANGER) + door.request(PLAIN))
    answers = [connection.answer() for _ in range(3)]
    connection.close()
    assert answers[0].text == answers[2].text == "[]"
    assert answers[1].error["code"] == -32081


def test_in_the_stateless_revision_headers_and_message_must_agree(door: Proxy) -> None:
    answer = door.post(
        call("size_of", {"text": "x"}), Mcp_Method="tools/call", Mcp_Name="echo", MCP_Protocol_Version="2026-07-28"
    )
    assert answer.error["data"]["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE"
    answer = door.post(DANGER, Mcp_Method="tools/call", Mcp_Name="size_of")
    assert answer.error["code"] == -32081


MISMATCHES: dict[str, dict[str, str]] = {
    "another name": {"Mcp_Name": "echo"},
    "another name, encoded": {"Mcp_Name": "=?base64?ZWNobw==?="},
    "another name, in capitals": {"Mcp_Name": "=?BASE64?ZWNobw==?="},
    "not base64": {"Mcp_Name": "=?base64?!?="},
    "another method": {"Mcp_Method": "tools/list"},
    "another case": {"Mcp_Method": "Tools/Call"},
    "an empty method": {"Mcp_Method": ""},
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_header_that_names_something_else_is_another_reading(door: Proxy, name: str) -> None:
    answer = door.post(PLAIN, **MISMATCHES[name])
    assert answer.error["data"]["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE"


def test_a_header_cannot_name_the_calls_of_a_batch(door: Proxy) -> None:
    answer = door.post(b"[" + PLAIN + b"]", Mcp_Method="tools/call", Mcp_Name="what_ran")
    assert [reply["error"]["code"] for reply in answer.json()] == [-32081]
