"""What goes over the wire to a server behind a URL, and what becomes of every answer that it may give."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from harness.driver import Agent
from harness.http_servers import SESSION_ID, Heard, RawServer, Wire, raw_server, well_behaved
from harness.processes import assert_no_processes, is_alive
from harness.shim import Shim
from harness.waiting import GENEROUS_S, wait_for

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def shim(tmp_path: Path, url: str, *words: str, **more: Any) -> Shim:
    return Shim(tmp_path, "s", ["--url", url, *words], **more)


def message_of(reply: dict[str, Any]) -> str:
    assert "error" in reply, reply
    return str(reply["error"]["message"])


def one(*answers: Callable[[Heard, Wire], None]) -> Callable[[Heard, Wire], None]:
    """Each request is answered by the next one, and the last one answers all that follow."""
    left = list(answers)

    def answer(heard: Heard, wire: Wire) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(heard, wire)

    return answer


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_bodies_go_byte_for_byte(tmp_path: Path) -> None:
    lines = [
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":{"n":1.50, "u":"\\u00e9"}}}',
        b'{"jsonrpc":"2.0","id":9,"result":{}}',
    ]
    with raw_server() as server, shim(tmp_path, server.url + "?key=%2f").start() as agent:
        agent.send_raw(b"\n".join(lines) + b"\n")
        agent.replies([1, "a"])
        agent.finish()
        posts = [heard for heard in server.heard if heard.method == "POST"]
        assert [heard.body for heard in posts[:2]] == lines[:2]
        assert {heard.body for heard in posts[2:]} == set(lines[2:])  # two connections: either may be read first
        assert {heard.target for heard in server.heard} == {"/mcp?key=%2f"}
        first, *later = [heard for heard in server.heard if heard.method != "GET"]
        assert "mcp-session-id" not in first.headers and "mcp-protocol-version" not in first.headers
        assert {heard.headers["mcp-session-id"] for heard in later} == {SESSION_ID}
        assert {heard.headers["mcp-protocol-version"] for heard in later} == {"2025-06-18"}
        assert {heard.headers["accept-encoding"] for heard in server.heard} == {"identity"}
        assert server.rpcs()[-1] == "DELETE"


def test_a_batch_is_one_body_and_each_of_its_requests_is_answered(tmp_path: Path) -> None:
    def batch(heard: Heard, wire: Wire) -> None:
        if isinstance(heard.message, list):
            wire.json([{"jsonrpc": "2.0", "id": each["id"], "result": {}} for each in heard.message[:1]])
        else:
            well_behaved(heard, wire)

    with raw_server({"POST": batch}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize("2025-03-26")
        agent.send([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (7, 8)])
        first, second = agent.replies([7, 8])
        assert first["result"] == {} and "no reply to this request" in message_of(second)


def test_headers_come_from_variables_and_what_is_ours_is_not_overridden(tmp_path: Path) -> None:
    words = ("--header-env", "X-Api-Key=KEY", "--header-env", "Mcp-Session-Id=ID", "--bearer-env", "TOKEN")
    env = {"KEY": "key-of-the-user-1", "TOKEN": "token-of-the-user", "ID": "theirs"}
    setup = None
    with raw_server() as server:
        setup = shim(tmp_path, server.url + "?api_key=abcdefghij", *words, env=env)
        with setup.start() as agent:
            agent.initialize()
            agent.call("t", {"echoed": "key-of-the-user-1 token-of-the-user abcdefghij"})
            agent.finish()
            said = agent.stderr
        for heard in server.heard:
            assert heard.headers["x-api-key"] == env["KEY"]
            assert heard.headers["authorization"] == f"Bearer {env['TOKEN']}"
            assert heard.headers.get("mcp-session-id") in (None, SESSION_ID)
    for secret in (env["KEY"], env["TOKEN"], "abcdefghij"):
        assert secret not in setup.events.raw().decode() and secret not in said


def test_a_cancel_is_posted_beside_the_call_that_it_cancels(tmp_path: Path) -> None:
    cancelled = Event()

    def call(_: Heard, wire: Wire) -> None:
        cancelled.wait(GENEROUS_S)
        wire.stream()

    def cancel(_: Heard, wire: Wire) -> None:
        wire.head(202)
        cancelled.set()

    on = {"tools/call": call, "notifications/cancelled": cancel}
    with raw_server(on) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        agent.start_call("t", id="slow")
        agent.notify("notifications/cancelled", {"requestId": "slow"})
        assert agent.request("ping")["result"] == {}
        agent.finish()
        assert not [message for message in agent.messages if message.get("id") == "slow"]
        posted = [rpc for rpc in server.rpcs() if rpc in on]
    assert sorted(posted) == ["notifications/cancelled", "tools/call"]  # two connections: either may be read first


def test_in_the_stateless_revision_the_end_of_the_connection_is_the_cancel(tmp_path: Path) -> None:
    def call(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.wait_closed()

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.start_call("t", id="slow", _meta=META)
        wait_for(lambda: server.of("tools/call"), what="the call")
        agent.notify("notifications/cancelled", {"requestId": "slow", "_meta": META})
        assert server.hung_up.wait(GENEROUS_S)
        assert agent.request("ping", {"_meta": META})["result"] == {}
        assert agent.finish() == 0
        assert "notifications/cancelled" not in server.rpcs() and "DELETE" not in server.rpcs()
        assert not [message for message in agent.messages if message.get("id") == "slow"]


def test_requests_wait_in_a_bound_and_answers_to_the_server_do_not_wait_behind_them(tmp_path: Path) -> None:
    """Every call asks the client back. If answers stood behind further calls, nobody would ever go on."""
    answered: dict[str, Event] = {}
    most = 0
    lock = Lock()

    def call(heard: Heard, wire: Wire) -> None:
        nonlocal most
        name = f"q{heard.message['id']}"
        with lock:
            answered[name] = Event()
            most = max(most, sum(not each.is_set() for each in answered.values()))
        wire.stream()
        wire.event({"jsonrpc": "2.0", "id": name, "method": "roots/list"})
        assert answered[name].wait(GENEROUS_S)
        wire.event(wire.result({}))

    def response(heard: Heard, wire: Wire) -> None:
        wire.head(202)
        answered[heard.message["id"]].set()

    with raw_server({"tools/call": call, "response": response}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        ids = [agent.start_call("t", wait=False) for _ in range(300)]
        agent.pump_until(lambda: sum(m.get("method") == "roots/list" for m in agent.messages) >= 128)
        agent.settle(0.2)
        done = 0
        while done < len(ids):
            asked = [message["id"] for message in agent.messages if message.get("method") == "roots/list"]
            for id in asked[done:]:
                agent.send({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}, wait=False)
            done = len(asked)
            agent.settle(0.01)
        assert all("result" in reply for reply in agent.replies(ids))
        assert most == 128


def test_bodies_of_requests_under_way_are_bounded_too(tmp_path: Path) -> None:
    go_on = Event()

    def call(heard: Heard, wire: Wire) -> None:
        go_on.wait(GENEROUS_S)
        wire.json(wire.result({"size": len(heard.body)}))

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        ids = [agent.start_call("t", {"b": "x" * 900_000}, wait=False) for _ in range(60)]
        agent.pump_until(lambda: len(server.of("tools/call")) >= 37)
        agent.settle(0.3)
        assert len(server.of("tools/call")) == 37  # 32 MiB of them
        go_on.set()
        assert all(reply["result"]["size"] > 900_000 for reply in agent.replies(ids))


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_cut_stream_with_an_id_is_resumed_until_the_reply_has_come(tmp_path: Path) -> None:
    def call(_: Heard, wire: Wire) -> None:
        wire.stream()
        wire.event("", id="e-1", retry=10)

    def note(text: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}}

    def resume(heard: Heard, wire: Wire) -> None:
        last = heard.headers.get("last-event-id")
        if last is None:
            wire.head(405)
            return
        wire.stream()
        if last == "e-1":
            wire.event(note("first half"), id="e-2")
        elif last == "e-2" and len(server.of("GET")) < 5:
            return  # nothing new yet
        else:
            wire.event({"jsonrpc": "2.0", "id": "polled", "result": {"done": True}}, id="e-3")

    with raw_server({"tools/call": call, "GET": resume}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize("2025-11-25")
        agent.start_call("t", id="polled")
        assert agent.reply("polled")["result"] == {"done": True}
        assert agent.receive(lambda message: message.get("params") == {"data": "first half"})
        resumed = [heard.headers.get("last-event-id") for heard in server.of("GET")]
        assert [last for last in resumed if last] == ["e-1", "e-2", "e-2", "e-2"][: len(resumed) - 1]
        assert len(server.of("tools/call")) == 1


def test_a_cut_stream_without_an_id_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    setup = None
    with raw_server({"tools/call": one(lambda _, wire: wire.stream(), well_behaved)}) as server:
        setup = shim(tmp_path, server.url)
        with setup.start() as agent:
            agent.initialize()
            cut = agent.call("t")
            assert cut["error"]["code"] == -32000 and "ended without a reply" in message_of(cut)
            assert "result" in agent.call("t")
            agent.finish()
        assert len(server.of("tools/call")) == 2
    assert [event["status"] for event in setup.events.events_of("tool_call_end")] == ["ERROR", "OK"]


def test_the_stream_of_the_session_brings_what_the_server_says_unasked_and_is_opened_again(tmp_path: Path) -> None:
    def listen(heard: Heard, wire: Wire) -> None:
        number = len(server.of("GET"))
        wire.stream()
        said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"number": number}}
        wire.event(said, id=f"g-{number}", retry=20)
        if number >= 3:
            wire.wait_closed()

    with raw_server({"GET": listen}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        agent.receive(lambda message: message.get("params") == {"number": 3})
        assert [heard.headers.get("last-event-id") for heard in server.of("GET")] == [None, "g-1", "g-2"]
        assert agent.finish() == 0
        assert server.hung_up.wait(GENEROUS_S)


def test_a_server_that_offers_no_stream_is_not_asked_again(tmp_path: Path) -> None:
    with raw_server() as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        for _ in range(3):
            agent.call("t")
        assert len(server.of("GET")) == 1


def test_messages_are_one_line_each_whatever_their_form(tmp_path: Path) -> None:
    def pretty(_: Heard, wire: Wire) -> None:
        text = json.dumps(wire.result({"a": [1]}), indent=1).replace("\n", "\r\n")
        wire.body(text.encode(), Content_Type="application/json; charset=utf-8")

    def folded(_: Heard, wire: Wire) -> None:
        lines = json.dumps(wire.result({"a": [2]}), indent=1).splitlines()
        wire.stream()
        wire.send(
            b": a comment\r\n\r\nevent: message\r" + "".join(f"data: {line}\r" for line in lines).encode() + b"\r\n"
        )

    with raw_server({"tools/call": one(pretty, folded)}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        assert [agent.call("t")["result"]["a"] for _ in range(2)] == [[1], [2]]


def test_a_line_that_no_client_could_read_is_never_written(tmp_path: Path) -> None:
    def call(heard: Heard, wire: Wire) -> None:
        text = json.dumps(wire.result({"x": "MARK"})).encode().replace(b"MARK", marks[heard.message["id"]])
        wire.body(text, Content_Type="application/json")

    marks = {"bytes": b"\xb0", "control": b"a\0b", "surrogate": b"\\ud800", "quote": b'"'}
    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        replies = {id: agent.call("t", id=id) for id in marks}
    assert replies["bytes"]["result"] == {"x": "\ufffd"} and replies["surrogate"]["result"] == {"x": "\ud800"}
    assert all("no reply to this request" in message_of(replies[id]) for id in ("control", "quote"))


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_forgotten_session_is_begun_again_once_for_all_who_wait(tmp_path: Path) -> None:
    began: list[str] = []

    def initialize(heard: Heard, wire: Wire) -> None:
        began.append(f"session-{len(began) + 1}")
        wire.json(wire.result({"protocolVersion": "2025-06-18"}), Mcp_Session_Id=began[-1])

    def call(heard: Heard, wire: Wire) -> None:
        if heard.headers["mcp-session-id"] != "session-2":
            wire.json({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "?"}}, 404)
        else:
            well_behaved(heard, wire)

    with raw_server({"initialize": initialize, "tools/call": call}) as server:
        with shim(tmp_path, server.url).start() as agent:
            agent.initialize()
            ids = [agent.start_call("t", {"n": number}, wait=False) for number in range(20)]
            assert all("result" in reply for reply in agent.replies(ids))
            agent.finish()
            assert sum(message.get("id") == 1 for message in agent.messages) == 1
        assert began == ["session-1", "session-2"]
        assert len(server.of("notifications/initialized")) == 2
        first, second = server.of("initialize")
        assert first.body == second.body and "mcp-session-id" not in second.headers


def test_a_session_that_is_forgotten_again_at_once_is_an_error(tmp_path: Path) -> None:
    with raw_server({"tools/call": status(404)}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        assert "forgotten the session again and again" in message_of(agent.call("t"))
        assert len(server.of("tools/call")) == 2 and len(server.of("initialize")) == 2


def test_a_server_that_is_down_at_the_start_is_named_and_asked_again_when_the_client_asks(tmp_path: Path) -> None:
    with raw_server() as server:
        port, url = server.port, server.url
    with shim(tmp_path, f"{url}?token=hidden-0123456789").start() as agent:
        reply = agent.request("initialize", {"protocolVersion": "2025-06-18"})
        assert f"http://127.0.0.1:{port}" in message_of(reply) and "no connection" in message_of(reply)
        assert "no connection" in message_of(agent.call("t"))
        assert agent.process.poll() is None
        with raw_server(port=port) as server:
            assert server.heard == []
            agent.initialize()
            assert "result" in agent.call("t")
        agent.finish()
        assert "no connection" in agent.stderr
        assert "hidden" not in agent.stderr and not any(b"hidden" in line for line in agent.received)


# -- answers that are none --------------------------------------------------------------------------------------------


def status(code: int, **headers: str) -> Callable[[Heard, Wire], None]:
    return lambda _, wire: wire.body(b"<p>secret of the server</p>", code, Content_Type="text/html", **headers)


def says(*pieces: bytes) -> Callable[[Heard, Wire], None]:
    """These bytes, and the end of the connection."""

    def answer(_: Heard, wire: Wire) -> None:
        wire.stay = False
        wire.send(b"".join(pieces))

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
NO_ANSWERS = [
    (status(503), "it answered 503. Try again later."),
    (status(500), "it answered 500."),
    (status(400), "it answered 400."),
    (status(401), "sub login s"),
    (status(403, WWW_Authenticate='Bearer error="insufficient_scope", scope="x"'), "lacks a scope"),
    (status(302, Location="/other"), "a redirect that drops the message"),
    (status(307, Location="http://elsewhere.invalid/mcp?x=1"), "redirects to http://elsewhere.invalid, another"),
    (status(307, Location="//elsewhere.invalid/mcp"), "redirects to http://elsewhere.invalid, another"),
    (status(307), "leads nowhere"),
    (status(308, Location="/mcp"), "redirects again and again"),
    (status(200), "without an answer"),
    (status(202), "without an answer"),
    (lambda _, wire: wire.json(wire.result({}), Content_Encoding="gzip"), "compressed"),
    (lambda _, wire: wire.body(b"{not json", Content_Type="application/json"), "no reply to this request"),
    (lambda _, wire: wire.json({"jsonrpc": "2.0", "id": 999, "result": {}}), "no reply to this request"),
    (says(OK, b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345"), "not understood"),
    (says(OK, b"X: 1\nY: 2\r\n\r\n"), "not understood"),
    (says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), "not understood|protocol"),
    (says(b"SSH-2.0-OpenSSH_9\r\n" * 200), "without an answer"),
    (says(OK, b"X: y\r\n" * 20_000), "too large"),
    (says(OK, CHUNKED, b"Content-Type: application/json\r\n\r\n0x5\r\n12345\r\n0\r\n\r\n"), "malformed chunk"),
    (says(OK, CHUNKED, b"Content-Length: 5\r\n\r\n"), "not understood"),
    (says(OK, b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"), "in the middle"),
    (says(), "without an answer"),
]


@pytest.fixture(scope="module")
def answering_badly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, RawServer]]:
    """One session for all bad answers: the call `bad-N` gets the N-th of them."""

    def call(heard: Heard, wire: Wire) -> None:
        name = heard.message["params"]["name"]
        answer = NO_ANSWERS[int(name.removeprefix("bad-"))][0] if name != "good" else well_behaved
        answer(heard, wire)

    place = tmp_path_factory.mktemp("answering-badly")
    with raw_server({"tools/call": call}) as server, shim(place, server.url).start() as agent:
        agent.initialize()
        yield agent, server
        assert agent.finish() == 0


@pytest.mark.parametrize("number", range(len(NO_ANSWERS)))
def test_every_other_answer_is_a_sentence_and_the_next_call_works(
    answering_badly: tuple[Agent, RawServer], number: int
) -> None:
    agent, server = answering_badly
    message = message_of(agent.call(f"bad-{number}"))
    assert re.search(NO_ANSWERS[number][1], message) and server.origin in message
    assert f"bad-{number}" in [heard.message["params"]["name"] for heard in server.of("tools/call")]
    assert "secret of the server" not in message + agent.stderr
    assert "result" in agent.call("good")


def test_an_error_of_the_server_beside_a_status_is_the_clients_error(tmp_path: Path) -> None:
    def refuse(id: Any) -> Callable[[Heard, Wire], None]:
        error = {"code": -32022, "message": "no such version", "data": {"supported": ["2026-07-28"]}}
        return lambda _, wire: wire.json({"jsonrpc": "2.0", "id": id, "error": error}, 400)

    on = {"server/discover": refuse(5), "initialize": refuse(None), "tools/call": one(refuse("server-error"))}
    with raw_server(on) as server, shim(tmp_path, server.url).start() as agent:
        for id, method in ((5, "server/discover"), (6, "initialize"), (7, "tools/call")):
            reply = agent.request(method, {"protocolVersion": "2025-06-18", "name": "t"}, id=id)
            assert (reply["id"], reply["error"]["code"]) == (id, -32022)
            assert reply["error"]["data"] == {"supported": ["2026-07-28"]}
        assert "GET" not in server.rpcs(), "this is no server of 2024-11-05"


def test_a_redirect_within_the_origin_takes_message_and_credential_along(tmp_path: Path) -> None:
    def call(heard: Heard, wire: Wire) -> None:
        if heard.target == "/mcp":
            wire.head(307, Location="/mcp/")
        else:
            well_behaved(heard, wire)

    with raw_server({"tools/call": call}) as server:
        with shim(tmp_path, server.url, "--bearer-env", "TOKEN", env={"TOKEN": "of-this-origin"}).start() as agent:
            agent.initialize()
            assert "result" in agent.call("t")
        first, second = server.of("tools/call")
        assert first.body == second.body and second.headers["authorization"] == "Bearer of-this-origin"


def test_nothing_goes_to_another_origin(tmp_path: Path) -> None:
    with raw_server() as other:
        elsewhere = other.origin.replace("127.0.0.1", "localhost")

        def old(_: Heard, wire: Wire) -> None:
            wire.stream()
            wire.event(f"{elsewhere}/messages", event="endpoint")
            wire.wait_closed()

        on = {"initialize": one(lambda _, wire: wire.head(307, Location=f"{elsewhere}/mcp"), status(405)), "GET": old}
        with raw_server(on) as server:
            setup = shim(tmp_path, server.url, "--bearer-env", "T", env={"T": "secret-token"})
            with setup.start() as agent:
                for _ in range(2):
                    reply = agent.request("initialize", {"protocolVersion": "2025-06-18"})
                    assert "another origin" in message_of(reply)
        assert other.heard == []


def test_a_plain_server_is_no_tls_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        with shim(tmp_path, url).start() as agent:
            id = agent.start_request("initialize", {"protocolVersion": "2025-06-18"})
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                assert "no TLS connection" in message_of(agent.reply(id))


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with raw_server(context=context) as server:
        url = server.url.replace("http:", "https:")
        with shim(tmp_path, url).start() as agent:
            reply = agent.request("initialize", {"protocolVersion": "2025-06-18"})
            assert "certificate" in message_of(reply) and "not valid" in message_of(reply)
        assert server.heard == []
        with shim(tmp_path, url, env={"SSL_CERT_FILE": str(certificate)}).start() as agent:
            agent.initialize()
            assert "result" in agent.call("t")
            assert agent.finish() == 0


def self_signed(tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: there is nothing to make a certificate with")
    subprocess.run([*command, *names], check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://x/", "http"),
        ("http://user:hunter2hunter2@127.0.0.1/", "not understood"),
        ("http://127.0.0.1:99999/", "port"),
    ],
)
def test_a_url_that_cannot_be_used_is_said_at_once(tmp_path: Path, url: str, says: str) -> None:
    with shim(tmp_path, url).start() as agent:
        assert agent.wait_exit() == 2
        assert says in agent.stderr and "hunter2" not in agent.stderr


# -- hostile amounts --------------------------------------------------------------------------------------------------


def test_a_message_larger_than_allowed_is_an_error_in_both_forms(tmp_path: Path) -> None:
    block = b"x" * 65536

    def endless(form: str) -> Callable[[Heard, Wire], None]:
        def call(_: Heard, wire: Wire) -> None:
            wire.head(200, None, Content_Type=form, Connection="close")
            wire.send(b'data: {"jsonrpc":"2.0","id":2,"result":"' if form.startswith("text") else b'{"a":"')
            while True:
                wire.send(block)

        return call

    calls = one(endless("application/json"), endless("text/event-stream"), well_behaved)
    env = {"SUB_MAX_INSPECT_BYTES": "65536", "SUB_MAX_MESSAGE_BYTES": "1000000"}
    with raw_server({"tools/call": calls}) as server, shim(tmp_path, server.url, env=env).start() as agent:
        agent.initialize()
        for _ in range(2):
            assert "larger than 1000000 bytes" in message_of(agent.call("t"))
        assert "result" in agent.call("t")


def test_a_server_that_stops_in_the_middle_of_a_large_message_holds_up_nobody(tmp_path: Path) -> None:
    """Its half message is not on the client's line: others pass, and the call gets its error in the end."""
    go_on = Event()

    def call(heard: Heard, wire: Wire) -> None:
        if heard.message["id"] != "half":
            well_behaved(heard, wire)
            return
        wire.head(200, 10_000_000, Content_Type="application/json")
        wire.send(b'{"jsonrpc":"2.0","id":"half","result":"' + b"x" * 3_000_000)
        go_on.wait(GENEROUS_S)
        wire.stay = False

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        agent.start_call("t", id="half")
        for _ in range(3):
            assert "result" in agent.call("t")
        go_on.set()
        assert "in the middle of its answer" in message_of(agent.reply("half"))
        assert all(json.loads(line) for line in agent.received)


