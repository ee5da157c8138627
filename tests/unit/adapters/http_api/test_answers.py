"""Answers pass as they come, whatever they are; what leads past us leads back to us; every end is on record."""

from __future__ import annotations

import gzip
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.http_api import TRACKER, HttpProxy, http_proxy
from harness.ports import nobody_listens
from harness.tracker_server import STREAM_PIECES, Tracker, tracker_server
from harness.waiting import wait_for


@pytest.fixture(scope="module")
def tracker() -> Iterator[Tracker]:
    with tracker_server() as server:
        yield server


@pytest.fixture(scope="module")
def door(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProxy]:
    place = tmp_path_factory.mktemp("door")
    with http_proxy(place, TRACKER, "deny_above_allow.yaml", upstream=tracker.url) as running:
        yield running


def end_after(door: HttpProxy, count: int) -> dict[str, Any]:
    """The end that comes after so many."""
    return wait_for(lambda: door.events.events_of("tool_call_end"), enough=lambda ends: len(ends) > count)[count]


def ends(door: HttpProxy) -> int:
    return len(door.events.events_of("tool_call_end"))


def test_a_stream_passes_piece_by_piece(door: HttpProxy, tracker: Tracker) -> None:
    before = ends(door)
    tracker.go_on.clear()
    connection = door.connect()
    connection.send(f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nX-Test-Answer: stream\r\n\r\n".encode())
    status, headers = connection.head()
    assert (status, headers["transfer-encoding"]) == (200, ["chunked"])
    assert connection.read_chunk() == b"data: 0\n\n", "it came while the server still waits"
    assert ends(door) == before
    tracker.go_on.set()
    rest = b"".join(iter(connection.read_chunk, b""))
    assert rest.count(b"data:") == STREAM_PIECES - 1
    connection.close()
    end = end_after(door, before)
    assert end["status"] == "OK" and end["preview"]["result_preview"].startswith("data: 0")


def test_an_encoded_answer_passes_as_it_is_and_is_not_looked_into(door: HttpProxy) -> None:
    before = ends(door)
    answer = door.ask("GET", "/user", Accept_Encoding="gzip", X_Test_Answer="gzip")
    assert answer.header("content-encoding") == "gzip"
    assert gzip.decompress(answer.body) == b'{"secret":"inside"}'
    end = end_after(door, before)
    assert end["bytes_out"] == len(answer.body) and "result_preview" not in end["preview"]


def test_a_large_answer_passes_and_is_recorded_by_size_and_hash(door: HttpProxy) -> None:
    before = ends(door)
    answer = door.ask("GET", "/user", X_Test_Answer="large")
    assert len(answer.body) == 3 * 1024 * 1024
    end = end_after(door, before)
    assert end["bytes_out"] == len(answer.body) and end["preview"]["truncated"]
    assert end["result_stream_hash"] == hashlib.sha256(answer.body).hexdigest()


@pytest.mark.parametrize(
    ("location", "ours"),
    [
        ("{url}/repos/ada/engine", "{base}/repos/ada/engine"),
        ("{url}?a=b#c", "{base}?a=b#c"),
        ("//127.0.0.1:{port}/api/v3/user", "{base}/user"),
        ("HTTP://127.0.0.1:{port}/api/v3/user", "{base}/user"),
        ("/api/v3/user?x=1", "/user?x=1"),
        ("user/repos", "user/repos"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("http://127.0.0.1:1/api/v3/user", "http://127.0.0.1:1/api/v3/user"),
        ("{origin}/admin", None),
        ("/admin", None),
        ("/api/v3x", None),
    ],
)
def test_a_redirect_to_the_server_leads_back_to_us(
    door: HttpProxy, tracker: Tracker, location: str, ours: str | None
) -> None:
    named = {"url": tracker.url, "origin": tracker.origin, "port": tracker.port, "base": door.base}
    answer = door.ask("GET", "/user", X_Test_Answer="redirect", X_Test_Location=location.format(**named))
    assert answer.status == 302
    assert answer.headers.get("location") == (None if ours is None else [ours.format(**named)])


def test_links_to_further_pages_lead_back_to_us(door: HttpProxy) -> None:
    answer = door.ask("GET", "/users/ada/repos", X_Test_Answer="links")
    next_page = f'<{door.base}/users/ada/repos?page=2>; rel="next"'
    assert answer.header("link") == f'{next_page}, <https://elsewhere.example/x>; rel="help"'


def test_a_public_address_with_a_path_is_ours_too(tmp_path: Path, tracker: Tracker) -> None:
    options = ("--public-url", "https://gate.example/tracker")
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url, options=options) as door:
        for target in ("/user", "/tracker/user"):
            assert door.ask("GET", target, Host="gate.example").status == 200
            assert tracker.heard[-1][1] == "/api/v3/user"
        answer = door.ask("GET", "/user", X_Test_Answer="redirect", X_Test_Location=f"{tracker.url}/user")
        assert answer.header("location") == "https://gate.example/tracker/user"


def test_an_answer_that_is_cut_is_cut_here_too(door: HttpProxy) -> None:
    before = ends(door)
    try:
        body = door.ask("GET", "/user", X_Test_Answer="cut").body
    except ConnectionError:
        body = b""
    assert len(body) < 1000, "as many as were announced"
    end = end_after(door, before)
    assert (end["status"], end["error"]["class"], end["error"]["retryable"]) == ("ERROR", "transport", True)


def test_a_client_that_leaves_cancels(door: HttpProxy, tracker: Tracker) -> None:
    before = ends(door)
    heard = len(tracker.heard)
    tracker.go_on.clear()
    connection = door.connect()
    connection.send(f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nX-Test-Answer: never\r\n\r\n".encode())
    wait_for(lambda: len(tracker.heard) > heard, what="the request at the server")
    connection.close()
    end = end_after(door, before)
    tracker.go_on.set()
    assert (end["status"], end["error"]["class"]) == ("CANCELLED", "unknown")


def test_a_server_that_is_not_there_is_502_and_on_record(tmp_path: Path) -> None:
    with (
        nobody_listens() as port,
        http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=f"http://127.0.0.1:{port}/api/v3") as door,
    ):
        answer = door.ask("GET", "/user")
        assert answer.status == 502 and "subluminal" not in answer.json()
        assert "The server tracker did not answer" in answer.json()["error"]["message"]
    (end,) = door.events.events_of("tool_call_end")
    assert (end["status"], end["error"]["class"]) == ("ERROR", "transport")
    assert door.events.types().index("tool_call_decision") < door.events.types().index("tool_call_end")


def test_a_call_that_takes_too_long_is_recorded_so_and_its_answer_still_passes(
    tmp_path: Path, tracker: Tracker
) -> None:
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[servers.tracker]\ntimeout_ms = 50\n")
    tracker.go_on.clear()
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door:
        connection = door.connect()
        connection.send(f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nX-Test-Answer: stream\r\n\r\n".encode())
        assert connection.head()[0] == 200
        assert end_after(door, 0)["status"] == "TIMEOUT"
        tracker.go_on.set()
        assert b"data: 39" in b"".join(iter(connection.read_chunk, b""))
        connection.close()
    assert len(door.events.events_of("tool_call_end")) == 1


def test_what_is_open_when_the_proxy_ends_is_cancelled_in_the_record(tmp_path: Path, tracker: Tracker) -> None:
    heard = len(tracker.heard)
    tracker.go_on.clear()
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door:
        connection = door.connect()
        connection.send(f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nX-Test-Answer: never\r\n\r\n".encode())
        wait_for(lambda: len(tracker.heard) > heard, what="the request at the server")
    tracker.go_on.set()
    connection.close()
    (end,) = door.events.events_of("tool_call_end")
    assert end["status"] in ("CANCELLED", "ERROR")
    assert door.events.types()[-1] == "run_end"


def test_a_slow_reader_holds_the_server_up(tmp_path: Path) -> None:
    """A server that sends without end, and a client that does not read: what is between them has a bound."""
    sent = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=url) as door:
            connection = door.connect()
            connection.send(f"GET /user HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\n\r\n".encode())
            server, _ = listener.accept()
            server.recv(65536)
            server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            server.settimeout(2)
            with pytest.raises(TimeoutError):
                while sent < 200_000_000:
                    sent += server.send(b"x" * 65536)
            connection.close()
            server.close()
    assert sent < 50_000_000
