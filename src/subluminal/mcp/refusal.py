"""What a refused caller receives, and what a caller receives whose server has gone (§3.2)."""

from __future__ import annotations

from subluminal.contracts.jsontext import quote, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SERVER_GONE = -32000


class Refusal:
    """`as_result`: the caller gets a result with `isError` instead of an error (`refusal_style`)."""

    __slots__ = ("as_result", "code", "data", "era_2026", "message")

    def __init__(self, code: int, message: str, data: dict[str, Any], as_result: bool, era_2026: bool) -> None:
        self.code = code
        self.message = message
        self.data = data
        self.as_result = as_result
        self.era_2026 = era_2026

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = {"content": [{"type": "text", "text": self.message}], "isError": True}
        if self.era_2026:
            result["resultType"] = "complete"
        return {**result, "_meta": self.data}

    def reply(self, id_raw: bytes) -> bytes:
        if self.as_result:
            body = f'"result":{to_json(self.result())}'
        else:
            body = f'"error":{{"code":{self.code},"message":{quote(self.message)},"data":{to_json(self.data)}}}'
        return _reply(id_raw, body)


def server_gone(id_raw: bytes, message: str) -> bytes:
    return _reply(id_raw, f'"error":{{"code":{SERVER_GONE},"message":{quote(message)}}}')


def _reply(id_raw: bytes, body: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id_raw + b"," + body.encode("utf-8", "replace") + b"}"
