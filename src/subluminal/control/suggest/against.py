"""A suggestion beside a policy that is there already: only what would change a decision is proposed.

What the policy refuses and `SUPPORT` runs did is to be let through, above the rule that refuses it. What lies beside
the work, and the policy lets through, is to be refused: by those suggested rules that refuse it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Call, Run
from subluminal.control.suggest.fitting import Suggestion
from subluminal.control.suggest.judging import Judge
from subluminal.control.suggest.near_miss import near_misses
from subluminal.control.suggest.rule_parts import Drafted
from subluminal.control.suggest.tokens import example_of
from subluminal.control.suggest.wording import rule_lines


class Changes(Struct, eq=False):
    """`loosen`: rules to stand above the one that refuses now. `tighten`: rules to stand above the first allow."""

    loosen: list[Drafted] = field(default_factory=list)
    tighten: list[Drafted] = field(default_factory=list)
    calls: int = 0
    refused: int = 0

    def text(self, policy: str) -> str:
        lines = [
            f"# Changes for {policy}: {self.refused} of the {self.calls} calls that were seen are refused by it now."
        ]
        if not self.loosen and not self.tighten:
            lines.append("# Nothing that was seen asks for a change.")
        lines.append("rules:" if self.loosen or self.tighten else "rules: []")
        return "\n".join([*lines, *rule_lines([*self.loosen, *self.tighten])]) + "\n"


def changes(snapshot: dict[str, Any], suggestion: Suggestion, runs: list[Run]) -> Changes:
    now, then = Judge(snapshot), Judge(suggestion.snapshot)
    found = Changes()
    asked: dict[tuple[str, str, str], tuple[set[int], Call]] = {}
    let_through: list[Call] = []
    for number, run in enumerate(runs):
        for call in (call for call in run.calls if call.learn):
            found.calls += 1
            rule_id = now.alone(call)
            if rule_id is None:
                let_through.append(call)
                continue
            found.refused += 1
            if then.alone(call) is None:
                known = asked.setdefault((rule_id, call.server_name, call.tool_name), (set(), call))
                known[0].add(number)
    for (rule_id, server_name, tool_name), (askers, call) in sorted(asked.items(), key=lambda one: one[0]):
        if len(askers) >= SUPPORT:
            found.loosen.append(_allowed(suggestion, server_name, tool_name, rule_id, len(askers), call))
    found.tighten = _tightened(now, then, suggestion, let_through)
    return found


def _allowed(suggestion: Suggestion, server_name: str, tool_name: str, rule_id: str, runs: int, call: Call) -> Drafted:
    """The tool with the limits of its arguments: an allow that stands above a deny needs them itself."""
    args: dict[str, dict[str, Any]] = {}
    for (server, tool, key), limit in suggestion.draft.limits.items():
        single = len(limit.predicates) == 1 and limit.predicates[0][0] != "but"
        if (server, tool) == (server_name, tool_name) and single and key in call.args:
            name, what = limit.predicates[0]
            args.setdefault(name, {})[key] = what
    match: dict[str, Any] = {"server_name": {"glob": [server_name]}, "tool_name": {"glob": [tool_name]}}
    if args:
        match["args"] = args
    rule = {
        "rule_id": f"let-{server_name}-{tool_name}"[:190],
        "kind": "allow",
        "match": match,
        "effect": {"action": "ALLOW"},
    }
    shown = example_of("; ".join(f"{key} {value}" for key, value in call.args.items() if isinstance(value, str)), 80)
    place = f"above {rule_id}" if rule_id else "at the top"
    return Drafted(rule, [f"Put it {place}, which refused this in {runs} runs, such as: {shown}"])


def _tightened(now: Judge, then: Judge, suggestion: Suggestion, calls: list[Call]) -> list[Drafted]:
    """Suggested rules that refuse what lies beside the work and is let through now."""
    stopped: dict[str, int] = {}
    for near, _ in near_misses(calls):
        rule_id = then.alone(near)
        if rule_id and now.alone(near) is None:
            stopped[rule_id] = stopped.get(rule_id, 0) + 1
    found = []
    for drafted in suggestion.draft.rules:
        often = stopped.get(drafted.rule["rule_id"], 0)
        if often and drafted.rule["match"]:
            words = f"Put it above the first allow: it refuses {often} near misses of what was done, which pass now."
            found.append(Drafted(drafted.rule, [words, *drafted.comments]))
    return found
