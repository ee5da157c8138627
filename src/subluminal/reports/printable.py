"""Words for people; foreign text is shown, never obeyed. Imports nothing: every command loads this."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Text from agents and servers may hold terminal control sequences: show them, never obey them, but for `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
