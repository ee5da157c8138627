"""Servers behind URLs are asked once, all at once, with nothing of the user's, and no answer does any harm."""

from __future__ import annotations

import json

import pytest

from harness.http_answers import HttpAnswers, reply
from harness.ports import nobody_listens
from subluminal.clients.remote import probing
from subluminal.clients.remote.asking import Answer
from subluminal.clients.remote.probing import MAX_ASKED, ask


def answer_of(answer: bytes) -> Answer:
    with HttpAnswers(answer) as server:
        return ask([server.url])[server.url]


def test_one_initialize_is_sent_with_nothing_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HttpAnswers(reply("200 OK")) as server:
        assert ask([server.url, server.url]) == {server.url: Answer()}
        (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /mcp HTTP/1.1\r\n")
    assert json.loads(body)["method"] == "initialize"
    names = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
    assert names == {
        b"host",
        b"accept-encoding",
        b"content-length",
        b"accept",
        b"content-type",
        b"connection",
        b"user-agent",
    }


@pytest.mark.parametrize("headers", [[], ['WWW-Authenticate: Bearer resource_metadata="http://e.test/x"']])
def test_401_asks_for_a_login(headers: list[str]) -> None:
    assert answer_of(reply("401 Unauthorized", b"", *headers)) == Answer(asks_for_login=True)


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted", "400 Bad Request", "403 No", "404 Not Found", "405 No"])
def test_whatever_else_a_server_says_it_is_there(status: str) -> None:
    assert answer_of(reply(status)) == Answer()


def test_a_redirect_is_told_and_never_followed() -> None:
    with HttpAnswers(reply("200 OK")) as other:
        assert answer_of(reply("307 Away", b"", f"Location: {other.url}")).fault == "sends us to another server"
        assert other.requests == []
    assert answer_of(reply("308 Away", b"", "Location: /elsewhere")).fault == "sends us to another address"
    assert answer_of(reply("302 Away", b"", "Location: http://[")).fault == "sends us to another server"


@pytest.mark.parametrize(
    "answer",
    [b"", b"\r\n", b"SSH-2.0-x\r\n", b"\0" * 1000, b"HTTP/1.1 200\r\n" + b"X: y\r\n" * 10_000,
     b"HTTP/1.1 " + b"9" * 90_000, b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nX: " + b"y" * 90_000],
)  # fmt: skip
def test_garbage_is_a_sentence(answer: bytes) -> None:
    fault = answer_of(answer).fault
    assert fault is not None and len(fault) < 100


def test_a_server_that_is_broken_or_not_there_is_a_sentence() -> None:
    assert answer_of(reply("503 Busy")).fault == "answers with HTTP status 503"
    with nobody_listens() as port:
        url = f"http://127.0.0.1:{port}/mcp"
        assert (ask([url])[url].fault or "").startswith("cannot be reached (")


def test_a_server_without_tls_behind_https_is_a_sentence() -> None:
    with HttpAnswers(reply("200 OK")) as server:
        url = server.url.replace("http:", "https:")
        assert ask([url])[url].fault is not None


def test_a_server_that_never_answers_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "TELL_AFTER_S", 0.1)
    monkeypatch.setattr(probing, "DEADLINE_S", 2.0)  # in which the quick one answers, however busy the machine
    told: list[int] = []
    with HttpAnswers(None) as silent, HttpAnswers(reply("401 No", b"")) as quick:
        answers = ask([silent.url, quick.url], slow=told.append)
    assert answers[quick.url].asks_for_login
    assert "did not answer" in (answers[silent.url].fault or "")
    assert told == [1]


def test_ten_servers_are_asked_at_once() -> None:
    """None of them is answered before all ten have been asked."""
    with HttpAnswers(reply("401 No", b""), together=10) as server:
        answers = ask([f"{server.url}/{number}" for number in range(10)])
    assert [answer.asks_for_login for answer in answers.values()] == [True] * 10


def test_a_file_cannot_make_us_ask_the_whole_world() -> None:
    with HttpAnswers(reply("200 OK")) as server:
        ask([f"{server.url}/{number}" for number in range(3 * MAX_ASKED)])
        assert len(server.requests) == MAX_ASKED
