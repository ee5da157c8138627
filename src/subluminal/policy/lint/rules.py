"""What a bundle of the right shape can still get wrong: limits that contradict each other, rules that cannot fire.

Works on the bundle as plain values with defaults expanded, and on the document for places. An error is a bundle that
cannot mean what it says; a warning is one that probably does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subluminal.contracts.vocabulary import ANNOTATED_CLASSES, LISTED_CLASSES, RISK_CLASSES
from subluminal.policy.document.tree import Mapping, Node, Scalar, Sequence
from subluminal.policy.lint.effects import EFFECTS, check_fail_open, check_overrides
from subluminal.policy.lint.findings import MAX_FINDINGS, Finding, nearest, shown
from subluminal.policy.lint.matches import check_matches
from subluminal.policy.lint.names import check_patterns
from subluminal.policy.lint.parts import parts_of
from subluminal.policy.lint.readings import note_readings
from subluminal.policy.lint.reporter import Linter, Path
from subluminal.policy.lint.unreachable import find_unreachable


def lint(rules: dict[int, dict[str, Any]], root: Node, filename: str, *, advise: bool) -> list[Finding]:
    """`rules` by their place in the document; those without the right shape are left out, the others still judged.

    Without `advise`, comparisons between rules that can only give warnings are left out. Matches with more patterns
    than are looked at are not compared at all: that would cost what the bound is there to save.
    """
    linter = Linter(filename, root)
    _duplicate_ids(root, linter)
    comparable = check_patterns(rules, linter)
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        if comparable:
            check_matches(rule, linter, advise=advise)
        effect_check = EFFECTS.get(rule["kind"])
        if effect_check:
            effect_check(rule["effect"][rule["kind"]], linter)
    if advise and comparable:
        find_unreachable(rules, linter)
    if advise:
        _unknown_risk_classes(rules, linter)
        note_readings(rules, linter)
        _classes_of_servers(rules, linter)
        check_overrides(rules, linter)
        check_fail_open(rules, root, linter)
    return linter.findings


def _duplicate_ids(root: Node, linter: Linter) -> None:
    rules = root.get("rules") if isinstance(root, Mapping) else None
    first: dict[str, int] = {}
    for index, rule in enumerate(rules.items if isinstance(rules, Sequence) else []):
        node = rule.get("rule_id") if isinstance(rule, Mapping) else None
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        linter.base, linter.rule_id = ("rules", index), node.value
        if node.value in first:
            message = f"rule_id is already used on line {first[node.value]}"
            linter.error(("rule_id",), "duplicate-rule-id", message, "give each rule an id of its own")
        first.setdefault(node.value, node.line)


def _asked(rule: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Every risk class that a rule asks for, with its place."""
    for part in parts_of(rule):
        for position, word in enumerate(part.match.get("risk_class", [])):
            yield (*part.place, "risk_class", position), word


def _unknown_risk_classes(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """A class that nothing above can have set makes a rule that silently never matches."""
    known = set(LISTED_CLASSES)  # no server's word makes a tool read_like
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for place, word in _asked(rule):
            if word not in known:
                near = None
                if word not in RISK_CLASSES and len(linter.findings) < MAX_FINDINGS:
                    near = nearest(word, sorted({*known, *RISK_CLASSES})[:100])
                fix = (
                    f"did you mean {shown(near)}?" if near else "add a tag rule above that names the tools and adds it"
                )
                message = f"no tag rule above adds the risk class {shown(word)}"
                linter.warn(place, "unknown-risk-class", message, fix)
        if rule["kind"] == "tag" and rule["enabled"]:
            known |= set(rule["effect"]["tag"]["add_risk_class"])


def _classes_of_servers(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """A class that no tag above gives is what the server says of its own tools, once it has said it."""
    tagged: set[str] = set()
    for index, rule in rules.items():
        linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
        for place, word in _asked(rule):
            if word in ANNOTATED_CLASSES and word not in tagged:
                message = f"no tag rule above gives the risk class {shown(word)}: it rests on the server's own word"
                fix = f"add a tag rule above that names the tools and adds {word}"
                linter.note(place, "servers-word", message, fix)
        if rule["kind"] == "tag" and rule["enabled"]:
            tagged |= set(rule["effect"]["tag"]["add_risk_class"])
