"""Providers and clients that break the rules: no refused call runs, nothing leaks, nobody is left waiting."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.http_servers import Heard, Wire
from harness.model_client import ModelAgent, messages_proxy, read_content
from harness.model_policies import LS, NO_RM, RM, bundle, decided, ends
from harness.model_server import Model, breaks_off, calls, message_events, says, scripted_model, text, whole_message
from harness.proxy import Proxy
from harness.sink import EventFile, OneRun
from harness.waiting import wait_for

Turn = Callable[[Heard, Wire], None]
KEY = "sk-ant-api03-" + "k3y" * 12
STREAM = {"model": "m", "max_tokens": 9, "stream": True, "messages": []}
WHOLE = {**STREAM, "stream": False}


def sends(content: bytes, **headers: str) -> Turn:
    def turn(heard: Heard, wire: Wire) -> None:
        wire.body(content, **{"Content_Type": "application/json", **headers})

    return turn


def streams(*events: bytes) -> Turn:
    def turn(heard: Heard, wire: Wire) -> None:
        wire.stream()
        for event in events:
            wire.send(event)

    return turn


SENT = message_events(calls("Bash", RM))
# For a client that goes by the charset a call stands in the text.
IN_UTF_7 = whole_message(text("TEXT")).replace(
    b"TEXT", b"+ACIAfQAs-" + whole_message(calls("Bash", RM)).replace(b'"', b"+ACI-") + b"+ACw-{+ACI-x+ACI-:+ACI-"
)
UNREADABLE: dict[str, tuple[dict[str, Any], Turn]] = {
    "an encoded answer": (WHOLE, sends(gzip.compress(whole_message(calls("Bash", RM))), Content_Encoding="gzip")),
    "a stream that was not asked for": (WHOLE, streams(*SENT)),
    "another type": (STREAM, sends(whole_message(calls("Bash", RM)), Content_Type="text/plain")),
    "another charset": (WHOLE, sends(IN_UTF_7, Content_Type='application/json; Charset="UTF-7"')),
    "a charset twice": (WHOLE, sends(IN_UTF_7, Content_Type="application/json;charset=utf-8;charset=utf-7")),
    "a stream in another charset": (STREAM, sends(b": +AAo-data\n\n", Content_Type="text/event-stream;charset=utf-7")),
    "no type": (WHOLE, sends(whole_message(calls("Bash", RM)), Content_Type="")),
    "a redirect": (WHOLE, lambda heard, wire: wire.body(b"", 307, Location="http://127.0.0.1:1/")),
    "two objects": (WHOLE, sends(whole_message(text("a")) + whole_message(calls("Bash", RM)))),
    "cut JSON": (WHOLE, sends(whole_message(calls("Bash", RM))[:-4])),
    "a key twice": (WHOLE, sends(b'{"content":[],"content":' + json.dumps([]).encode() + b"}")),
    "no JSON": (WHOLE, sends(b"\x00\xff")),
}


@pytest.fixture(scope="module")
def no_rm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Model, Proxy]]:
    """One door for all the answers that it has to survive."""
    with (
        scripted_model() as model,
        messages_proxy(tmp_path_factory.mktemp("no-rm"), bundle(NO_RM), upstream=model.url) as door,
    ):
        yield model, door


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_not_passed_on(no_rm: tuple[Model, Proxy], name: str) -> None:
    model, door = no_rm
    request, turn = UNREADABLE[name]
    model.script(turn)
    answer = door.post(request)
    assert (answer.status, answer.json()["type"]) == (502, "error")
    assert b"Bash" not in answer.body
    assert ModelAgent(door, []).ask("Are you there?") == "Done.", "the door serves on"


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_in_an_error_is_judged_for_clients_that_do_not_look_at_the_status(tmp_path: Path, stream: bool) -> None:
    def fails(heard: Heard, wire: Wire) -> None:
        body = b"".join(SENT) if stream else whole_message(calls("Bash", RM))
        wire.body(body, 429, Content_Type="text/event-stream" if stream else "application/json", Retry_After="7")

    told = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down."}}'
    with (
        scripted_model(fails, lambda heard, wire: wire.body(told, 429, Content_Type="application/json")) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        answer = door.post(STREAM if stream else WHOLE)
        assert (answer.status, answer.header("retry-after")) == (429, "7")
        names = [block["name"] for block in read_content(answer)]
        assert names == ["subluminal_refused__Bash"]
        answer = door.post(STREAM if stream else WHOLE)
        assert (answer.status, answer.body) == (429, told), "and an error is an error, byte for byte"


def interleaved() -> list[bytes]:
    one, two = message_events(calls("Bash", LS, "toolu_1")), message_events(calls("Bash", RM, "toolu_2"))
    two = [event.replace(b'"index": 0', b'"index": 1') for event in two]
    return [one[0], one[1], two[1], two[2], one[2], two[3], one[3], *two[3:-2], *one[3:]]


STREAMED: dict[str, list[bytes]] = {
    "blocks that interleave": interleaved(),
    "a block without an end": SENT[:3] + SENT[-2:],
    "a block that begins twice": [*SENT[:2], *SENT[1:]],
    "arguments behind the end": [*SENT[:-3], SENT[-3], SENT[2], *SENT[-2:]],
    "no beginning": SENT[2:],
    "unknown events around it": [b'event: new\ndata: {"type":"new"}\n\n', *SENT, b": bye\n\n"],
    "another event's name": [event.replace(b"event: content_block_start", b"event: ping") for event in SENT],
    "no event's name": [event.partition(b"\n")[2] for event in SENT],
    "CR for a newline": [event.replace(b"\n", b"\r") for event in SENT],
    "data in lines": [event.replace(b', "', b',\ndata: "') for event in SENT],
    "a byte order mark": [b"\xef\xbb\xbf", *SENT],
    "cut in the middle": SENT[:-3],
    "no end of the last event": [*SENT[:-1], SENT[-1].rstrip()],
    "one byte at a time": [bytes((byte,)) for byte in b"".join(SENT)],
}


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, str, EventFile]]:
    """Each stream in a run of its own, one after another through one door that has ended since: what the client saw,
    the answer to its next question, and the record."""
    answers = {}
    with (
        scripted_model() as model,
        messages_proxy(tmp_path_factory.mktemp("streamed"), bundle(NO_RM), upstream=model.url) as door,
    ):
        for number, (name, events) in enumerate(STREAMED.items()):
            door.headers = {"Subluminal-Run-Id": f"run-{number}"}
            model.script(streams(*events))
            answers[name] = (read_to_the_end(door, STREAM), ModelAgent(door, []).ask("Are you there?"))
    return {name: (*answers[name], OneRun(door.events, f"run-{number}")) for number, name in enumerate(STREAMED)}


@pytest.mark.parametrize("name", STREAMED)
def test_whatever_a_stream_does_a_refused_call_does_not_reach_the_client(
    streamed: dict[str, tuple[bytes, str, EventFile]], name: str
) -> None:
    seen, next_answer, events = streamed[name]
    named = [event["content_block"]["name"] for event in events_in(seen) if "content_block" in event]
    assert "Bash" not in named or name == "blocks that interleave"
    assert b"rm -rf" not in seen or "subluminal_refused__Bash" in named
    assert next_answer == "Done."
    assert events.types()[-1] == "run_end", "the record of this run"
    assert ("Bash", "ALLOW") not in decided(events) or name == "blocks that interleave"
    assert len(ends(events)) == len(decided(events))


def events_in(seen: bytes) -> list[dict[str, Any]]:
    """As a client reads them: an event's data may have lines."""
    events = seen.decode("utf-8-sig").replace("\r", "\n").split("\n\n")
    told = ["\n".join(line[5:] for line in event.split("\n") if line.startswith("data:")) for event in events]
    return [json.loads(data) for data in told if data.strip()]


