"""Answers of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subluminal.http.heads import Headers
    from subluminal.http.inbound import Visit

JSON_TYPE: Headers = [(b"content-type", b"application/json")]
EVENT_STREAM: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]


def json_answer(visit: Visit, status: int, body: bytes, headers: Headers | None = None) -> None:
    visit.answer(status, [*(headers or ()), *JSON_TYPE], body)


def one_body(messages: list[bytes]) -> bytes:
    """One message as it is, several as an array."""
    return messages[0] if len(messages) == 1 else b"[" + b",".join(messages) + b"]"
