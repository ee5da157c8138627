"""The Responses API, as the doors see it.

`previous_response_id`: the history is at the provider, with every call under its own name. A refused one is found again
by what this object remembers (`remembered`), and only by that.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import to_json
from subluminal.model.responses.judged import Judgements
from subluminal.model.responses.remembered import Remembered
from subluminal.model.responses.request import ResponsesRequest, read_request
from subluminal.model.responses.streamed import StreamedAnswer
from subluminal.model.responses.unstreamed import UnstreamedAnswer
from subluminal.model.words import Answer, Api

# What the API itself says of a status; clients read it to tell what to try again.
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ResponsesApi:
    name = "responses"

    def __init__(self) -> None:
        self._remembered = Remembered()

    def read_request(self, body: bytes) -> ResponsesRequest:
        return read_request(body, self._remembered)

    def answer(self, streamed: bool, max_call_bytes: int) -> Answer:
        judgements = Judgements(max_call_bytes, self._remembered)
        return (StreamedAnswer if streamed else UnstreamedAnswer)(max_call_bytes, judgements)

    def error(self, status: int, message: str, data: dict[str, object] | None = None) -> bytes:
        kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
        code = data.get("reason_code") if data else None
        error = {"message": message, "type": kind, "param": None, "code": code if isinstance(code, str) else None}
        body: dict[str, object] = {"error": error}
        if data is not None:
            body["subluminal"] = data
        return to_json(body).encode("utf-8", "replace")


API: Api = ResponsesApi()
