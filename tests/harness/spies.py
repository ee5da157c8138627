"""Tool servers with parsers of their own: given the bytes that reached them, which tools would each have run?

A spy is a way to cut a stream into texts, a way to parse a text, and a way to recognise a call. All of them exist in
real servers; some are sloppy. None is here to be polite to: a tool that any spy would run, the shim must have judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Pairs = list[tuple[str, Any]]

_NUMBER = re.compile(r"[-+]?(Infinity|NaN|0x[0-9a-fA-F]+|[0-9.]+([eE][-+]?[0-9]+)?)")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_BLANK = re.compile(r"(\s|\ufeff|/\*.*?\*/|//[^\n\r]*|#[^\n\r]*)+", re.DOTALL)
_PLAIN = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^'\\]+")}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


def first_wins(pairs: Pairs) -> dict[str, Any]:
    return dict(reversed(pairs))


def folded(pairs: Pairs) -> dict[str, Any]:
    """As Go's encoding/json: keys match in any case; the last one wins."""
    return {key.casefold().strip(): value for key, value in pairs}


def folded_first(pairs: Pairs) -> dict[str, Any]:
    return first_wins([(key.casefold().strip(), value) for key, value in pairs])


def c_strings(pairs: Pairs) -> dict[str, Any]:
    return {
        key.partition("\0")[0]: value.partition("\0")[0] if isinstance(value, str) else value for key, value in pairs
    }


def strictly(text: str, hook: Callable[[Pairs], dict[str, Any]] = dict) -> Iterator[Any]:
    try:
        yield json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return


def one_after_another(text: str) -> Iterator[Any]:
    """Every value on the line, up to what is no value."""
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value
        at += len(text) - at - len(text[at:].lstrip(" \t,;\x1e"))


def at_every_brace(text: str) -> Iterator[Any]:
    """Past what is no value, the next that begins with a brace (for some attempts)."""
    decoder = json.JSONDecoder()
    at = attempts = 0
    while at < len(text) and attempts < 40:
        try:
            value, at = decoder.raw_decode(text, at)
            yield value
        except (ValueError, RecursionError):
            attempts += 1
            following = text.find("{", at + 1)
            if following < 0:
                return
            at = following


class Lenient:
    """Comments, single quotes, bare keys, trailing commas, NaN: what configuration parsers take."""

    def __init__(self, text: str, hook: Callable[[Pairs], dict[str, Any]]) -> None:
        self.text = text
        self.at = 0
        self.hook = hook

    def blank(self) -> str:
        match = _BLANK.match(self.text, self.at)
        if match:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        sign = self.blank()
        if sign == "{":
            return self.object()
        if sign == "[":
            return self.array()
        if sign in ('"', "'") and sign:
            return self.string(sign)
        match = _NUMBER.match(self.text, self.at) or _WORD.match(self.text, self.at)
        if match is None:
            raise ValueError(self.at)
        self.at = match.end()
        return {"true": True, "false": False, "null": None}.get(match.group(), match.group())

    def object(self) -> Any:
        self.at += 1
        pairs: Pairs = []
        while (sign := self.blank()) != "}":
            if sign == ",":
                self.at += 1
                continue
            key = self.value()
            if self.blank() != ":":
                raise ValueError(self.at)
            self.at += 1
            pairs.append((str(key), self.value()))
        self.at += 1
        return self.hook(pairs)

    def array(self) -> Any:
        self.at += 1
        items = []
        while (sign := self.blank()) != "]":
            if sign == ",":
                self.at += 1
                continue
            items.append(self.value())
        self.at += 1
        return items

    def string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN[quote].match(self.text, self.at)
            if match:
                parts.append(match.group())
                self.at = match.end()
            sign = self.text[self.at : self.at + 1]
            if sign == quote:
                self.at += 1
                return "".join(parts)
            if sign != "\\":
                raise ValueError(self.at)
            following = self.text[self.at + 1 : self.at + 2]
            if following in ("u", "x"):
                size = 4 if following == "u" else 2
                parts.append(chr(int(self.text[self.at + 2 : self.at + 2 + size], 16)))
                self.at += 2 + size
            else:
                parts.append(_ESCAPES.get(following, following))
                self.at += 2


def leniently(text: str, hook: Callable[[Pairs], dict[str, Any]] = dict) -> Iterator[Any]:
    try:
        yield Lenient(text, hook).value()  # what follows the first value is ignored
    except (ValueError, RecursionError, OverflowError):
        return


def lines(stream: bytes) -> Iterator[str]:
    for line in stream.split(b"\n"):
        yield line.decode("utf-8", "replace")


def universal_newlines(stream: bytes) -> Iterator[str]:
    yield from re.split("\r\n|\r|\n", stream.decode("utf-8", "replace"))


def unicode_lines(stream: bytes) -> Iterator[str]:
    yield from stream.decode("utf-8", "replace").splitlines()


def ignoring_bad_bytes(stream: bytes) -> Iterator[str]:
    for line in stream.split(b"\n"):
        yield line.decode("utf-8", "ignore").lstrip("\ufeff\0").rstrip("\0")


def guessed_encoding(stream: bytes) -> Iterator[str]:
    for line in stream.split(b"\n"):
        yield line.decode(json.detect_encoding(line), "replace").lstrip("\ufeff")


def latin1(stream: bytes) -> Iterator[str]:
    for line in stream.split(b"\n"):
        yield line.decode("latin-1")


Cut = Callable[[bytes], Iterator[str]]
Parse = Callable[[str], Iterator[Any]]

SPIES: dict[str, tuple[Cut, Parse]] = {
    "last key wins": (lines, strictly),
    "first key wins": (lines, lambda text: strictly(text, first_wins)),
    "keys in any case": (lines, lambda text: strictly(text, folded)),
    "keys in any case, first wins": (lines, lambda text: strictly(text, folded_first)),
    "strings end at NUL": (lines, lambda text: strictly(text, c_strings)),
    "text mode, universal newlines": (universal_newlines, strictly),
    "unicode line ends": (unicode_lines, strictly),
    "one value after another": (lines, one_after_another),
    "values after CR too": (universal_newlines, one_after_another),
    "goes on at the next brace": (universal_newlines, at_every_brace),
    "lenient": (lines, leniently),
    "lenient, first key wins": (lines, lambda text: leniently(text, first_wins)),
    "lenient, keys in any case": (universal_newlines, lambda text: leniently(text, folded)),
    "drops bad bytes and BOM": (ignoring_bad_bytes, strictly),
    "guesses the encoding": (guessed_encoding, strictly),
    "latin-1": (latin1, strictly),
}

# The scan of large messages does not check the grammar inside nested values, so a server that goes on after a fault
# may find there what other parsers do not.
SCAN_SPIES = [spy for spy in SPIES if spy != "goes on at the next brace"]


def tools_run(spy: str, stream: bytes) -> list[str]:
    """The tools that this spy would have run, in order."""
    cut, parse = SPIES[spy]
    return [tool for text in cut(stream) if text for value in parse(text) for tool in _calls(value)]


def _calls(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                yield from _calls(item)
    elif isinstance(value, dict):
        method, params = value.get("method"), value.get("params")
        if isinstance(method, str) and method.strip().lower() == "tools/call" and isinstance(params, dict):
            name = params.get("name")
            if isinstance(name, str):
                yield name
