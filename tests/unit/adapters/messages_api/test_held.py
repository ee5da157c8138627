"""What answers keep in memory while calls have no end: bounded for all of them together, and given back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.model_server import block_events, calls, message_events
from subluminal.adapters.messages_api import provider as providers
from subluminal.adapters.messages_api.answering import Answering
from subluminal.adapters.messages_api.provider import Provider
from subluminal.adapters.messages_api.targets import operation
from subluminal.http.heads import ResponseHead
from subluminal.http.urls import read_url

ROOM = 20_000
LONG = json.dumps({"command": "x" * 3_000})


class Pool:
    """The connections: nothing is asked of them here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Nothing:
    """Is shown to the provider."""

    def without(self, headers: Any) -> Any:
        return headers


class Client:
    def __init__(self) -> None:
        self.begun = False
        self.got = b""

    def begin(self, *_: Any) -> None:
        self.begun = True

    def send(self, data: bytes) -> None:
        self.got += data

    def answer(self, status: int, headers: Any, body: bytes) -> None:
        self.got += body

    def end(self) -> None: ...
    def break_off(self) -> None: ...


class Run:
    """Allows everything."""

    may_refuse = True

    def __init__(self) -> None:
        self.unread: list[str] = []

    def do(self, work: Any, *args: Any, needs_state: bool) -> None:
        work(*args)

    def judge(self, api: Any, emitted: Any) -> bytes:
        return bytes(emitted.decided(None))

    def unreadable(self, why: str, size: int) -> None:
        self.unread.append(why)

    def note(self, api: Any, usage: Any) -> None: ...


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setattr(providers, "MAX_HELD_BYTES", ROOM)
    url = "http://127.0.0.1:1"
    monkeypatch.setattr(providers, "Pool", lambda origin: Pool())
    made = Provider("model", read_url(url), Nothing())  # type: ignore[arg-type]
    monkeypatch.setattr(Answering, "_break_off", lambda self: None)
    return made


def begun(provider: Provider, run: Run, kind: bytes = b"text/event-stream") -> tuple[Answering, Client]:
    client = Client()
    asked = operation(b"POST", b"/v1/messages")
    answering = Answering(provider, client, run, asked, True)  # type: ignore[arg-type]
    answering.head(ResponseHead(status=200, keep_alive=True, headers=[(b"content-type", kind)]))
    return answering, client


def test_calls_without_an_end_have_one_bound_over_all_answers(provider: Provider) -> None:
    run = Run()
    held = block_events(0, calls("Bash", LONG))[:-1]
    answers = [begun(provider, run) for _ in range(3)]
    for answering, _ in answers:
        for event in held:
            answering.data(event)
    assert run.unread, "not all of them fit"
    assert set(run.unread) == {"more is held here at once than there is room for"}
    assert provider._held <= ROOM
    refused = [client.got for _, client in answers if b"event: error" in client.got]
    assert len(refused) == len(run.unread)
    assert not any(b"Bash" in client.got for _, client in answers)
    for answering, _ in answers:
        answering.give_up()
    assert provider._held == 0


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_what_an_answer_held_is_given_back_at_its_end(provider: Provider, kind: bytes) -> None:
    for _ in range(10):
        answering, client = begun(provider, Run(), kind)
        for event in message_events(calls("Bash", LONG)) if kind.startswith(b"text") else [b'{"content":[]', b"}"]:
            answering.data(event)
        answering.end()
        assert provider._held == 0
        assert client.got


def test_what_a_client_does_not_take_is_still_held(provider: Provider) -> None:
    answering, _ = begun(provider, Run())
    events = block_events(0, calls("Bash", LONG))
    for event in events[:-1]:
        answering.data(event)
    held = provider._held
    answering.client_is_full(True)
    answering.data(events[-1])
    assert provider._held == held
    answering.client_is_full(False)
    assert provider._held == 0
