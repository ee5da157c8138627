"""Evidence to rules, in the order in which they are judged: what is refused above all, then each server's tools, and at
the end everything that no rule has let through.
"""

from __future__ import annotations

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.above import above
from subluminal.control.suggest.amounts import budgets, deduped, sizes
from subluminal.control.suggest.draft import Draft
from subluminal.control.suggest.evidence import Evidence, Tool, Values
from subluminal.control.suggest.rule_parts import Drafted, deny, is_write, named, times, unique
from subluminal.control.suggest.tokens import is_copyable
from subluminal.control.suggest.tool_rules import Levels, Pools, ToolRules

# Longer names are nobody's, and a rule's id has at most 200 characters.
MAX_NAME = 150


def draft(evidence: Evidence, levels: Levels, duplicates: dict[tuple[str, str], int]) -> Draft:
    """`duplicates`: of each tool, in how many runs the same call came twice within DEDUPE_MS."""
    made = Draft([], [], [], {}, [], [])
    ids: set[str] = set()
    chosen = [tool for tool in _sorted(evidence) if _is_usable(tool, made)]
    by_server: dict[str, list[ToolRules]] = {}
    pools = evidence.memo.get("pools")
    if pools is None:
        pools = evidence.memo["pools"] = _pooled(chosen)
    for tool in chosen:
        drafted = ToolRules(tool, levels, ids, made, pools, evidence.memo)
        if drafted.usable:
            by_server.setdefault(tool.server_name, []).append(drafted)
            made.tools.append((tool.server_name, tool.tool_name))
            if is_write(tool.tool_name):
                made.writes.append((tool.server_name, tool.tool_name))
    everything = [drafted for server in by_server.values() for drafted in server]
    made.rules += above(everything, evidence, ids)
    made.rules += sizes(everything, ids)
    for server_name, drafts in by_server.items():
        for drafted in drafts:
            made.rules += drafted.rules
        made.rules.append(_let_through(server_name, drafts, ids))
    made.rules += deduped(everything, duplicates, ids)
    made.rules += budgets(everything, evidence, ids)
    message = "Nothing like this was done when the policy was learned; ask, or use a tool that was."
    made.rules.append(Drafted(deny("nothing-else", {}, message=message), ["What no rule above has let through."]))
    return made


def _pooled(tools: list[Tool]) -> Pools:
    """The texts of arguments that several tools of one server have: one name means one thing there."""
    shared: dict[tuple[str, str], list[Values]] = {}
    for tool in tools:
        for key, values in tool.keys.items():
            if values.texts:
                shared.setdefault((tool.server_name, key), []).append(values)
    pools: Pools = {}
    for name, each in shared.items():
        if len(each) > 1:
            pool = pools[name] = {}
            for values in each:
                for text, (times, runs) in values.texts.items():
                    known = pool.setdefault(text, [0, set()])
                    known[0] += times
                    known[1] |= runs
    return pools


def _sorted(evidence: Evidence) -> list[Tool]:
    return [evidence.tools[name] for name in sorted(evidence.tools)]


def _is_usable(tool: Tool, made: Draft) -> bool:
    name = f"{tool.server_name}/{tool.tool_name}"
    if len(tool.per_run) < SUPPORT:
        made.left_out.append(f"{name}: used in {len(tool.per_run)} of the {SUPPORT} runs that it takes")
    elif not (is_copyable(tool.server_name) and is_copyable(tool.tool_name) and len(name) < MAX_NAME):
        made.left_out.append(f"{name[:80]}: its name cannot stand in a policy")
    else:
        return True
    return False


def _let_through(server_name: str, drafts: list[ToolRules], ids: set[str]) -> Drafted:
    runs = {run for drafted in drafts for run in drafted.tool.per_run}
    calls = sum(drafted.tool.calls for drafted in drafts)
    match = named(server_name, [drafted.tool.tool_name for drafted in drafts])
    rule = {
        "rule_id": unique(f"{server_name}-tools", ids),
        "kind": "allow",
        "match": match,
        "effect": {"action": "ALLOW"},
    }
    return Drafted(rule, [f"{times(calls, 'call')} in {times(len(runs), 'run')}."])
