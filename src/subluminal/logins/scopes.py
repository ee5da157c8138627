"""Scopes as RFC 6749 §3.3 spells them."""

from __future__ import annotations

from itertools import accumulate

MAX_SCOPES = 100
MAX_SCOPE_CHARS = 256
MAX_ALL_CHARS = 4096


def is_scope(word: object) -> bool:
    if not isinstance(word, str) or not 0 < len(word) <= MAX_SCOPE_CHARS:
        return False
    return all("!" <= c <= "~" and c not in '"\\' for c in word)


def readable(words: object) -> tuple[str, ...]:
    """The scopes in a server's list or text, each once; what is none, or beyond the bounds, is left out."""
    if isinstance(words, str):
        words = words.split(" ", MAX_SCOPES)
    if not isinstance(words, list):
        return ()
    found = dict.fromkeys(word for word in words[:MAX_SCOPES] if is_scope(word))
    ends = accumulate(len(word) + 1 for word in found)
    return tuple(word for word, end in zip(found, ends, strict=True) if end <= MAX_ALL_CHARS)
