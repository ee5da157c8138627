"""Patterns of names and texts that are empty, not legal, or too costly.

A repository's policy may be hostile: patterns are cheap to write and can be dear to compile and to run. Their number is
bounded before any of them is compiled, and compiling stops where they are too large together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from subluminal.contracts.globs import MAX_GLOB_CHARS, glob_fault
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.parts import NAMES, Part, Place, parts_of
from subluminal.policy.lint.patterns import compiled_regex, glob_sets
from subluminal.policy.lint.reporter import Linter, Path

# At 8 KiB for the largest legal set of a glob.
MAX_REGEXES = 2_000
MAX_GLOB_SETS = 2_000
# Instructions of all different regexes together. A usual one has 5 to 50; a thousand of them cost a microsecond of
# every character of a name never seen before, and a millisecond when a policy is read.
MAX_REGEX_PROGRAM = 50_000


class _Patterns(NamedTuple):
    """Patterns of one kind at one place."""

    place: Place
    field: str  # glob or regex
    patterns: list[str]
    of_names: bool


def check_patterns(rules: dict[int, dict[str, Any]], linter: Linter) -> bool:
    """Of names and of texts. False: there are too many to be looked at."""
    if _too_many(rules, linter):
        return False
    regexes = _Regexes(linter)
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for part in parts_of(rule):
            _check_presence(part, linter)
        for place, field, patterns, of_names in _patterns(rule):
            for number, pattern in enumerate(patterns):
                where = (*place, number)
                if field == "regex":
                    regexes.check(pattern, where, "every name" if of_names else "every text")
                else:
                    _check_glob(pattern, where, linter, of_names)
    return not regexes.too_large


def _check_presence(part: Part, linter: Linter) -> None:
    for field in NAMES:
        names = part.match.get(field)
        if names is not None and not names.get("glob") and not names.get("regex"):
            message = f"{part.words}{field} has no pattern, so nothing matches"
            linter.error((*part.place, field), "never-matches", message, 'add glob: ["..."]')


def _patterns(rule: dict[str, Any]) -> Iterator[_Patterns]:
    for part in parts_of(rule):
        for name in NAMES:
            for field, patterns in part.match.get(name, {}).items():
                yield _Patterns((*part.place, name, field), field, patterns, True)
        for field in ("glob", "regex"):
            predicate = f"key_{field}"
            for key, patterns in part.args.get(predicate, {}).items():
                yield _Patterns((*part.place, "args", predicate, key), field, patterns, False)


def _too_many(rules: dict[int, dict[str, Any]], linter: Linter) -> bool:
    regexes = sets = 0
    for rule in rules.values():
        for _, field, patterns, _ in _patterns(rule):
            if field == "regex":
                regexes += len(patterns)
            else:
                sets += sum(len(glob_sets(glob)) for glob in patterns)
    linter.base, linter.rule_id = (), None
    for number, bound, what in ((regexes, MAX_REGEXES, "regexes"), (sets, MAX_GLOB_SETS, "[...] sets in globs")):
        if number > bound:
            message = f"{number:,} {what}; a policy may have {bound:,}"
            linter.error(("rules",), "too-many-patterns", message, "use globs with * instead")
    return regexes > MAX_REGEXES or sets > MAX_GLOB_SETS


def _check_glob(glob: str, where: Path, linter: Linter, of_names: bool) -> None:
    if not glob:
        what = "no tool" if of_names else "the empty text alone"
        linter.error(where, "never-matches", f"an empty glob matches {what}", 'write "*" for any')
    if len(glob) > MAX_GLOB_CHARS and not of_names:
        message = f"glob {shown(glob)} has {len(glob):,} characters"
        linter.error(where, "bad-glob", message, f"use at most {MAX_GLOB_CHARS} characters, or key_contains")
        return
    fault = glob_fault(glob)
    if fault:
        linter.error(where, "bad-glob", f"glob {shown(glob)} {fault[0]}", fault[1])


class _Regexes:
    """All regexes of a policy: each is looked at once, and none any more when they are too large together."""

    def __init__(self, linter: Linter) -> None:
        self._linter = linter
        self._seen: set[str] = set()
        self._program = 0

    @property
    def too_large(self) -> bool:
        return self._program > MAX_REGEX_PROGRAM

    def check(self, regex: str, where: Path, everything: str) -> None:
        if regex in self._seen or self.too_large:
            return
        self._seen.add(regex)
        size, fault = compiled_regex(regex)
        self._program += size
        if fault:
            self._linter.error(where, "bad-regex", f"regex {shown(regex)} {fault[0]}", fault[1])
        elif not regex:
            message = f"an empty regex matches {everything}"
            self._linter.warn(where, "matches-all", message, 'write glob: ["*"] if that is meant')
        if self.too_large:
            message = f"regex {shown(regex)} brings this policy above {MAX_REGEX_PROGRAM:,} instructions of RE2"
            fix = f"use globs, or smaller counts and classes; this one has {size:,}"
            self._linter.error(where, "too-many-patterns", message, fix)
