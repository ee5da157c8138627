"""Rules that stand above all that was learned: secrets, and what the catalogue knows and runs did not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subluminal.adapters.tools.names import PATCH_TOOL
from subluminal.control.suggest import SUPPORT, catalogue
from subluminal.control.suggest.evidence import Evidence, Tool
from subluminal.control.suggest.rule_parts import Drafted, deny, is_write, named, times, unique
from subluminal.control.suggest.tool_rules import ToolRules


def above(drafts: list[ToolRules], evidence: Evidence, ids: set[str]) -> list[Drafted]:
    rules = _secrets(drafts, ids)
    switches = [key for key in catalogue.SWITCHES if not _is_used(key, evidence)]
    if switches:
        message = "Leave out arguments that widen what the tool does"
        rule = deny("switches", {}, {"args": {"missing_keys": switches}}, message)
        rules.append(Drafted(rule, [f"Arguments that no {SUPPORT} runs gave, and that widen what a tool does."]))
    writing = [
        drafted for drafted in drafts if is_write(drafted.tool.tool_name) or drafted.tool.tool_name == PATCH_TOOL
    ]
    for rule_id, entries, among, keys_of, message in (
        ("risky-lines", catalogue.LINES, drafts, _lines, "This is not run here without being asked for"),
        ("runs-later", catalogue.WRITES, writing, _paths, "What runs by itself is changed by people"),
        ("private-files", catalogue.FILES, drafts, _paths, "Such files are left alone"),
        ("told", catalogue.TEXTS, writing, _prose, "Secrets and hidden contents are not sent"),
        ("statements", catalogue.STATEMENTS, drafts, _statements, "Ask for less, with a plain SELECT"),
    ):
        rules += _catalogued(rule_id, entries, among, keys_of, message, ids, evidence.memo)
    return rules


def _lines(drafted: ToolRules) -> list[str]:
    return drafted.lines


def _paths(drafted: ToolRules) -> list[str]:
    return drafted.paths


def _prose(drafted: ToolRules) -> list[str]:
    return drafted.prose


def _statements(drafted: ToolRules) -> list[str]:
    return drafted.statements


def _secrets(drafts: list[ToolRules], ids: set[str]) -> list[Drafted]:
    groups: dict[tuple[str, tuple[str, ...]], list[Tool]] = {}
    for drafted in drafts:
        keys = tuple(sorted({*drafted.paths, *drafted.lines}))
        if keys:
            groups.setdefault((drafted.tool.server_name, keys), []).append(drafted.tool)
    rules = []
    for (server_name, keys), tools in groups.items():
        asked = [{"args": {"key_regex": {key: list(catalogue.SECRETS)}}} for key in keys]
        match = {
            **named(server_name, [tool.tool_name for tool in tools]),
            **(asked[0] if len(asked) == 1 else {"any_of": asked}),
        }
        message = "Keys, passwords and the data of git are left alone"
        rule = deny(unique(f"secrets-{server_name}", ids), match, message=message, severity="critical")
        rules.append(Drafted(rule, ["Always, whatever was seen."]))
    return rules


def _is_used(key: str, evidence: Evidence) -> bool:
    return any(len(tool.key_runs.get(key, ())) >= SUPPORT for tool in evidence.tools.values())


def _catalogued(
    rule_id: str,
    entries: tuple[catalogue.Entry, ...],
    drafts: list[ToolRules],
    keys_of: Callable[[ToolRules], list[str]],
    message: str,
    ids: set[str],
    memo: dict[Any, Any],
) -> list[Drafted]:
    """For each argument of the kind; what runs needed somewhere is left out everywhere."""
    places = [(drafted.tool, key) for drafted in drafts for key in keys_of(drafted)]
    known = (rule_id, tuple((tool.server_name, tool.tool_name, key) for tool, key in places))
    if known not in memo:
        memo[known] = catalogue.unneeded(entries, [tool.keys[key].texts for tool, key in places])
    kept, needed = memo[known]
    if not places or not kept:
        return []
    comments = [f"No {SUPPORT} runs needed: {', '.join(entry.words for entry in kept)}."]
    if needed:
        comments.append(
            "Left out, because runs did: " + ", ".join(f"{e.words} ({times(n, 'run')})" for e, n in needed) + "."
        )
    groups: dict[tuple[str, str], list[Tool]] = {}
    for tool, key in places:
        groups.setdefault((tool.server_name, key), []).append(tool)
    rules = []
    for (server_name, key), tools in groups.items():
        match = {
            **named(server_name, [tool.tool_name for tool in tools]),
            "args": {"key_regex": {key: [entry.regex for entry in kept]}},
        }
        rules.append(Drafted(deny(unique(f"{rule_id}-{server_name}", ids), match, message=message), comments))
        comments = []
    return rules
