"""The query of a request as arguments: each name once, spelled as the mapping has it, each value decoded once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

# By these some frameworks take another method than that of the request.
METHOD_OVERRIDE = "_method"
_OVERRIDES = frozenset((METHOD_OVERRIDE, "x_http_method_override", "x_http_method", "x_method_override"))
QUERY_NAME = re.compile(r"[A-Za-z0-9_.~-]+\Z")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def read_query(text: str, names: Container[str] | None, taken: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """The parameters, and why there is more than one reading, if so. `names`: those there may be; None: any.

    `taken`: names that the path has already given a value.
    """
    found: dict[str, str] = {}
    folded = set(map(_folded, taken))
    if not text:
        return found, None
    if ";" in text:
        return found, "a semicolon in the query"
    for part in text.split("&"):
        name, equals, raw = part.partition("=")
        if not equals or not name:
            return found, "a part of the query without a name or a value"
        if not QUERY_NAME.match(name):
            return found, "a name in the query that is not spelled plainly"
        if _folded(name).replace("-", "_") in _OVERRIDES:
            return found, "another method in the query"
        if _folded(name) in folded:
            return found, "a parameter that is given twice"
        if names is not None and name not in names:
            return found, "a parameter in the query that the mapping does not have"
        value, doubt = _value(raw)
        if doubt is not None:
            return found, doubt
        folded.add(_folded(name))
        found[name] = value
    return found, None


def _folded(name: str) -> str:
    """Names that some servers take for the same one: they know no case, or no dots."""
    return name.casefold().replace(".", "_")


def _value(raw: str) -> tuple[str, str | None]:
    if _BAD_ESCAPE.search(raw):
        return raw, "a percent sign in the query that encodes nothing"
    try:
        value = unquote_to_bytes(raw.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError:
        return raw, "a query that is not UTF-8"
    if _ESCAPE.search(value):
        return value, "a value in the query that is encoded twice"
    return value, "a NUL in the query" if "\0" in value else None
