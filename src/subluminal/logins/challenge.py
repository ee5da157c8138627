"""`WWW-Authenticate`: what a server says about the token that it wants (RFC 9110 §11, RFC 6750 §3, RFC 9728 §5.1).

Read in one pass. A header may hold several challenges, and a scheme is told from a parameter by what follows it.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_CHARS = 8192
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def bearer(headers: str | Iterable[str]) -> dict[str, str] | None:
    """The parameters of the first Bearer challenge, names in lower case; None if there is none."""
    for header in (headers,) if isinstance(headers, str) else headers:
        for scheme, parameters in _challenges(header[:MAX_CHARS]):
            if scheme == "bearer":
                return parameters
    return None


def _challenges(text: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    place = 0
    while place < len(text):
        place = _past(text, place, " \t,")
        start = place
        while place < len(text) and text[place] in _TOKEN:
            place += 1
        if place == start:
            place += 1  # nothing that we understand; what comes after it may be
            continue
        word = text[start:place].lower()
        after = _past(text, place, " \t")
        if after < len(text) and text[after] == "=" and found:
            value, place = _value(text, _past(text, after + 1, " \t"))
            found[-1][1].setdefault(word, value)
        else:
            found.append((word, {}))
    return found


def _value(text: str, place: int) -> tuple[str, int]:
    if place >= len(text) or text[place] != '"':
        start = place
        while place < len(text) and text[place] not in ", \t":
            place += 1
        return text[start:place], place
    pieces = []
    place += 1
    while place < len(text) and text[place] != '"':
        if text[place] == "\\":
            place += 1
        pieces.append(text[place : place + 1])
        place += 1
    return "".join(pieces), place + 1


def _past(text: str, place: int, skipped: str) -> int:
    while place < len(text) and text[place] in skipped:
        place += 1
    return place
