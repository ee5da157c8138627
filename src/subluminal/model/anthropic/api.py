"""The one value that doors take: `API`."""

from __future__ import annotations

from subluminal.contracts.jsontext import to_json
from subluminal.model.anthropic.request import read_request
from subluminal.model.anthropic.stream import StreamedAnswer
from subluminal.model.anthropic.whole import WholeAnswer
from subluminal.model.words import Answer, Api, Request

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    name = "anthropic"

    def read_request(self, body: bytes) -> Request:
        return read_request(body)

    def answer(self, streamed: bool, max_call_bytes: int) -> Answer:
        return StreamedAnswer(max_call_bytes) if streamed else WholeAnswer(max_call_bytes)

    def error(self, status: int, message: str, data: dict[str, object] | None = None) -> bytes:
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}
        if data is not None:
            body["subluminal"] = data
        return to_json(body).encode("utf-8", "replace")


API: Api = AnthropicMessages()
