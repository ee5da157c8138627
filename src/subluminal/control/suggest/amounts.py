"""Rules on how much and how often: sizes, repeats and budgets, from the tails that were seen."""

from __future__ import annotations

import math
from collections.abc import Callable

from subluminal.contracts.vocabulary import BUILTIN_SERVER
from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Evidence, Tool, kth_largest
from subluminal.control.suggest.rule_parts import Drafted, deny, is_write, named, unique
from subluminal.control.suggest.tool_rules import ToolRules

# Far above what SUPPORT runs needed, so that a budget stops floods and not work.
BUDGET_FACTOR = 4
SIZE_FACTOR = 2
# The window of dedupe, `10m` in the rule.
DEDUPE_MS = 10 * 60_000


def _grouped(drafts: list[ToolRules], limit_of: Callable[[Tool], int | None]) -> list[tuple[int, str, list[Tool]]]:
    """Tools by their limit and server: a rule names one server, so that calls of others do not meet it."""
    groups: dict[tuple[int, str], list[Tool]] = {}
    for drafted in drafts:
        limit = limit_of(drafted.tool)
        if limit is not None:
            groups.setdefault((limit, drafted.tool.server_name), []).append(drafted.tool)
    return [
        (limit, server_name, tools)
        for (limit, server_name), tools in sorted(groups.items(), key=lambda g: (g[0][1], g[0][0]))
    ]


def sizes(drafts: list[ToolRules], ids: set[str]) -> list[Drafted]:
    rules: list[Drafted] = []
    for size, server_name, tools in _grouped(drafts, _size_limit):
        match = {**named(server_name, [tool.tool_name for tool in tools]), "args": {"bytes": {"min": size + 1}}}
        rule_id = unique(f"{server_name}-at-most-{size}-bytes", ids)
        rule = deny(rule_id, match, message=f"Send at most {size} bytes of arguments")
        rules.append(Drafted(rule, [] if rules else [f"Sizes: {SIZE_FACTOR} times what {SUPPORT} runs sent."]))
    return rules


def _size_limit(tool: Tool) -> int | None:
    """None: beyond 1 MiB arguments are not inspected, and the rules that look at them refuse."""
    most = kth_largest(tool.sizes.values(), SUPPORT)
    limit = None if most is None else _power_of_two(most * SIZE_FACTOR)
    return limit if limit is not None and limit < 1 << 20 else None


def _power_of_two(size: float) -> int:
    return max(128, 1 << math.ceil(math.log2(max(size, 1))))


def deduped(drafts: list[ToolRules], duplicates: dict[tuple[str, str], int], ids: set[str]) -> list[Drafted]:
    by_server: dict[str, list[Tool]] = {}
    for tool in (drafted.tool for drafted in drafts):
        own = tool.server_name == BUILTIN_SERVER  # a file is edited the same way twice, and undone in between
        if is_write(tool.tool_name) and not own and duplicates.get((tool.server_name, tool.tool_name), 0) < SUPPORT:
            by_server.setdefault(tool.server_name, []).append(tool)
    hint = "The same was done a moment ago; go on, or change what is different."
    dedupe = {"scope": "run", "window": "10m", "on_duplicate": "REJECT_WITH_HINT", "hint_text": hint}
    rules: list[Drafted] = []
    for server_name, tools in by_server.items():
        rule_id = unique(f"{server_name}-not-twice", ids)
        match = named(server_name, [tool.tool_name for tool in tools])
        rule = {
            "rule_id": rule_id,
            "kind": "dedupe",
            "match": match,
            "effect": {"dedupe": dedupe},
        }
        words = f"Writes that fewer than {SUPPORT} runs repeated within ten minutes."
        rules.append(Drafted(rule, [] if rules else [words]))
    return rules


def budgets(drafts: list[ToolRules], evidence: Evidence, ids: set[str]) -> list[Drafted]:
    rules: list[Drafted] = []
    for limit, server_name, tools in _grouped(drafts, _calls_limit):
        budget = {"scope": "server_tool", "limit_calls": limit, "on_exceed": "BLOCK"}
        rule_id = unique(f"{server_name}-at-most-{limit}-calls", ids)
        match = named(server_name, [tool.tool_name for tool in tools])
        rule = {
            "rule_id": rule_id,
            "kind": "budget",
            "match": match,
            "effect": {"budget": budget},
        }
        words = f"Calls of each tool in one run: {BUDGET_FACTOR} times what {SUPPORT} runs needed."
        rules.append(Drafted(rule, [] if rules else [words]))
    most = kth_largest(evidence.calls_per_run.values(), SUPPORT)
    if most is not None:
        budget = {"scope": "run", "limit_calls": _round_limit(most * BUDGET_FACTOR), "on_exceed": "BLOCK"}
        rule = {"rule_id": "calls-of-a-run", "kind": "budget", "match": {}, "effect": {"budget": budget}}
        rules.append(Drafted(rule, [f"All calls of a run: {BUDGET_FACTOR} times what {SUPPORT} runs needed."]))
    return rules


def _calls_limit(tool: Tool) -> int:
    return _round_limit((kth_largest(tool.per_run.values(), SUPPORT) or 1) * BUDGET_FACTOR)


def _round_limit(calls: float) -> int:
    """Upwards to 1, 2 or 5 times a power of ten: so that few limits serve many tools."""
    size = 10
    while True:
        for step in (1, 2, 5):
            if calls <= step * size:
                return step * size
        size *= 10
