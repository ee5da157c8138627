"""A policy bundle from bytes to checked values: every fault found in one pass, each with its place.

Three sieves: `document` (is it one document), `check` (has it the contract's shape), `lint` (does it make sense).
A rule of the wrong shape does not hide the faults of the others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from subluminal.contracts.policy import Bundle, Rule
from subluminal.policy.document.tree import Mapping, Node, Sequence, parse_policy
from subluminal.policy.lint.findings import ERROR, MAX_FINDINGS, NOTE, WARNING, Finding, InvalidPolicy, has_errors
from subluminal.policy.lint.reporter import Linter
from subluminal.policy.lint.rules import lint
from subluminal.policy.lint.shape import Checker, expanded
from subluminal.policy.lint.spelled_out import DURATIONS, spelled_out


class Loaded(NamedTuple):
    """`bundle` has all defaults stated and everything spelled out, and is None if any finding is an error."""

    bundle: dict[str, Any] | None
    root: Node | None
    findings: list[Finding]


def load_bundle(source: bytes, filename: str, *, advise: bool = True) -> Loaded:
    """Read and check a bundle; never raises for what is in it. Without `advise`, some warnings are not looked for."""
    try:
        root = parse_policy(source, filename)
    except InvalidPolicy as error:
        return Loaded(None, None, error.findings)
    expected = _bundle_type()
    checker = Checker(filename)
    checker.check(root, expected, "")
    rules = _sound_rules(root, expected, checker)
    findings = checker.findings + lint(rules, root, filename, advise=advise)
    findings += _unmet_needs(rules, root, filename, findings)
    if advise and not filename.lower().endswith(".json"):
        from subluminal.policy.document.yaml_tree import yaml_traps

        findings += yaml_traps(root, filename)
    findings = _ordered(findings)
    if has_errors(findings):
        return Loaded(None, root, findings)
    bundle = {**expanded(root, expected), "rules": list(rules.values())}
    return Loaded(bundle, root, findings + _contract_faults(bundle, filename))


def checked_bundle(source: bytes, filename: str) -> dict[str, Any]:
    """The bundle, or InvalidPolicy with all findings."""
    loaded = load_bundle(source, filename, advise=False)
    if loaded.bundle is None or has_errors(loaded.findings):
        raise InvalidPolicy(loaded.findings)
    return loaded.bundle


@lru_cache(maxsize=1)
def _bundle_type() -> inspect.StructType:
    expected = inspect.type_info(Bundle)
    assert isinstance(expected, inspect.StructType)
    return expected


def _sound_rules(root: Node, expected: inspect.StructType, checker: Checker) -> dict[int, dict[str, Any]]:
    rules = root.get("rules") if isinstance(root, Mapping) else None
    rule_type = next(field.type for field in expected.fields if field.name == "rules")
    if not isinstance(rules, Sequence) or not isinstance(rule_type, inspect.ListType):
        return {}
    return {
        index: spelled_out(expanded(node, rule_type.item_type))
        for index, node in enumerate(rules.items)
        if id(node) in checker.sound_rules
    }


def _unmet_needs(rules: dict[int, dict[str, Any]], root: Node, filename: str, findings: list[Finding]) -> list[Finding]:
    """Fields of which one of two must be there: the contract's own sentence, at the place of the effect."""
    faulty = {finding.rule_id for finding in findings if finding.level == ERROR}
    linter = Linter(filename, root)
    for index, rule in rules.items():
        if rule["rule_id"] in faulty:
            continue
        try:
            msgspec.convert(rule, Rule)
        except msgspec.ValidationError as error:
            sentence, _, place = str(error).partition(" - at `$.")
            linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
            needed = re.search(r"needs `([a-z_]+)`", sentence)
            fix = f"add {needed[1]}" if needed else "write both, or neither"
            fix += ": 1m" if needed and needed[1] in DURATIONS else ""
            linter.error(tuple(place.rstrip("`").split(".")), "missing-field", sentence, fix)
    return linter.findings


_RANKS = {ERROR: 0, WARNING: 1, NOTE: 2}


def _ordered(findings: list[Finding]) -> list[Finding]:
    """By place; at one place the error stands for the others. Where there are too many, the graver ones stay."""
    kept: dict[tuple[int, int, str], Finding] = {}
    errors = {(f.line, f.column) for f in findings if f.level == ERROR}
    for finding in findings:
        if finding.level == ERROR or (finding.line, finding.column) not in errors:
            kept.setdefault((finding.line, finding.column, finding.message), finding)
    gravest = sorted(kept.values(), key=lambda finding: (_RANKS[finding.level], finding.line, finding.column))
    return sorted(gravest[:MAX_FINDINGS], key=lambda finding: (finding.line, finding.column, finding.level))


def _contract_faults(bundle: dict[str, Any], filename: str) -> list[Finding]:
    """The contract's own check has the last word, should it know a fault that the sieves above do not."""
    try:
        msgspec.convert(bundle, Bundle)
    except msgspec.ValidationError as error:
        return [Finding(ERROR, "contract", str(error), "compare with docs/policy.md", filename, 1, 1)]
    return []
