"""Name patterns that are empty, not legal, or too costly.

A repository's policy may be hostile: patterns are cheap to write and can be dear to compile, so their number and size
are bounded before any of them is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subluminal.contracts.globs import glob_fault
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.patterns import glob_sets, regex_fault
from subluminal.policy.lint.reporter import Linter, Path

# At a few milliseconds for the dearest legal regex, and 8 KiB for the largest legal set of a glob.
MAX_REGEXES = 2_000
MAX_GLOB_SETS = 2_000


def check_names(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    if _too_many(rules, linter):
        return
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for field, names in _names(rule):
            if not names.get("glob") and not names.get("regex"):
                message = f"{field} has no pattern, so nothing matches"
                linter.error(("match", field), "never-matches", message, 'add glob: ["..."]')
            for number, glob in enumerate(names.get("glob", [])):
                _check_glob(glob, ("match", field, "glob", number), linter)
            for number, regex in enumerate(names.get("regex", [])):
                _check_regex(regex, ("match", field, "regex", number), linter)


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


def _check_regex(regex: str, where: Path, linter: Linter) -> None:
    fault = regex_fault(regex)
    if fault:
        linter.error(where, "bad-regex", f"regex {shown(regex)} {fault[0]}", fault[1])
    elif not regex:
        linter.warn(where, "matches-all", "an empty regex matches every name", 'write glob: ["*"] if that is meant')
