"""Rules that are never asked: an allow or deny below a wider one.

Rules are compared only if the fixed start of a tool pattern of the upper one fits, so a thousand rules for a thousand
tools cost a thousand look-ups and not half a million comparisons.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.globs import MAX_GLOB_CHARS, literal_head
from subluminal.policy.lint.cover import Rule, normal_match, rule_covers
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.parts import Match, classes_asked, reads_values, weight
from subluminal.policy.lint.patterns import EVERYTHING
from subluminal.policy.lint.reporter import Linter

# A bundle made to be slow (every rule with the same start, or with a thousand patterns) is not searched to its end.
MAX_COMPARED = 300_000


def find_unreachable(rules: dict[int, Rule], linter: Linter) -> None:
    """Access stops at the first match, so what lies below a wider rule has no effect."""
    above = _Above()
    suspects = any(rule["kind"] == "tag" and reads_values(_matches(rule)) for rule in rules.values())
    last_tag = -1
    compared = 0
    for index, rule in rules.items():
        if rule["kind"] == "tag" and rule["enabled"]:
            last_tag = index
        if rule["kind"] not in ("allow", "deny") or not rule["enabled"]:
            continue
        rule = {**rule, **{field: normal_match(rule[field]) for field in ("match", "unless") if field in rule}}
        candidates = above.candidates(rule["match"])
        compared += _effort(rule) * sum(above.effort[index] for index, _ in candidates)
        if compared > MAX_COMPARED:
            return
        wide = next((upper for i, upper in candidates if _hides(upper, rule, tagged_between=last_tag > i)), None)
        if wide is None:
            above.add(index, rule)
        else:
            linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
            linter.warn(("rule_id",), "unreachable", *_unreachable_words(rule, wide, suspects))


def _hides(wide: Rule, rule: Rule, *, tagged_between: bool) -> bool:
    """A tag in between may give the call a class it did not have when the upper rule was asked.

    An allow and a deny are compared by their exact values: what readings add to a deny is said in the finding.
    """
    if tagged_between and classes_asked(wide["match"]):
        return False
    return rule_covers(wide, rule, rule["kind"] if rule["kind"] == wide["kind"] else "allow")


def _effort(rule: Rule) -> int:
    """What a comparison costs: usual rules cost one."""
    return 1 + weight(rule["match"]) // 16


def _matches(rule: Rule) -> list[Match]:
    return [rule[field] for field in ("match", "unless") if field in rule]


class _Above:
    """The access rules seen so far, by what a name must start with to be theirs."""

    def __init__(self) -> None:
        self._entries: dict[int, Rule] = {}
        self.effort: dict[int, int] = {}
        self._by_start: dict[str, list[int]] = {}
        self._by_regex: dict[str, list[int]] = {}

    def add(self, index: int, rule: Rule) -> None:
        self._entries[index] = rule
        self.effort[index] = _effort(rule)
        for tools in _needed_tools(rule["match"]):
            if tools is None or EVERYTHING & set(tools.get("regex", [])):
                self._by_start.setdefault("", []).append(index)
                continue
            for glob in tools.get("glob", []):
                self._by_start.setdefault(literal_head(glob), []).append(index)
            for regex in tools.get("regex", []):
                self._by_regex.setdefault(regex, []).append(index)

    def candidates(self, match: Match) -> list[tuple[int, Rule]]:
        """Every rule that could cover this match, in order: it must cover the first pattern of its first branch."""
        found = set(self._by_start.get("", []))
        for part in (match, *match.get("any_of", [])[:1]):
            tools = part.get("tool_name", {})
            if tools.get("glob"):
                glob = tools["glob"][0][:MAX_GLOB_CHARS]
                for length in range(1, len(glob) + 1):
                    found.update(self._by_start.get(glob[:length], []))
            elif tools.get("regex"):
                found.update(self._by_regex.get(tools["regex"][0], []))
        return [(index, self._entries[index]) for index in sorted(found)]


def _needed_tools(match: Match) -> list[dict[str, Any] | None]:
    """The tool names of which a call must meet one; None is every name."""
    if "tool_name" in match or not match.get("any_of"):
        return [match.get("tool_name")]
    return [alternative.get("tool_name") for alternative in match["any_of"]]


def _unreachable_words(rule: Rule, wide: Rule, suspects: bool) -> tuple[str, str]:
    """`suspects`: a tag rule can give a class by a reading of a value, which denies see and allows do not."""
    above = shown(wide["rule_id"])
    covers = f"{wide['kind']} rule {above} above matches all that it matches"
    if rule["kind"] == wide["kind"]:
        return f"this {rule['kind']} is never asked: {covers}", "remove it"
    fix = f"move it above {above}, or narrow {above}"
    readings = reads_values([*_matches(wide), *([rule["unless"]] if "unless" in rule else [])])
    if rule["kind"] == "deny" and (readings or (suspects and classes_asked(wide["match"]))):
        return f"this deny takes effect only on values that servers read so: {covers} exactly", fix
    return f"this {rule['kind']} never takes effect: {covers}", fix
