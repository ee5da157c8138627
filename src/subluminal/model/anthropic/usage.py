"""What the provider states of a message: taken as it is, and left out where it is not stated as expected."""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.model.words import Usage

_NUMBERS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_value = msgspec.json.Decoder(Any).decode


def started(message: bytes) -> Usage:
    """Of `message_start`. Its output tokens are those so far: only later numbers say what the message took."""
    usage = finished(message)
    usage.output_tokens = usage.stop_reason = None
    return usage


def finished(message: bytes) -> Usage:
    """Of a whole message."""
    usage = Usage(cached_in_input=False)
    value = _object(message)
    usage.message_id = _text(value, "id")
    usage.model = _text(value, "model")
    usage.stop_reason = _text(value, "stop_reason")
    _take_numbers(usage, value.get("usage"))
    return usage


def take_delta(usage: Usage, event: bytes) -> None:
    """Of `message_delta`: its numbers are of the whole message, and the last ones stand."""
    value = _object(event)
    delta = value.get("delta")
    if isinstance(delta, dict):
        usage.stop_reason = _text(delta, "stop_reason") or usage.stop_reason
    _take_numbers(usage, value.get("usage"))


def _take_numbers(usage: Usage, stated: object) -> None:
    if not isinstance(stated, dict):
        return
    for key in _NUMBERS:
        if _is_count(stated.get(key)):
            setattr(usage, key, stated[key])
    tools = stated.get("server_tool_use")
    if isinstance(tools, dict):
        usage.server_tool_requests = sum(count for count in tools.values() if _is_count(count))


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) else None


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = _value(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