def read_to_the_end(door: Proxy, request: dict[str, Any]) -> bytes:
    """Everything that a client gets of a stream, whole or cut."""
    connection = door.connect()
    connection.send(door.request(json.dumps(request).encode(), Connection="close"))
    seen = b""
    try:
        assert connection.head()[0] in (200, 502)
        while chunk := connection.read_chunk():
            seen += chunk
    except (ConnectionError, ValueError):
        pass
    connection.close()
    return seen


def test_a_fault_in_the_middle_of_a_stream_is_told_and_recorded(tmp_path: Path) -> None:
    begun = message_events(text("Hello."))[:-2]
    with (
        scripted_model(streams(*begun, b"event: message_start\ndata: {]\n\n", *SENT)) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        seen = read_to_the_end(door, STREAM)
        assert b"Hello." in seen and b"event: error\n" in seen and b"Bash" not in seen
    assert decided(door.events) == [("(unreadable)", "BLOCK")]


def test_a_client_that_leaves_in_the_middle_is_left_by_the_provider(tmp_path: Path) -> None:
    def turn(heard: Heard, wire: Wire) -> None:
        wire.stream()
        wire.send(b"".join(message_events(calls("Bash", LS))[:-2]))
        wire.wait_closed()

    with (
        scripted_model(turn) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        connection = door.connect()
        connection.send(door.request(json.dumps(STREAM).encode()))
        connection.head()
        seen = b""
        while b"content_block_stop" not in seen:
            seen += connection.read_chunk()
        connection.close()
        assert model.hung_up.wait(20)
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
        door.post({**WHOLE, "messages": [{"role": "user", "content": [result]}]})
    assert ends(door.events) == [("Bash", "OK", None)], "its result came with a later request"


def test_a_provider_that_dies_or_is_not_there_is_told_in_the_apis_form(tmp_path: Path) -> None:
    def dies(heard: Heard, wire: Wire) -> None:
        wire.stay = False

    with (
        scripted_model(dies, breaks_off(*SENT[:2])) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        assert door.post(STREAM).status == 502
        assert b"Bash" not in read_to_the_end(door, STREAM)
    with messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door:
        answer = door.post(WHOLE)
        assert (answer.status, answer.json()["error"]["type"]) == (502, "api_error")


def test_errors_of_the_provider_pass_as_they_are(tmp_path: Path) -> None:
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'

    def turn(heard: Heard, wire: Wire) -> None:
        wire.body(error, 529, Content_Type="application/json", Retry_After="3")

    with (
        scripted_model(
            lambda heard, wire: wire.body(error, 529, Content_Type="application/json", Retry_After="3")
        ) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        answer = door.post(STREAM)
        assert (answer.status, answer.body, answer.header("retry-after")) == (529, error, "3")


def test_a_slow_client_is_not_read_for_without_bound(tmp_path: Path) -> None:
    """The provider is made to wait; the door keeps no more than its buffers."""
    sent = 0
    piece = message_events(text("x" * 60_000), piece=60_000)

    def turn(heard: Heard, wire: Wire) -> None:
        nonlocal sent
        wire.stream()
        wire.send(piece[0] + piece[1])
        wire.connection.settimeout(2)
        try:
            while sent < 1_000:
                wire.send(piece[2])
                sent += 1
        except TimeoutError:
            wire.server.hung_up.set()
        wire.wait_closed()

    with (
        scripted_model(turn) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        connection = door.connect()
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.send(door.request(json.dumps(STREAM).encode()))
        assert connection.head()[0] == 200
        assert model.hung_up.wait(30) and sent < 1_000, "nobody reads, so nobody is asked for more"
        connection.close()


# -- keys ---------------------------------------------------------------------------------------------------------


HEADERS = ("x-api-key", "Authorization", "Cookie", "X-Other", "anthropic-beta", "Proxy-Authorization")


def key_of(header: str) -> str:
    return f"sk-ant-api03-{HEADERS.index(header)}" + "k3y" * 12


@pytest.fixture(scope="module")
def keys_sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a door has run that was sent a key in each header, with every kind of answer."""
    place = tmp_path_factory.mktemp("keys")
    with (
        (place / "stderr").open("wb") as stderr,
        scripted_model() as model,
        messages_proxy(place, bundle(NO_RM), upstream=model.url, stderr=stderr.fileno()) as door,
    ):
        for header in HEADERS:
            key = key_of(header)
            model.script(
                says(calls("Bash", RM)),
                lambda heard, wire: wire.body(b"no", 401, Content_Type="text/plain"),
                streams(b"event: x\ndata: {]\n\n"),
                lambda heard, wire, key=key: wire.body(b"", 307, Location=f"http://x/{key}"),  # type: ignore[misc]
            )
            for _ in range(4):
                door.raw(door.request(json.dumps(WHOLE).encode(), **{header: key}))
            door.raw(door.request(b"{]", **{header: key}))
            door.raw(door.request(b"{}", path="/v1/elsewhere", **{header: key}))
        assert len(model.requests) == 4 * len(HEADERS)
    return place


@pytest.mark.parametrize("header", HEADERS)
def test_a_key_in_whatever_header_is_nowhere_in_the_record(keys_sent: Path, header: str) -> None:
    written = [path for path in keys_sent.rglob("*") if path.is_file()]
    assert {"events.jsonl", "stderr"} <= {path.name for path in written}
    for path in written:
        assert key_of(header).encode() not in path.read_bytes(), path


def test_a_key_that_stays_with_us_replaces_the_clients(tmp_path: Path) -> None:
    def echoes(heard: Heard, wire: Wire) -> None:
        wire.body(whole_message(text("ok")), Content_Type="application/json", X_Echo=heard.headers["x-api-key"])

    with (
        scripted_model(echoes) as model,
        messages_proxy(
            tmp_path, upstream=model.url, options=["--header-env", "x-api-key=REAL"], env={"REAL": KEY}
        ) as door,
    ):
        answer = door.post(WHOLE, x_api_key="dummy", Authorization="Bearer dummy")
        assert answer.status == 200
        heard = model.heard[0].headers
        assert heard["x-api-key"] == KEY and "authorization" not in heard
        assert answer.header("x-echo") == "" and KEY.encode() not in answer.body


def test_what_is_for_us_does_not_reach_the_provider(tmp_path: Path) -> None:
    with scripted_model() as model, messages_proxy(tmp_path, upstream=model.url) as door:
        door.post(WHOLE, Subluminal_Run_Id="run-7", Cookie="a=b", Accept_Encoding="gzip, br", anthropic_beta="x-1")
        heard = model.heard[0].headers
        assert "subluminal-run-id" not in heard and "cookie" not in heard
        assert (heard["accept-encoding"], heard["anthropic-beta"]) == ("identity", "x-1")
        assert heard["host"] == model.origin.removeprefix("http://")
    assert {event["run_id"] for event in door.events.events()} == {"run-7"}


# -- requests -----------------------------------------------------------------------------------------------------

PATHS = {
    "/v1/%6dessages": 400,
    "/v1/../v1/messages": 400,
    "/v1//messages": 400,
    "/v1/./messages": 400,
    "/v1/messages;x": 400,
    "/v1/messages/": 404,
    "/v1/Messages": 404,
    "/v1/messages/batches": 404,
    "/v1/chat/completions": 404,
    "/": 404,
}


def test_a_path_by_which_calls_could_come_unseen_leads_nowhere(tmp_path: Path) -> None:
    with (
        scripted_model() as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        for path, status in PATHS.items():
            answer = door.raw(door.request(json.dumps(WHOLE).encode(), path=path))
            assert (path, answer.status, answer.json()["type"]) == (path, status, "error")
        assert door.raw(door.request(b"", method="GET", path="/v1/messages")).status == 404
        assert door.raw(door.request(b"", method="DELETE", path="/v1/responses/x")).status == 404
        assert model.heard == []


def test_where_nothing_may_be_refused_any_path_passes(tmp_path: Path) -> None:
    with scripted_model() as model, messages_proxy(tmp_path, upstream=model.url) as door:
        assert door.raw(door.request(json.dumps(WHOLE).encode(), path="/v1/messages/batches?x=1")).status == 200
        assert door.raw(door.request(b"", method="GET", path="/v1/files")).status == 200
        assert [heard.target for heard in model.heard] == ["/v1/messages/batches?x=1", "/v1/files"]
        assert door.raw(door.request(b"", path="/v1/%6dessages")).status == 400


def test_models_heads_and_counts_pass(tmp_path: Path) -> None:
    with (
        scripted_model(sends(b'{"input_tokens":3}')) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        assert door.raw(door.request(b"", method="GET", path="/v1/models?limit=1")).json()["data"] == []
        assert door.raw(door.request(b"", method="GET", path="/v1/models/m")).status == 200
        head = door.raw(door.request(b"", method="HEAD", path="/"))
        assert (head.status, head.body) == (200, b"")
        counted = door.raw(door.request(json.dumps(WHOLE).encode(), path="/v1/messages/count_tokens"))
        assert counted.json() == {"input_tokens": 3}
        assert [heard.method for heard in model.heard] == ["GET", "GET", "HEAD", "POST"]


@pytest.mark.parametrize("base", ["/base", "/base/v1", "/base/v1/"])
def test_an_address_with_a_path_is_joined_as_the_providers_clients_do(tmp_path: Path, base: str) -> None:
    with scripted_model(path=base) as model, messages_proxy(tmp_path, upstream=model.url) as door:
        assert door.raw(door.request(json.dumps(WHOLE).encode(), path="/v1/messages?beta=true")).status == 200
        assert model.heard[0].target == "/base/v1/messages?beta=true"


BODIES: dict[str, tuple[bytes, dict[str, str], int]] = {
    "an encoded body": (gzip.compress(b"{}"), {"Content_Encoding": "gzip"}, 415),
    "another type": (b"{}", {"Content_Type": "text/plain"}, 415),
    "no JSON": (b"{]", {}, 400),
    "a key twice": (b'{"stream":false,"stream":true,"messages":[]}', {}, 400),
    "two keys": (b"{}", {"x_api_key": "a\r\nx-api-key: b"}, 400),
    "an origin": (b"{}", {"Origin": "https://evil.example"}, 403),
    "another host": (b"{}", {"Host": "evil.example"}, 403),
    "an upgrade": (b"{}", {"Upgrade": "websocket", "Connection": "Upgrade"}, 426),
}


def test_requests_that_two_readers_could_take_differently_are_not_passed_on(tmp_path: Path) -> None:
    with (
        scripted_model() as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        for name, (body, headers, status) in BODIES.items():
            answer = door.raw(door.request(body, **headers))
            assert (name, answer.status) == (name, status), answer.body
        websocket = door.request(b"", method="GET", path="/v1/responses", Upgrade="websocket", Connection="Upgrade")
        answer = door.raw(websocket)
        assert (answer.status, "error" in answer.json()) == (426, True)
        assert model.heard == []


def test_a_body_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "config.toml").write_text("[shim]\nmax_message_bytes = 65536\n")
    (tmp_path / "sub" / "config.toml").chmod(0o600)
    with scripted_model() as model, messages_proxy(tmp_path, upstream=model.url) as door:
        answer = door.post({**WHOLE, "padding": "x" * 100_000})
        assert (answer.status, answer.json()["error"]["type"]) == (413, "request_too_large")
        assert model.heard == []


def test_requests_that_are_sent_at_once_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", RM)), says(text("two"))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        connection = door.connect()
        connection.send(door.request(json.dumps(WHOLE).encode()) * 2)
        first, second = connection.answer(), connection.answer()
        connection.close()
        assert first.json()["content"][0]["name"] == "subluminal_refused__Bash"
        assert second.json()["content"][0]["text"] == "two" and len(model.heard) == 2


def test_another_user_of_the_machine_is_not_served(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs to act as another user")
    with scripted_model() as model, messages_proxy(tmp_path, upstream=model.url) as door:
        program = (
            "import http.client\n"
            f"c = http.client.HTTPConnection('127.0.0.1', {door.port})\n"
            "c.request('POST', '/v1/messages', b'{}', {'Content-Type': 'application/json'})\n"
            "print(c.getresponse().status)\n"
        )
        done = subprocess.run(
            ["/usr/bin/python3", "-c", program], user=65534, group=65534, cwd="/", capture_output=True, text=True
        )
        assert done.stdout.strip() == "403", done.stderr
        assert model.heard == []


def test_ids_of_any_length_are_taken_and_end(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", LS, "t" * 5_000), calls("Read", {}, ""))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        try:
            ModelAgent(door, ["Bash", "Read"]).ask("Go.")
        except Exception:
            pass  # what counts is the record
        wait_for(lambda: model.heard, what="the model is asked")
    assert len(ends(door.events)) == len(decided(door.events))
