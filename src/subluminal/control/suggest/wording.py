"""A suggestion as text: the policy with its evidence in comments, and what it cannot do said at its head."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from subluminal.contracts.jsontext import quote
from subluminal.contracts.moments import rfc3339
from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.fitting import Suggestion
from subluminal.control.suggest.rule_parts import Drafted
from subluminal.reports.printable import count, printable

NEVER_CAUGHT = (
    "what SQL or a program does inside a call that looks like the usual ones",
    "little data sent to a host, a channel or an address that work uses",
    "a bad change of a file that may be changed, for example one that CI runs",
    "an argument that no run used, under a name that nobody thought of",
    f"whatever was done in {SUPPORT} runs or more before the policy was learned",
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])
_WIDTH = 116
_MOST_LISTED = 12


def policy_text(suggestion: Suggestion, sources: dict[str, int]) -> str:
    bundle = suggestion.draft.bundle("Suggested from what agents did; read it before it is in force.")
    lines = [f"# {line}" for line in head_lines(suggestion, sources)]
    for name in ("policy_id", "version", "description", "mode", "defaults", "selectors"):
        lines.append(f"{name}: {quote(bundle[name]) if name in ('version', 'description') else flow(bundle[name])}")
    return "\n".join([*lines, "rules:", *rule_lines(suggestion.draft.rules)]) + "\n"


def rule_lines(rules: Iterable[Drafted]) -> list[str]:
    """What does not fit a line is written as a block; a long list that comes again is an alias of the first."""
    drafted_rules = list(rules)
    anchors = _Anchors(drafted.rule for drafted in drafted_rules)
    lines: list[str] = []
    for drafted in drafted_rules:
        for comment in drafted.comments:
            lines += [f"  # {line}" for line in wrapped(printable(comment))]
        rule = drafted.rule
        lines.append(f"  - rule_id: {flow(rule['rule_id'])}")
        lines += [line for name in rule if name != "rule_id" for line in _block(name, rule[name], 4, anchors)]
    return lines


class _Anchors:
    """Lists of texts that several rules have, by their content."""

    def __init__(self, rules: Iterable[dict[str, Any]]) -> None:
        self._times: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for rule in rules:
            self._count(rule)

    def _count(self, value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                self._count(item)
        elif isinstance(value, list) and len(flow(value)) > _WIDTH:
            if any(isinstance(item, dict) for item in value):
                for item in value:
                    self._count(item)
            else:
                self._times[flow(value)] = self._times.get(flow(value), 0) + 1

    def mark(self, value: Any) -> tuple[str, bool]:
        """What stands before the list, and whether it is all there is to write."""
        text = flow(value)
        if self._times.get(text, 0) < 2:
            return "", False
        known = self._names.get(text)
        if known is not None:
            return f" *{known}", True
        self._names[text] = f"list{len(self._names) + 1}"
        return f" &{self._names[text]}", False


def _block(name: str, value: Any, indent: int, anchors: _Anchors) -> list[str]:
    blank = " " * indent
    plain = f"{blank}{flow(name)}: {flow(value)}"
    if len(plain) <= _WIDTH or not isinstance(value, (dict, list)) or not value:
        return [plain]
    if isinstance(value, dict):
        return [
            f"{blank}{flow(name)}:",
            *(line for key in value for line in _block(key, value[key], indent + 2, anchors)),
        ]
    mark, done = anchors.mark(value)
    lines = [f"{blank}{flow(name)}:{mark}"]
    if not done:
        for item in value:
            if isinstance(item, dict) and len(flow(item)) + indent + 4 > _WIDTH:
                inner = [line for key in item for line in _block(key, item[key], indent + 4, anchors)]
                lines += [f"{blank}  - {inner[0].lstrip()}", *inner[1:]]
            else:
                lines.append(f"{blank}  - {flow(item)}")
    return lines


def head_lines(suggestion: Suggestion, sources: dict[str, int]) -> list[str]:
    told = [f"Suggested by `sub policy suggest`. {seen_words(suggestion, sources)}", *proof_words(suggestion)]
    if suggestion.draft.left_out:
        some = suggestion.draft.left_out[:_MOST_LISTED]
        more = len(suggestion.draft.left_out) - len(some)
        told.append("Refused, for lack of evidence: " + "; ".join(some) + (f"; and {more} others." if more else "."))
    if suggestion.draft.unlimited:
        told.append("Not limited: " + "; ".join(suggestion.draft.unlimited[:_MOST_LISTED]) + ".")
    told.append("It can never catch: " + "; ".join(NEVER_CAUGHT) + ".")
    return [line for text in told for line in wrapped(printable(text))]


def seen_words(suggestion: Suggestion, sources: dict[str, int]) -> str:
    """The window: how much, how long, from where."""
    days = f"{rfc3339(suggestion.first_ms)[:10]} to {rfc3339(suggestion.last_ms)[:10]}"
    origins = ", ".join(f"{name} {runs}" for name, runs in sorted(sources.items()))
    return f"Seen: {count(suggestion.calls, 'call')} in {count(suggestion.runs, 'run')}, {days} ({origins})."


def proof_words(suggestion: Suggestion) -> list[str]:
    proof = suggestion.proof
    if proof is None or proof.refusals is None:
        return ["Not proven: too few runs to learn on some and prove on others."]
    said = (
        f"Proven on the newest {proof.runs} runs, which were not learned from: {percent(proof.refusals)} of "
        f"{proof.calls} calls refused (target {percent(suggestion.target)})"
    )
    if proof.near_miss_admission is not None:
        said += f", {percent(proof.near_miss_admission)} of {proof.near} near misses let through"
    lines = [said + "."]
    if not suggestion.reached:
        worst = sorted(proof.by_rule.items(), key=lambda rule: (-rule[1], rule[0]))[:3]
        names = ", ".join(f"{rule_id} ({calls})" for rule_id, calls in worst)
        lines.append(f"The target is not reachable with this evidence: most were refused by {names}.")
    return lines


def percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def flow(value: Any) -> str:
    """YAML of one line; words that need no quotes have none."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return "'" + value.replace("'", "''") + "'" if "\\" in value and value.isprintable() else quote(value)
    return str(value)


def wrapped(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + len(word) >= _WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return [*lines, line]
