"""`sub policy explain`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

import msgspec

from subluminal.cli.options import Argument, Command, Option, Values
from subluminal.cli.policy.known_tool import KnownTool
from subluminal.cli.policy.predicates import predicate_lines
from subluminal.cli.policy.stacked import judging, print_together, together
from subluminal.cli.policy.who import IDENTITY_OPTIONS, acting_as, acting_here, given_identity, json_object
from subluminal.cli.render.columns import cut, pad, terminal_columns, width
from subluminal.cli.render.moments import parsed
from subluminal.cli.render.output import DECISION_COLOURS, paint, print_json
from subluminal.contracts.errors import UsageError
from subluminal.core.engine.trace import RISK_CLASS_DIFFERS
from subluminal.policy.replay.explain import Explanation, explain_call
from subluminal.reports.printable import printable

MAX_REPEAT = 100_000
MARGIN = 10  # the titles of what is told below the rules
MAX_VALUE_CHARS = 60  # of an argument, in the line of a rule


HELP = """Put one call to a policy and show, rule by rule, how the decision comes about. Nothing is executed.

Without FILE, to every policy that is in force here; the strictest decision wins. The call is what the options say,
or one that was recorded (`sub query` lists their ids): then counters stand as the calls of its run before it left
them, and where the record has masked or cut a value that a rule looks at, the decision is said to be uncertain.

\b
Exit codes:
  0  explained
  1  a policy has errors
  2  usage error, or there is no such call

\b
Examples:
  sub policy explain --server fs --tool delete_file --args '{"path": "/"}'
  sub policy explain policy.yaml --server fs --tool read_file --repeat 21   the 21st such call in a row
  sub policy explain policy.yaml --server db --tool query --env prod --at 2026-01-31T03:00:00Z --json
  sub policy explain --call s01a1e3cbe927fcb691858769d1a0-6   a recorded call, under what is in force here
  sub policy explain new.yaml --call s01a1e3cbe927fcb691858769d1a0-6
