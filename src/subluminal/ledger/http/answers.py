"""Answers of the HTTP API: JSON, in which nothing stands that a terminal or a page would obey."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from subluminal.contracts.jsontext import escaped


def json_text(value: Any) -> str:
    return escaped(msgspec.json.encode(value).decode())


def json_answer(value: Any, status: int = 200, **headers: str) -> web.Response:
    return web.Response(text=json_text(value), status=status, content_type="application/json", headers=headers)
