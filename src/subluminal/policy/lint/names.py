"""Name patterns that are empty, not legal, or too costly.

A repository's policy may be hostile: patterns are cheap to write and can be dear to compile and to run. Their number is
bounded before any of them is compiled, and compiling stops where they are too large together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subluminal.contracts.globs import glob_fault
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.patterns import compiled_regex, glob_sets
from subluminal.policy.lint.reporter import Linter, Path

# At 8 KiB for the largest legal set of a glob.
MAX_REGEXES = 2_000
MAX_GLOB_SETS = 2_000
# Instructions of all different regexes together. A usual one has 5 to 50; a thousand of them cost a microsecond of
# every character of a name never seen before, and a millisecond when a policy is read.
MAX_REGEX_PROGRAM = 50_000


def check_names(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    if _too_many(rules, linter):
        return
    regexes = _Regexes(linter)
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for field, names in _names(rule):
            if not names.get("glob") and not names.get("regex"):
                message = f"{field} has no pattern, so nothing matches"
                linter.error(("match", field), "never-matches", message, 'add glob: ["..."]')
            for number, glob in enumerate(names.get("glob", [])):
                _check_glob(glob, ("match", field, "glob", number), linter)
            for number, regex in enumerate(names.get("regex", [])):
                regexes.check(regex, ("match", field, "regex", number))


def _names(rule: dict[str, Any]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for field in ("server_name", "tool_name"):
        if field in rule["match"]:
            yield field, rule["match"][field]


def _too_many(rules: dict[int, dict[str, Any]], linter: Linter) -> bool:
    names = [names for rule in rules.values() for _, names in _names(rule)]
    regexes = sum(len(name.get("regex", [])) for name in names)
    sets = sum(len(glob_sets(glob)) for name in names for glob in name.get("glob", []))
    linter.base, linter.rule_id = (), None
    for number, bound, what in ((regexes, MAX_REGEXES, "regexes"), (sets, MAX_GLOB_SETS, "[...] sets in globs")):
        if number > bound:
            message = f"{number:,} {what}; a policy may have {bound:,}"
            linter.error(("rules",), "too-many-patterns", message, "use globs with * instead")
    return regexes > MAX_REGEXES or sets > MAX_GLOB_SETS


def _check_glob(glob: str, where: Path, linter: Linter) -> None:
    if not glob:
        linter.error(where, "never-matches", "an empty glob matches no tool", 'write "*" for any')
    fault = glob_fault(glob)
    if fault:
        linter.error(where, "bad-glob", f"glob {shown(glob)} {fault[0]}", fault[1])


class _Regexes:
    """All regexes of a policy: each is looked at once, and none any more when they are too large together."""

    def __init__(self, linter: Linter) -> None:
        self._linter = linter
        self._seen: set[str] = set()
        self._program = 0

    def check(self, regex: str, where: Path) -> None:
        if regex in self._seen or self._program > MAX_REGEX_PROGRAM:
            return
        self._seen.add(regex)
        size, fault = compiled_regex(regex)
        self._program += size
        if fault:
            self._linter.error(where, "bad-regex", f"regex {shown(regex)} {fault[0]}", fault[1])
        elif not regex:
            message = "an empty regex matches every name"
            self._linter.warn(where, "matches-all", message, 'write glob: ["*"] if that is meant')
        if self._program > MAX_REGEX_PROGRAM:
            message = f"regex {shown(regex)} brings this policy above {MAX_REGEX_PROGRAM:,} instructions of RE2"
            fix = f"use globs, or smaller counts and classes; this one has {size:,}"
            self._linter.error(where, "too-many-patterns", message, fix)
