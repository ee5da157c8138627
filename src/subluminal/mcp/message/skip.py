"""Passing over a nested JSON value as its bytes come, without a look inside: a part of `scan`.

Strings are cut away and only brackets counted, all in C. Most pieces cannot hold the value's end, and counting proves
it; the others are walked bracket by bracket.
"""

from __future__ import annotations

import re

# Rounds of removing matched bracket pairs before counting one by one.
_COLLAPSE_ROUNDS = 8
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"{}[]")
# All that JSON has outside strings. Anything else (a comment, a single quote) could make a lenient parser begin or end
# its strings elsewhere than we do.
_OUTSIDE_STRINGS = b" \t{}[],:+-.0123456789eEtrufalsn"
_TOKEN = re.compile(rb'"[^"]*"?|[{}\[\]]')


class Skip:
    """`doubt` says what a strict look has found, `ended` that the value has."""

    __slots__ = ("_depth", "_in_string", "doubt", "ended")

    def __init__(self) -> None:
        self.begin()

    def begin(self, depth: int = 0) -> None:
        """`depth`: brackets of the value that are open already."""
        self.doubt: str | None = None
        self.ended = False
        self._depth = depth
        self._in_string = False

    def run(self, clean: bytes, pos: int, strict: bool) -> int:
        """On from `pos` to behind the value, or to the end of the piece. `clean` has its escapes blanked out."""
        if self._in_string and clean.find(b'"', pos) < 0:  # most of a large message is one text
            if strict and clean.find(b"\t", pos) >= 0:
                self.doubt = "a raw control character"
            return len(clean)
        rest = clean[pos:] if pos else clean
        pieces = rest.split(b'"')
        outside = b"".join(pieces[1::2] if self._in_string else pieces[0::2])
        if strict and outside.translate(None, _OUTSIDE_STRINGS):
            self.doubt = "invalid JSON"
        elif strict and b"\t" in rest and outside.count(b"\t") != rest.count(b"\t"):
            self.doubt = "a raw control character"
        brackets = outside.translate(None, _NOT_BRACKETS)
        for _ in range(_COLLAPSE_ROUNDS):
            fewer = brackets.replace(b"{}", b"").replace(b"[]", b"")
            if len(fewer) == len(brackets):
                break
            brackets = fewer
        closers = brackets.count(b"}") + brackets.count(b"]")
        # With depth 0 the value begins in this piece, and a collapsed pair could be its beginning and end.
        if closers < self._depth:
            self._depth += len(brackets) - 2 * closers
            if len(pieces) % 2 == 0:
                self._in_string = not self._in_string
            return len(clean)
        return self._run_exactly(clean, pos)

    def _run_exactly(self, clean: bytes, pos: int) -> int:
        if self._in_string:
            quote = clean.find(b'"', pos)
            if quote < 0:
                return len(clean)
            self._in_string = False
            pos = quote + 1
        for match in _TOKEN.finditer(clean, pos):
            token = match.group()
            if token[0] == 0x22:
                if len(token) == 1 or token[-1] != 0x22:
                    self._in_string = True
            elif token in (b"{", b"["):
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    self.ended = True
                    return match.end()
        return len(clean)
