"""Keys of predicates as paths: how deep they lead, and what is written like a path and is none."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\[.\[\\]")
_BAD_ESCAPE = re.compile(r"\\(?![.\[\\])")
_INDEX = re.compile(r"\[([0-9]+|\*)\]")


def is_dotted(key: str) -> bool:
    """Whether it is read both as a path and as one key, and both can be meant."""
    bare = _ESCAPE.sub("x", key)
    return "." in bare and "[]" not in bare and all(bare.split("."))


def escaped(key: str) -> str:
    """The spelling that is one key and no path."""
    return _BAD_ESCAPE.sub(r"\\\\", key).replace("\\.", ".").replace(".", "\\.").replace("[]", "\\[]")


def key_fault(key: str) -> tuple[str, str] | None:
    """What was written like a path and is none, so that it is one top-level key; and what to do."""
    bare = _ESCAPE.sub("x", key)
    one_key = f"if one top-level key is meant, write {escaped(key)}"
    if _BAD_ESCAPE.search(key):
        return r"has a \ that escapes nothing: \. is a dot, \[ a bracket, \\ a backslash", r"write \\ for a backslash"
    if _INDEX.search(bare):
        path = _INDEX.sub("[]", key)
        return "has an index: no path picks one element", f"write {path}, which is every element"
    if "." in bare and not all(segment.replace("[]", "") for segment in bare.split(".")):
        return "has an empty segment, so it is no path", one_key
    if "[]" in bare and not all(re.fullmatch(r"[^\[\]]+(\[\])*", segment) for segment in bare.split(".")):
        return "has [] where no list can be, so it is no path", one_key
    return None
