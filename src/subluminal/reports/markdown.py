"""A run as a short Markdown page for the job's own page. Text from agents and servers is shown, never obeyed."""

from __future__ import annotations

import re

from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.reports.printable import printable
from subluminal.reports.usage import usage_told

MAX_ROWS = 50
_MAX_CELL = 300


def markdown(facts: RunFacts, verdict: str, problems: list[str]) -> str:
    counts = facts.counts
    lines = [
        f"## Subluminal: {_cell(facts.agent_id or 'agent')}",
        "",
        f"**{_cell(verdict)}**",
        "",
        "| calls | allowed | refused | throttled | errors |",
        "|---:|---:|---:|---:|---:|",
        f"| {counts.total} | {counts.allowed} | {counts.blocked} | {counts.throttled} | {counts.errors} |",
        "",
    ]
    if problems:
        lines += ["### Problems", "", *(f"- {_cell(problem)}" for problem in problems[:MAX_ROWS]), ""]
    if facts.refusals:
        lines += ["### Refused calls", "", "| decision | tool | rule | why | what to do |", "|---|---|---|---|---|"]
        for refusal in facts.refusals[:MAX_ROWS]:
            tool = _cell(f"{refusal.server_name}/{refusal.tool_name}")
            rule = f"{_cell(refusal.rule_id or refusal.reason_code)} ({refusal.severity})"
            lines.append(f"| {refusal.action} | {tool} | {rule} | {_cell(refusal.summary)} | {_cell(refusal.advice)} |")
        left = facts.refused - min(len(facts.refusals), MAX_ROWS)
        if left > 0:
            lines += ["", f"and {left} more; see report.html or events.jsonl."]
        lines.append("")
    if facts.drifts:
        lines += ["### Tools that differ from their pins", ""]
        for drift in list(facts.drifts.values())[:MAX_ROWS]:
            lines += [f"- {_cell(drift.title)}: {_cell(', '.join(drift.fields) or 'its text')}", ""]
            # Indented, so that nothing in it is markup.
            lines += [f"      {printable(line)[:_MAX_CELL]}" for line in drift.diff[:MAX_ROWS]]
            lines.append("")
    if facts.would_refuse:
        lines += [f"Only observed: {facts.would_refuse} calls would have been refused.", ""]
    if facts.usage is not None:
        lines += [f"Model: {_cell(usage_told(facts.usage))}.", ""]
    policies = ", ".join(f"{_cell(p.policy_id)} {_cell(p.policy_version)}" for p in facts.policies.values())
    lines += [f"Run {_cell(facts.run_id)}, mode {_cell(facts.mode or 'unknown')}, policy {policies or 'unknown'}.", ""]
    return "\n".join(lines)


_SPACES = dict.fromkeys(map(ord, "\t\n\r"), " ")
# Markup becomes plain characters; with the colon gone, nothing turns into a link by itself.
_PLAIN = {ord(c): f"\\{c}" for c in "\\`*_{}[]()#+!|~$-"} | {ord(c): f"&#{ord(c)};" for c in "&<>@:"}


def _cell(text: str) -> str:
    """One cell of plain text: no markup, no link, no HTML, no mention, no line break, nothing invisible."""
    text = printable(text[:_MAX_CELL].translate(_SPACES)) + ("…" if len(text) > _MAX_CELL else "")
    return re.sub(r"(?i)\bwww\.", lambda found: found.group()[:3] + "&#46;", text.translate(_PLAIN))