"""

OPTIONS = [
    Option("--server", "server_name", "server_name of the call."),
    Option("--tool", "tool_name", "tool_name of the call."),
    Option("--args", "args", "Arguments, a JSON object. Default: {}.", metavar="JSON"),
    *IDENTITY_OPTIONS,
    Option("--risk-class", "risk_class", "A class that the server itself gives the tool.", multiple=True),
    Option("--at", "at", "UTC time of the call, such as 2026-01-31T12:00:00Z. Default: now.", metavar="TIME"),
    Option("--repeat", "repeat", "Make the call so often; explain the last.", kind=int, bounds=(1, MAX_REPEAT)),
    Option("--call", "call_id", "A recorded call: its id, or a beginning or end of it.", metavar="ID"),
    Option("--run", "run", "The run of the recorded call, where several use its id.", metavar="RUN"),
    Option("--shim", "shim", "The shim of the recorded call, where several of a run use its id.", metavar="SHIM"),
    Option("--json", "as_json", "One JSON object: decision, trace and policy.", is_flag=True),
]


def explain(values: Values) -> int:
    given = dict(values)
    file, call_id, as_json = given.pop("file"), given.pop("call_id"), given.pop("as_json")
    if call_id is not None:
        return _explain_recorded(file, call_id, given, as_json)
    return _explain_given(file, given, as_json)


def _explain_given(file: str | None, given: dict[str, Any], as_json: bool) -> int:
    server_name, tool_name = given["server_name"], given["tool_name"]
    if server_name is None or tool_name is None or given["run"] or given["shim"]:
        missing = (
            "--run and --shim go with --call" if given["run"] or given["shim"] else "--server and --tool are needed"
        )
        raise UsageError(missing, hint="Name a call with --server S --tool T, or a recorded one with --call ID.")
    raw = json_object(given["args"] or "{}", "--args")
    who = given_identity(given)
    identity = acting_here(**who) if file is None else acting_as(**who)
    wall_ms, classes = _milliseconds(given["at"]), frozenset(given["risk_class"])
    tool = KnownTool(server_name, tool_name)
    explanations = [
        explain_call(
            snapshot,
            identity,
            server_name,
            tool_name,
            raw,
            wall_ms=wall_ms,
            risk_classes=classes,
            repeat=given["repeat"] or 1,
            of_repository=own,
            stands=tool.classes,
            schemas={server_name: tool.breaks_schema},
        )
        for snapshot, own in judging(file, identity)
    ]
    if as_json:
        whole = explanations[0].as_dict() if file is not None else together([one.as_dict() for one in explanations])
        print_json(whole)
        return 0
    for explanation in explanations:
        _print(explanation, server_name, tool_name, tool)
        if file is None:
            print()
    if file is None:
        print_together([one.as_dict() for one in explanations])
    return 0


def _explain_recorded(file: str | None, call_id: str, given: dict[str, Any], as_json: bool) -> int:
    from subluminal.cli.policy.recorded import doubts, header, recorded_call
    from subluminal.policy.replay.recorded import rejudge

    others = [f"--{name.removesuffix('_name').replace('_', '-')}" for name, value in given.items() if value]
    others = [name for name in others if name not in ("--run", "--shim")]
    if others:
        raise UsageError(
            f"{', '.join(others)} cannot be given with --call", hint="Leave it out: the record says what the call was."
        )
    run, call, known = recorded_call(call_id, given["run"], given["shim"])
    decided_by = (known["policy"] or {}).get("policy_hash")
    judged = [
        rejudge(snapshot, run, call, of_repository=own, decided_by=decided_by)
        for snapshot, own in judging(file, run.identity)
    ]
    if as_json:
        names = ("call_id", "run_id", "shim_id", "created_at", "decision", "rule_id", "reason_code", "policy")
        whole = judged[0].as_dict() if file is not None else together([one.as_dict() for one in judged])
        print_json({"recorded": {name: known[name] for name in names}, **whole})
        return 0
    print("\n".join(header(known)))
    print()
    for one in judged:
        _print(one.explanation)
        for line in doubts(one):
            print(line)
        print()
    if file is None:
        print_together([one.as_dict() for one in judged])
    return 0


def _milliseconds(at: str | None) -> int:
    if at is None:
        return time.time_ns() // 1_000_000
    moment = parsed(at)
    if moment is None:
        raise UsageError(f"--at {at} is not a time", hint="Write it as 2026-01-31T12:00:00Z.")
    return int(moment.timestamp() * 1000)


def _print(
    explanation: Explanation,
    server_name: str | None = None,
    tool_name: str | None = None,
    tool: KnownTool | None = None,
) -> None:
    snapshot, decision = explanation.snapshot, explanation.decision
    name = printable(f"{snapshot['policy_id']} {snapshot['version']}")
    print(f"policy    {name} ({snapshot['mode']})  {snapshot['policy_hash'][:12]}")
    if server_name is not None and tool_name is not None:
        print(f"call      {printable(tool_name)} on {printable(server_name)}")
    if explanation.tags or any(record["why"] == RISK_CLASS_DIFFERS for record in explanation.trace):
        print(f"classes   {printable(', '.join(explanation.tags)) or 'none (--risk-class adds those of the server)'}")
    if tool is not None and tool.classes:
        _print_beside("known", tool.told)
    if explanation.left_out:
        print(f"          This policy does not apply here: {printable(explanation.left_out)}.")
    print()
    names = [printable(record["rule_id"]) for record in explanation.trace]
    cells = max(map(width, names), default=0)
    for number, (name, record) in enumerate(zip(names, explanation.trace, strict=True), 1):
        _print_rule(f"{number:4}  {pad(name, cells)}  {record['kind']:<10}  ", record)
        for line in predicate_lines(record["predicates"]):
            print(line)
    if explanation.trace:
        print()
    _print_decision(decision)


def _print_rule(head: str, record: dict[str, Any]) -> None:
    """On one line where it fits; else what follows from the match stands below it, each part on a line of its own."""
    parts, columns = list(_outcome(record)), terminal_columns()
    action = paint(str(record["decision"]), DECISION_COLOURS.get(record["decision"]))
    whole = head + "  ".join(parts).replace("  ->", " ->", 1)
    lines = [whole] if columns is None or width(whole) <= columns else [head + parts[0], *parts[1:]]
    for number, line in enumerate(lines):
        shown = line if columns is None else cut(line, columns - MARGIN if number else columns)
        print(f"{' ' * MARGIN if number else ''}{shown}".replace(f"-> {record['decision']} (", f"-> {action} ("))


def _outcome(record: dict[str, Any]) -> Iterator[str]:
    """Why it did or did not match, what it decides, and how it counted."""
    readings = ", ".join(map(_reading, record["readings"]))
    yield printable(str(record["why"])) + (f" ({readings})" if readings else "")
    if record["decision"]:
        yield f"-> {record['decision']} ({printable(record['reason_code'])})"
    before, after = record["state_before"], record["state_after"]
    if record["matched"] and before != after:
        yield f"[{_state(before)} -> {_state(after)}]"


def _reading(reading: dict[str, str]) -> str:
    return f"{_clipped(reading['key'])}: {_clipped(reading['value'])} read as {_clipped(reading['read_as'])}"


def _clipped(text: str) -> str:
    return printable(text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…")


def _state(value: Any) -> str:
    return "none" if value in (None, []) else printable(msgspec.json.encode(value).decode())


def _print_decision(decision: dict[str, Any]) -> None:
    action = paint(decision["action"], DECISION_COLOURS.get(decision["action"]), bold=True)
    rule = f"rule {printable(decision['rule_id'])}" if decision["rule_id"] else "no rule"
    print(f"decision  {action}  {rule}, {printable(decision['reason_code'])}, {decision['severity']}")
    _print_beside("", decision["summary"])
    if "backoff_ms" in decision:
        print(f"backoff   {decision['backoff_ms']} ms")
    if "hint" in decision:
        _print_beside("hint", decision["hint"]["hint_text"])
        if decision["hint"]["suggested_args"] is not None:
            print(f"          {printable(msgspec.json.encode(decision['hint']['suggested_args']).decode())}")
    if "terminate" in decision:
        end = decision["terminate"]
        _print_beside("ends run", f"{end['terminate_code']}: {end['terminate_message']}")
    if "would" in decision:
        would = decision["would"]
        action = paint(would["action"], DECISION_COLOURS.get(would["action"]))
        cause = printable(f"rule {would['rule_id']}, {would['reason_code']}")
        print(f"would     {action}  {cause} (if the mode were not observe)")


def _print_beside(title: str, text: str) -> None:
    """Broken between words where there is a terminal to fit, and one line where there is none."""
    columns = terminal_columns()
    lines = [printable(text)] if columns is None else wrap(printable(text), max(20, columns - MARGIN)) or [""]
    for number, line in enumerate(lines):
        print(f"{'' if number else title:<{MARGIN}}{line}")


EXPLAIN = Command("explain", explain, HELP, OPTIONS, Argument("file", "[FILE]"))
