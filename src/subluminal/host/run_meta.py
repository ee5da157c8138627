"""What a user says of a run, `run.meta` (§1.4): `SUB_RUN_META`, a JSON object or `key=value,key=value`.

It stands in every `run_start` of the run, masked like any text, so it is small: a few words by which runs are found
again. Loaded only where somebody has said something.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAX_META_CHARS = 4_096
MAX_META_KEYS = 32
MAX_KEY_CHARS = 64
MAX_DEPTH = 4
# What a producer says of itself; whoever reads these must be able to rely on them.
OWN_KEYS = ("server_name", "command")


class MetaFault(ValueError):
    """What is wrong with it, as the end of a sentence."""


def parse_meta(text: str) -> dict[str, Any]:
    """Raises MetaFault. An empty text is an empty object."""
    if len(text) > MAX_META_CHARS:
        raise MetaFault(f"it has more than {MAX_META_CHARS} characters")
    stripped = text.strip()
    meta = (
        _object(stripped) if stripped.startswith("{") else pairs(part for part in stripped.split(",") if part.strip())
    )
    return checked(meta)


def pairs(words: Iterable[str]) -> dict[str, Any]:
    """`key=value` each; the value is text as it stands. A fault names the place, not the text: it may be a secret."""
    meta: dict[str, Any] = {}
    for number, word in enumerate(words, 1):
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise MetaFault(f"entry {number} is not key=value")
        meta[key.strip()] = value
    return meta


def checked(meta: dict[str, Any]) -> dict[str, Any]:
    """The same, if it can stand in an event; raises MetaFault."""
    if len(meta) > MAX_META_KEYS:
        raise MetaFault(f"it has more than {MAX_META_KEYS} keys")
    for key in meta:
        if len(key) > MAX_KEY_CHARS:
            raise MetaFault(f"the key {key[:40]!r}... has more than {MAX_KEY_CHARS} characters")
        if key in OWN_KEYS:
            raise MetaFault(f"{key!r} is a word of Subluminal's own; choose another")
    if not _is_shallow(meta, MAX_DEPTH):
        raise MetaFault(f"it is nested deeper than {MAX_DEPTH}")
    try:
        json.dumps(meta, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise MetaFault("it has characters that are not text") from None
    except ValueError:
        raise MetaFault("it has a number that is none") from None
    return meta


def meta_text(meta: dict[str, Any]) -> str:
    """As `SUB_RUN_META` carries it to every process below; raises MetaFault where it would not be taken there."""
    text = json.dumps(meta, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_META_CHARS:
        raise MetaFault(f"it has more than {MAX_META_CHARS} characters")
    return text


def _object(text: str) -> dict[str, Any]:
    try:
        meta = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise MetaFault("it begins like a JSON object and is none") from None
    if not isinstance(meta, dict):
        raise MetaFault("it begins like a JSON object and is none")
    return meta


def _no_number(word: str) -> None:
    raise ValueError(word)


def _is_shallow(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inside = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in inside)
