"""Patterns of names and texts as the linter sees them: which are legal, and which cover which.

Globs are those of `contracts.globs`. Regexes are RE2, so their time is linear in the name; what only a backtracking
engine can do is refused by name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from subluminal.contracts.globs import MAX_GLOB_CHARS, glob_test, glob_tokens, literal_head
from subluminal.core.engine.names import PATTERN_MEMORY, Pattern, re2_options, regex_patterns

_head = lru_cache(maxsize=10_000)(literal_head)
_tokens = lru_cache(maxsize=10_000)(glob_tokens)
_glob_test = lru_cache(maxsize=1_000)(glob_test)

# About the most instructions that RE2 compiles within it: the work that a pattern costs which it refuses as too large.
_LARGEST_PROGRAM = 12_000

# A regex is found anywhere in a name, so these find it in every name.
EVERYTHING = {"", ".*", "^", "^.*", ".*$"}

_BACKTRACKING = (
    (r"\(\?<?[=!]", "lookaround such as (?=...) or (?<!...)"),
    (r"\\[1-9]|\(\?P=|\\k<", r"a backreference such as \1"),
    (r"\(\?>|[*+?}]\+", "an atomic group or possessive repeat"),
    (r"\(\?\(|\(\?R\)|\(\?[0-9]", "a conditional or recursive group"),
)


class Regex(NamedTuple):
    """What RE2 makes of a pattern: the instructions it compiles to, and why it refuses it and what to do."""

    size: int
    fault: tuple[str, str] | None = None


def compiled_regex(pattern: str) -> Regex:
    import re2  # many policies have no pattern

    try:
        return Regex(re2.compile(pattern, re2_options(PATTERN_MEMORY)).programsize)
    except re2.error as error:
        reason = error.args[0] if error.args else "bad pattern"
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    for syntax, name in _BACKTRACKING:
        if re.search(syntax, pattern):
            fault = f"uses {name}, which needs backtracking", "rewrite it without, or split it into two rules"
            return Regex(0, fault)
    if "too large" in text:
        return Regex(_LARGEST_PROGRAM, ("is too large", "split it, or use globs"))
    advice = "see https://github.com/google/re2/wiki/Syntax; escape special characters with \\"
    return Regex(0, (f"is not a valid RE2 pattern: {text}", advice))


def glob_sets(glob: str) -> list[str]:
    """The `[...]` sets of a glob."""
    return [token for token in _tokens(glob) if len(token) > 1] if "[" in glob else []


def normal_glob(glob: str) -> str:
    """`**` says no more than `*`, and `*?` the same as `?*`."""
    out: list[str] = []
    for token in _tokens(glob):
        if token == "*" and out[-1:] == ["*"]:
            continue
        if token == "?" and out[-1:] == ["*"]:
            out.insert(-1, "?")
        else:
            out.append(token)
    return "".join(out)


def normal_globs(globs: list[str]) -> list[str]:
    """Normal forms in their order, without repeats."""
    return list(dict.fromkeys(normal_glob(glob) for glob in globs))


def glob_covers(wide: str, narrow: str) -> bool:
    """Whether every name that `narrow` matches is matched by `wide`. May say no where the answer is yes.

    `wide` is matched against the tokens of `narrow`, among which `*` can only be taken by `*`, and `?` or a set only
    by `*`, `?` or the same set.
    """
    if len(wide) > MAX_GLOB_CHARS or len(narrow) > MAX_GLOB_CHARS or not narrow.startswith(_head(wide)):
        return False
    text = _tokens(narrow)
    reachable = {0}
    for token in _tokens(wide):
        if token == "*":
            reachable = set(range(min(reachable), len(text) + 1))
        elif token == "?":
            reachable = {at + 1 for at in reachable if at < len(text) and text[at] != "*"}
        else:
            reachable = {at + 1 for at in reachable if at < len(text) and text[at] == token}
        if not reachable:
            return False
    return len(text) in reachable


def name_covers(wide: dict[str, list[str]] | None, narrow: dict[str, list[str]] | None) -> bool:
    """The same for a `server_name` or `tool_name` matcher; None matches every name. False when it cannot be told."""
    if wide is None or "*" in wide.get("glob", []) or EVERYTHING & set(wide.get("regex", [])):
        return True
    if narrow is None:
        return False
    wide_globs = wide.get("glob", [])
    return all(any(glob_covers(w, n) for w in wide_globs) for n in narrow.get("glob", [])) and all(
        n in wide.get("regex", []) for n in narrow.get("regex", [])
    )


def names_overlap(a: dict[str, list[str]] | None, b: dict[str, list[str]] | None) -> bool:
    """Whether one name may match both; True when it cannot be told."""
    if a is None or b is None or a.get("regex") or b.get("regex"):
        return True
    return any(globs_overlap(x, y) for x in a.get("glob", []) for y in b.get("glob", []))


def globs_overlap(one: str, other: str) -> bool:
    """Only the fixed text before the first and after the last star can prove that two globs have no name in common."""
    a, b = _tokens(one), _tokens(other)
    if "*" not in a and "*" not in b and len(a) != len(b):
        return False
    return _heads_agree(a, b) and _heads_agree(a[::-1], b[::-1])


def _heads_agree(a: list[str], b: list[str]) -> bool:
    for x, y in zip(a, b, strict=False):
        if x == "*" or y == "*":
            return True
        if len(x) == len(y) == 1 and "?" not in (x, y) and x != y:
            return False
    return True


def text_matches(field: str, wanted: list[str], text: str) -> bool | None:
    """Whether a text meets `key_glob`, `key_regex` or `key_contains`; None if a pattern is not legal."""
    if field == "key_contains":
        return any(part in text for part in wanted)
    if field == "key_glob":
        return any(_glob_test(glob)(text) for glob in wanted)
    tests = [_regex_tests(regex) for regex in wanted]
    return None if None in tests else any(pattern.test(text) for test in tests for pattern in test or ())


@lru_cache(maxsize=1_000)
def _regex_tests(regex: str) -> list[Pattern] | None:
    return None if compiled_regex(regex).fault else regex_patterns(regex)
