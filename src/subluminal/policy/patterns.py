"""Name patterns as the linter sees them: which are legal, and which cover which.

Globs are globs on names, not paths: `*` is any text, `?` any one character, everything else itself. Regexes are RE2,
so their time is linear in the name; what only a backtracking engine can do is refused by name.
"""

from __future__ import annotations

import re

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False

_BACKTRACKING = (
    (re.compile(r"\(\?<?[=!]"), "lookaround such as (?=...) or (?<!...)"),
    (re.compile(r"\\[1-9]|\(\?P=|\\k<"), r"a backreference such as \1"),
    (re.compile(r"\(\?>|[*+?}]\+"), "an atomic group or possessive repeat"),
    (re.compile(r"\(\?\(|\(\?R\)|\(\?[0-9]"), "a conditional or recursive group"),
)


def regex_fault(pattern: str) -> tuple[str, str] | None:
    """Why RE2 refuses a pattern, and what to do; None if it takes it."""
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        for syntax, name in _BACKTRACKING:
            if syntax.search(pattern):
                return f"uses {name}, which needs backtracking", "rewrite it without, or split it into two rules"
        reason = error.args[0] if error.args else "bad pattern"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return (
            f"is not a valid RE2 pattern: {text}",
            "see https://github.com/google/re2/wiki/Syntax; escape special characters with \\",
        )
    return None


def normal_glob(glob: str) -> str:
    """`**` says no more than `*`, and `*?` the same as `?*`."""

    def run(match: re.Match[str]) -> str:
        text = match.group()
        return "?" * text.count("?") + ("*" if "*" in text else "")

    return re.sub(r"[*?]+", run, glob)


def normal_globs(globs: list[str]) -> list[str]:
    """Normal forms in their order, without repeats."""
    return list(dict.fromkeys(normal_glob(glob) for glob in globs))


def glob_covers(wide: str, narrow: str) -> bool:
    """Whether every name that `narrow` matches is matched by `wide`. Both in normal form.

    `wide` is matched against the text of `narrow`, in which `*` is a symbol that only `*` can take and `?` one that
    only `?` and `*` can take. Linear space, at most quadratic time.
    """
    reachable = {0}
    for symbol in wide:
        if symbol == "*":
            reachable = set(range(min(reachable), len(narrow) + 1))
        elif symbol == "?":
            reachable = {at + 1 for at in reachable if at < len(narrow) and narrow[at] != "*"}
        else:
            reachable = {at + 1 for at in reachable if at < len(narrow) and narrow[at] == symbol}
        if not reachable:
            return False
    return len(narrow) in reachable


def name_covers(wide: dict[str, list[str]] | None, narrow: dict[str, list[str]] | None) -> bool:
    """The same for a `server_name` or `tool_name` matcher; None matches every name. False when it cannot be told."""
    if wide is None or "*" in wide.get("glob", []) or ".*" in wide.get("regex", []):
        return True
    if narrow is None:
        return False
    wide_globs = wide.get("glob", [])
    return all(any(glob_covers(w, n) for w in wide_globs) for n in narrow.get("glob", [])) and all(
        n in wide.get("regex", []) for n in narrow.get("regex", [])
    )
