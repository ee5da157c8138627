"""Words in sentences about logins: commands that can be typed, and what a server said, made harmless."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from subluminal.reports.printable import printable

MAX_SAID_CHARS = 200


def login_words(name: str, url: str, *more: str) -> str:
    """The command that logs in at a server, as it is typed into a shell."""
    named = ("--url", url, *more, "--", name) if name.startswith("-") else (name, "--url", url, *more)
    return printable(" ".join(quote(word) for word in ("sub", "login", *named)))


def said(text: object, secrets: Iterable[str] = ()) -> str:
    """A server's own text: short, without control characters, and without what we sent it."""
    if not isinstance(text, str):
        return ""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    cut = printable(text[:MAX_SAID_CHARS])
    return cut if len(text) <= MAX_SAID_CHARS else cut + "…"
