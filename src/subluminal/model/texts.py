"""Texts in a JSON value: what nobody here knows may hold a key, so all of them are masked."""

from __future__ import annotations

from typing import Any


def texts_in(value: Any) -> list[str]:
    """All texts in a value, at whatever depth."""
    found: list[str] = []
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            found += [inner] if inner else []
        elif isinstance(inner, dict):
            left += inner.values()
        elif isinstance(inner, list):
            left += inner
    return found
