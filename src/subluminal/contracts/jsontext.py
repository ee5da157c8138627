"""JSON text of small plain values without importing `json` or msgspec, in the bytes both would write compactly."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["escaped", "quote", "to_json"]

try:
    from _json import encode_basestring as quote  # the C escaper; importing `json` itself costs 8 ms of start-up
except ImportError:  # an interpreter without the accelerator
    from json.encoder import py_encode_basestring as quote


def to_json(value: Any) -> str:
    """Compact JSON of plain values, keys in their own order; for the small objects in events, not for payloads."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(str(k))}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(to_json, value)) + "]"
    return _number(value)


def escaped(text: str) -> str:
    """JSON text for showing or exporting, equal in value: what a terminal, an editor or a page would obey or hide (C1,
    directions, zero widths, line separators, lone surrogates) becomes an escape. JSON has it in strings only."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isprintable() or c in "\n\r\t" else _escape(c) for c in text)


def _escape(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _number(value: Any) -> str:
    """Floats and Decimals, the only values left: a number JSON cannot say becomes null rather than a broken line."""
    text = str(value)
    return text if text.lstrip("-")[:1].isdigit() else "null"
