"""What a replay came to, in lines for a person. The same replay gives the same lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subluminal.cli.render.output import paint
from subluminal.contracts.short_ids import short
from subluminal.reports.printable import count, printable

if TYPE_CHECKING:
    from subluminal.runs.replay.as_if import AsIf
    from subluminal.runs.replay.comparing import Comparison

# Of each kind so many are named; the JSON has all.
MAX_NAMED = 20


def told_comparison(comparison: Comparison) -> list[str]:
    facts = comparison.as_dict()
    calls = facts["calls"]
    lines = [
        f"replay of {printable(facts['run_id'])}: {calls['same']} of {count(calls['recorded'], 'call')} the same"
        if comparison.differs
        else f"replay of {printable(facts['run_id'])}: {count(calls['recorded'], 'call')}, all as on record"
    ]
    for title, key, colour, words in (
        ("other decision", "other_decisions", "red", _decision),
        ("other call, not on record", "other_calls", "yellow", _other),
        ("not made this time", "not_made", "yellow", _named),
        ("no answer on record", "unanswered", "yellow", _unanswered),
    ):
        lines += _part(title, facts[key], colour, words)
    for what, number in (
        ("answered once more with its last answer", calls["repeated"]),
        ("compared without the members that are ignored", calls["ignoring"]),
        ("answered with values masked", calls["masked"]),
    ):
        if number:
            lines.append(f"{count(number, 'call')} {what}")
    lines += _builtin(facts["builtin"])
    for transport, number in facts["elsewhere"].items():
        lines.append(f"{count(number, 'call')} seen at another door ({transport}): not replayed")
    return lines


def _part(title: str, rows: list[dict[str, Any]], colour: str, words: Any) -> Iterator[str]:
    if rows:
        yield paint(f"{title}: {count(len(rows), 'call')}", colour)
        for row in rows[:MAX_NAMED]:
            yield "  " + printable(words(row))
        if len(rows) > MAX_NAMED:
            yield f"  and {len(rows) - MAX_NAMED} more"


def _tool(row: dict[str, Any]) -> str:
    return f"{row['server_name']}/{row['tool_name']}"


def _named(row: dict[str, Any]) -> str:
    return f"{_tool(row)}  {short(row['call_id'])}"


def _decision(row: dict[str, Any]) -> str:
    return f"{_named(row)}: {_said(row['was'])} -> {_said(row['now'])}"


def _said(decision: dict[str, Any]) -> str:
    return f"{decision['action']} ({decision['rule_id'] or 'no rule'}, {decision['reason_code']})"


def _other(row: dict[str, Any]) -> str:
    nearest = row["nearest"]
    if nearest is None:
        return f"{_tool(row)}: nothing like it is on record"
    keys = f", which differs in {', '.join(nearest['keys'])}" if nearest["keys"] else ""
    return f"{_tool(row)}: nearest is {short(nearest['call_id'])}{keys}"


def _unanswered(row: dict[str, Any]) -> str:
    return f"{_named(row)}: {row['state']}"


def _builtin(builtin: dict[str, Any] | None) -> list[str]:
    if builtin is None:
        return []
    if not builtin["hooks"]:
        return [paint("no hooks of ours told of the agent's own tools: what it ran itself really ran", "yellow")]
    lines = []
    if builtin["refused"]:
        lines.append(f"{count(builtin['refused'], 'call')} of the agent's own tools refused: a replay runs none")
    if builtin["ran"]:
        lines.append(paint(f"{count(builtin['ran'], 'call')} of the agent's own tools really ran", "red"))
    return lines


def told_as_if(judged: AsIf) -> list[str]:
    facts = judged.as_dict()
    policy, calls = facts["policy"], facts["calls"]
    name = printable(f"{policy['policy_id']} {policy['version']}")
    lines = [f"run {printable(facts['run_id'])} under {name}, {count(calls['judged'], 'call')}:"]
    if not judged.selected:
        return [*lines, "the policy's selectors leave this run out: nothing would change"]
    for each in judged.calls:
        lines.append(_timeline(each))
    lines.append(
        f"{calls['newly_refused']} newly refused, {calls['newly_allowed']} newly let through, "
        f"{calls['unknown']} unknown, {calls['judged'] - calls['changed'] - calls['unknown']} unchanged"
    )
    if calls["skipped"]:
        lines.append(f"{count(calls['skipped'], 'call')} left out: stopped by an operator, or never decided")
    if judged.differs:
        lines.append("After a refusal the agent might have gone another way: sub replay RUN --policy FILE -- AGENT")
    return lines


def _timeline(each: Any) -> str:
    tool = printable(f"{each.call.server_name}/{each.call.tool_name}  {short(each.call.call_id)}")
    if each.unknown is not None:
        return paint(f"?  {tool}: {each.was['action']}, now unknown ({each.unknown})", "yellow")
    if not each.changed:
        return f"=  {tool}: {each.was['action']}"
    line = f"{'!' if each.turned else '~'}  {tool}: {printable(_said(each.was))} -> {printable(_said(each.now))}"
    return paint(line, "red" if each.turned else None)
