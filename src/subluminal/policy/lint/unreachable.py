"""Rules that are never asked: an allow or deny below a wider one.

Rules are compared only if the fixed start of a tool pattern of the upper one fits, so a thousand rules for a thousand
tools cost a thousand look-ups and not half a million comparisons.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.globs import MAX_GLOB_CHARS, literal_head
from subluminal.policy.lint.cover import match_covers, normal_match
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.parts import Match
from subluminal.policy.lint.patterns import EVERYTHING
from subluminal.policy.lint.reporter import Linter

# A bundle made to be slow (every rule with the same start) is not searched to its end.
MAX_COMPARED = 300_000


def find_unreachable(rules: dict[int, dict[str, Any]], linter: Linter) -> None:
    """Access stops at the first match, so what lies below a wider rule has no effect."""
    above = _Above()
    suspects = any(rule["kind"] == "tag" and _reads_values(rule) for rule in rules.values())
    last_tag = -1
    compared = 0
    for index, rule in rules.items():
        if rule["kind"] == "tag" and rule["enabled"]:
            last_tag = index
        if rule["kind"] not in ("allow", "deny") or not rule["enabled"]:
            continue
        match = normal_match(rule["match"])
        candidates = above.candidates(match)
        compared += len(candidates)
        if compared > MAX_COMPARED:
            return
        # A tag in between may give the call a class it did not have when the upper rule was asked.
        wide = next(
            (w for i, w, m in candidates if ("risk_class" not in m or last_tag < i) and match_covers(m, match)), None
        )
        if wide is None:
            above.add(index, rule, match)
        else:
            linter.base, linter.rule_id = ("rules", index), rule["rule_id"]
            linter.warn(("rule_id",), "unreachable", *_unreachable_words(rule, wide, suspects))


class _Above:
    """The access rules seen so far, by what a name must start with to be theirs."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[int, dict[str, Any], Match]] = {}
        self._by_start: dict[str, list[int]] = {}
        self._by_regex: dict[str, list[int]] = {}

    def add(self, index: int, rule: dict[str, Any], match: Match) -> None:
        self._entries[index] = (index, rule, match)
        tools = match.get("tool_name")
        if tools is None or EVERYTHING & set(tools.get("regex", [])):
            self._by_start.setdefault("", []).append(index)
            return
        for glob in tools.get("glob", []):
            self._by_start.setdefault(literal_head(glob), []).append(index)
        for regex in tools.get("regex", []):
            self._by_regex.setdefault(regex, []).append(index)

    def candidates(self, match: Match) -> list[tuple[int, dict[str, Any], Match]]:
        """Every rule that could cover this match, in order: it must cover the first of its patterns."""
        tools = match.get("tool_name", {})
        found = set(self._by_start.get("", []))
        if tools.get("glob"):
            glob = tools["glob"][0][:MAX_GLOB_CHARS]
            for length in range(1, len(glob) + 1):
                found.update(self._by_start.get(glob[:length], []))
        elif tools.get("regex"):
            found.update(self._by_regex.get(tools["regex"][0], []))
        return [self._entries[index] for index in sorted(found)]


def _unreachable_words(rule: dict[str, Any], wide: dict[str, Any], suspects: bool) -> tuple[str, str]:
    """`suspects`: a tag rule can give a class by a reading of a value, which denies see and allows do not."""
    above = shown(wide["rule_id"])
    covers = f"{wide['kind']} rule {above} above matches all that it matches"
    if rule["kind"] == wide["kind"]:
        return f"this {rule['kind']} is never asked: {covers}", "remove it"
    fix = f"move it above {above}, or narrow {above}"
    if rule["kind"] == "deny" and (_reads_values(wide) or (suspects and "risk_class" in wide["match"])):
        return f"this deny takes effect only on values that servers read so: {covers} exactly", fix
    return f"this {rule['kind']} never takes effect: {covers}", fix


def _reads_values(rule: dict[str, Any]) -> bool:
    return bool(rule["match"].get("args", {}).keys() - {"has_keys"})