def test_thousands_of_requests_of_the_server_pass_in_order(tmp_path: Path) -> None:
    def call(_: Heard, wire: Wire) -> None:
        wire.stream()
        for number in range(5000):
            wire.event({"jsonrpc": "2.0", "id": number, "method": "roots/list"})
        wire.event(wire.result({}))

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        agent.call("t", id="the call")
        asked = [message["id"] for message in agent.messages if message.get("method") == "roots/list"]
    assert asked == list(range(5000))


def test_replies_that_nobody_waits_for_do_not_reach_the_client(tmp_path: Path) -> None:
    def call(_: Heard, wire: Wire) -> None:
        wire.stream()
        for id in ("never asked", 1, None):
            wire.event({"jsonrpc": "2.0", "id": id, "result": {}})
        wire.event(wire.result({"right": True}))
        wire.event(wire.result({"again": True}))

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        assert agent.call("t")["result"] == {"right": True}
        agent.call("t")
        assert len(agent.messages) == 3


# -- the end ----------------------------------------------------------------------------------------------------------


def hang(_: Heard, wire: Wire) -> None:
    wire.stream()
    wire.wait_closed()


def test_a_request_under_way_may_end_after_the_client_has_closed_its_side(tmp_path: Path) -> None:
    closed = Event()

    def call(heard: Heard, wire: Wire) -> None:
        closed.wait(GENEROUS_S)
        well_behaved(heard, wire)

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        id = agent.start_call("t")
        wait_for(lambda: server.of("tools/call"), what="the call")
        agent.close_stdin()
        closed.set()
        assert "result" in agent.reply(id)
        assert agent.wait_exit() == 0
        assert server.rpcs()[-1] == "DELETE"


