"""Answers of our own: a refusal in the words of the contract, and what the server could not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import THROTTLE

if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import Decision
    from subluminal.http.heads import Headers
    from subluminal.http.inbound import Visit

FORBIDDEN, TOO_MANY = 403, 429
_HEADERS: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class OwnAnswer:
    """One answer that is ours from beginning to end."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, error: dict[str, Any], more: dict[str, Any], headers: Headers | None = None
    ) -> None:
        self.status = status
        self.headers = [*_HEADERS, *(headers or ())]
        self.body = to_json({"error": error, **more}).encode("utf-8", "replace")

    def give(self, visit: Visit) -> None:
        visit.answer(self.status, self.headers, self.body)


def refusal(decision: Decision, code: int, message: str, data: dict[str, Any], doubt: str | None) -> OwnAnswer:
    """`code`, `message` and `data` are contract C's. `doubt`: what of the request has more than one reading."""
    error: dict[str, Any] = {"code": code, "message": message}
    if doubt is not None:
        error["detail"] = doubt
    if decision.action != THROTTLE:
        return OwnAnswer(FORBIDDEN, error, data)
    seconds = max(1, -(-(decision.backoff_ms or 0) // 1000))
    return OwnAnswer(TOO_MANY, error, data, [(b"retry-after", b"%d" % seconds)])


def own_answer(status: int, message: str) -> OwnAnswer:
    """Where no policy speaks: nothing named `subluminal` is in it."""
    return OwnAnswer(status, {"code": status, "message": message}, {})
