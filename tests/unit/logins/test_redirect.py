"""The port that a browser comes back to: whatever else knocks there is sent away, and the login goes on."""

from __future__ import annotations

import os
import pty
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from subluminal.contracts.errors import LoginError
from subluminal.logins.redirect import MAX_CONNECTIONS, Listener, Redirected

STATE = "the-state-of-this-login"
GOOD = f"/callback?code=the-code&state={STATE}"


class Desk:
    """A listener that waits in a thread, and ways to knock."""

    def __init__(self) -> None:
        self.listener = Listener()
        self._pool = ThreadPoolExecutor(1)

    def wait(self, seconds: float = 30, pasting: int | None = None) -> Future[Redirected]:
        return self._pool.submit(self.listener.wait, STATE, seconds, pasting)

    def knock(self, target: str, host: str | None = None, method: str = "GET") -> bytes:
        return self.raw(f"{method} {target} HTTP/1.1\r\nHost: {host or self.host}\r\n\r\n".encode())

    def raw(self, data: bytes) -> bytes:
        with self.connection() as sock:
            sock.sendall(data)
            answer = b""
            try:
                while piece := sock.recv(65536):
                    answer += piece
            except ConnectionError:
                pass
            return answer

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), timeout=30)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    def close(self) -> None:
        self.listener.close()
        self._pool.shutdown()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


def test_the_redirect_ends_the_wait_and_the_page_says_so(desk: Desk) -> None:
    waiting = desk.wait()
    page = desk.knock(GOOD + "&iss=https%3A%2F%2Fissuer.example")
    assert waiting.result(30) == Redirected("the-code", "https://issuer.example")
    assert page.startswith(b"HTTP/1.1 200 ") and b"You can close this page" in page
    for header in (b"Cache-Control: no-store", b"Referrer-Policy: no-referrer", b"default-src 'none'"):
        assert header in page
    assert b"the-code" not in page
    desk.listener.close()
    with pytest.raises(ConnectionError):
        desk.knock(GOOD)


@pytest.mark.parametrize(
    ("target", "host", "method", "status"),
    [
        ("/callback?code=evil&state=another", None, "GET", b"400"),
        ("/callback?code=evil", None, "GET", b"400"),
        ("/callback?code=evil&state=", None, "GET", b"400"),
        (f"/callback?code=a&code=b&state={STATE}", None, "GET", b"400"),
        (f"/callback?code=evil&state={STATE}&state=x", None, "GET", b"400"),
        (f"/callback?state={STATE}", None, "GET", b"400"),
        ("/callback?" + "&".join(f"a{n}=" for n in range(100)), None, "GET", b"400"),
        (f"/other?code=evil&state={STATE}", None, "GET", b"404"),
        (f"/callback/?code=evil&state={STATE}", None, "GET", b"404"),
        (f"/%63allback?code=evil&state={STATE}", None, "GET", b"404"),
        (f"http://127.0.0.1/callback?code=evil&state={STATE}", None, "GET", b"404"),
        ("/favicon.ico", None, "GET", b"404"),
        (f"/callback?code=evil&state={STATE}", "evil.example", "GET", b"403"),
        (f"/callback?code=evil&state={STATE}", "localhost", "GET", b"403"),
        (f"/callback?code=evil&state={STATE}", "127.0.0.1", "GET", b"403"),
        (f"/callback?code=evil&state={STATE}", None, "POST", b"405"),
        (f"/callback?code=evil&state={STATE} x", None, "GET", b"404"),
    ],
)
def test_whatever_else_comes_is_sent_away(
    desk: Desk, target: str, host: str | None, method: str, status: bytes
) -> None:
    waiting = desk.wait()
    assert desk.knock(target, host, method).split()[1] == status
    assert not waiting.done()
    desk.knock(GOOD)
    assert waiting.result(30).code == "the-code"


@pytest.mark.parametrize(
    "data",
    [
        b"GET /callback?code=evil&state=" + STATE.encode() + b" HTTP/1.1\r\n\r\n",
        b"GET " + GOOD.encode() + b" HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01" + b"\xff" * 100 + b"\r\n\r\n",
        b"\r\n\r\n",
        b"A" * 100_000,
    ],
    ids=["no host", "two hosts", "TLS", "nothing", "a flood"],
)
def test_bytes_that_are_no_request_are_sent_away(desk: Desk, data: bytes) -> None:
    waiting = desk.wait()
    desk.raw(data)
    assert not waiting.done()
    desk.knock(GOOD)
    assert waiting.result(30).code == "the-code"


def test_connections_that_say_nothing_do_not_hold_it_up(desk: Desk) -> None:
    waiting = desk.wait()
    idle = [desk.connection() for _ in range(3 * MAX_CONNECTIONS)]
    desk.knock(GOOD)
    assert waiting.result(30).code == "the-code"
    for sock in idle:
        sock.close()


def test_a_head_may_come_in_pieces(desk: Desk) -> None:
    waiting = desk.wait()
    with desk.connection() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in f"GET {GOOD} HTTP/1.1\r\nHost: {desk.host}\r\n\r\n".encode():
            sock.send(bytes([byte]))
        assert waiting.result(30).code == "the-code"


def test_a_refusal_is_a_sentence_without_control_characters(desk: Desk) -> None:
    waiting = desk.wait()
    page = desk.knock(f"/callback?error=access_denied&error_description=%1b%5b31mno%07<script>&state={STATE}")
    assert b"<script>" not in page and b"did not succeed" in page
    with pytest.raises(LoginError, match=r"access_denied \(\\x1b\[31mno") as caught:
        waiting.result(30)
    assert str(caught.value).isprintable()


def test_nobody_comes(desk: Desk) -> None:
    with pytest.raises(LoginError, match=r"nobody came back from the browser within 0\.05 seconds"):
        desk.listener.wait(STATE, 0.05)


def test_a_port_that_is_taken_is_named(desk: Desk) -> None:
    with pytest.raises(LoginError, match=f"port {desk.listener.port} of this machine cannot be used"):
        Listener(desk.listener.port)


@pytest.mark.parametrize("text", ["http://127.0.0.1:1/callback{}", "https://elsewhere.example/x{}", "{}"])
def test_the_address_may_be_pasted(desk: Desk, text: str) -> None:
    master, terminal = pty.openpty()
    try:
        waiting = desk.wait(pasting=terminal)
        os.write(master, b"\n" + text.format(GOOD.removeprefix("/callback")).encode() + b"\n")
        assert waiting.result(30).code == "the-code"
    finally:
        os.close(master)
        os.close(terminal)


@pytest.mark.parametrize("text", ["?code=evil&state=another", "what?", "http://[", "\x1b[31m"])
def test_another_address_is_not_taken(desk: Desk, text: str) -> None:
    reading, writing = os.pipe()
    try:
        waiting = desk.wait(pasting=reading)
        os.write(writing, text.encode() + b"\n")
        with pytest.raises(LoginError, match="not the address that this login ends at"):
            waiting.result(30)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_terminal_that_is_closed_leaves_the_browser(desk: Desk) -> None:
    reading, writing = os.pipe()
    waiting = desk.wait(pasting=reading)
    os.close(writing)
    desk.knock(GOOD)
    assert waiting.result(30).code == "the-code"
    os.close(reading)