def test_one_that_hangs_is_given_up_and_the_session_is_ended(tmp_path: Path) -> None:
    setup = None
    with raw_server({"tools/call": hang}) as server:
        setup = shim(tmp_path, server.url)
        with setup.start() as agent:
            agent.initialize()
            agent.start_call("t")
            wait_for(lambda: server.of("tools/call"), what="the call")
            assert agent.finish() == 128 + signal.SIGTERM
        assert server.rpcs()[-1] == "DELETE" and server.hung_up.wait(GENEROUS_S)
    assert setup.events.events_of("tool_call_end")[0]["status"] == "CANCELLED"
    assert len(setup.events.events_of("run_end")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_shim_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    with raw_server({"tools/call": hang, "GET": hang}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        agent.start_call("t")
        wait_for(lambda: server.of("tools/call") and server.of("GET"), what="the call and the stream")
        agent.signal(number)
        agent.wait_exit()
        wait_for(lambda: server.open_connections == 0, what="the end of every connection")
        assert_no_processes(agent.marker, pids=[agent.pid])
        assert not is_alive(agent.pid)


def test_a_client_that_reads_nothing_holds_the_server_up_and_not_our_memory(tmp_path: Path) -> None:
    sent = 0

    def call(_: Heard, wire: Wire) -> None:
        nonlocal sent
        wire.stream()
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 60_000}}
        for _ in range(500):
            wire.event(note)
            sent += 60_000
        wire.event(wire.result({}))

    with raw_server({"tools/call": call}) as server, shim(tmp_path, server.url).start() as agent:
        agent.initialize()
        id = agent.start_call("t")

        def stalled() -> bool:
            before = sent
            wait_for(lambda: False, 0.3, enough=lambda _: True)
            return sent == before > 0

        wait_for(stalled, what="a server that is held up")
        assert sent < 25_000_000 and agent.memory_kib("VmHWM") < 80 * 1024
        assert agent.reply(id)["result"] == {}
        assert len(agent.messages) == 502
