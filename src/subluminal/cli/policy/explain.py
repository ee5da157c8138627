"""`sub policy explain`."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from subluminal.cli.policy.predicates import predicate_lines
from subluminal.cli.policy.source import compiled
from subluminal.cli.render.columns import pad, width
from subluminal.cli.render.moments import parsed
from subluminal.cli.render.output import DECISION_COLOURS, paint, print_json
from subluminal.contracts.canonical import parse
from subluminal.contracts.errors import CanonicalError, UsageError
from subluminal.contracts.identity import Identity
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.policy.replay.explain import Explanation, explain_call
from subluminal.reports.printable import printable

MAX_REPEAT = 100_000
MAX_VALUE_CHARS = 60  # of an argument, in the line of a rule


@click.command("explain")
@click.argument("file", metavar="FILE")
@click.option("--server", "server_name", required=True, help="server_name of the call.")
@click.option("--tool", "tool_name", required=True, help="tool_name of the call.")
@click.option("--args", "args", default="{}", metavar="JSON", help="Arguments, a JSON object. Default: {}.")
@click.option("--agent-id", default="unknown", help="Who calls, for selectors.")
@click.option("--client", type=click.Choice(CLIENTS), default="unknown")
@click.option("--env", type=click.Choice(ENVS), default="unknown")
@click.option("--workload", metavar="JSON", help='For selectors, for example {"repo": "acme/web"}.')
@click.option("--risk-class", "risk_class", multiple=True, help="A class that the server itself gives the tool.")
@click.option("--at", metavar="TIME", help="UTC time of the call, such as 2026-01-31T12:00:00Z. Default: now.")
@click.option(
    "--repeat", type=click.IntRange(1, MAX_REPEAT), default=1, help="Make the call so often; explain the last."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: decision, trace and policy.")
def explain_command(
    file: str,
    server_name: str,
    tool_name: str,
    args: str,
    agent_id: str,
    client: str,
    env: str,
    workload: str | None,
    risk_class: tuple[str, ...],
    at: str | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Put one call to a policy and show, rule by rule, how the decision comes about. Nothing is executed.

    \b
    Examples:
      sub policy explain policy.yaml --server fs --tool delete_file --args '{"path": "/"}'
      sub policy explain policy.yaml --server fs --tool read_file --repeat 21   the 21st such call in a row
      sub policy explain policy.yaml --server db --tool query --env prod --at 2026-01-31T03:00:00Z --json
    """
    raw = _object(args, "--args")
    known = parse(_object(workload, "--workload")) if workload else None
    identity = Identity("explain", agent_id, client, env, None, known)
    policy, wall_ms, classes = compiled(file), _milliseconds(at), frozenset(risk_class)
    explanation = explain_call(
        policy, identity, server_name, tool_name, raw, wall_ms=wall_ms, risk_classes=classes, repeat=repeat
    )
    if as_json:
        print_json(explanation.as_dict())
    else:
        _print(explanation, server_name, tool_name)


def _object(text: str, option: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    try:
        value = parse(raw)
    except CanonicalError as error:
        hint = f"""Quote it for the shell: {option} '{{"key": 1}}'"""
        raise UsageError(f"{option} is not one JSON object: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object", hint=f"""For example: {option} '{{"key": 1}}'""")
    return raw


def _milliseconds(at: str | None) -> int:
    if at is None:
        return time.time_ns() // 1_000_000
    moment = parsed(at)
    if moment is None:
        raise UsageError(f"--at {at} is not a time", hint="Write it as 2026-01-31T12:00:00Z.")
    return int(moment.timestamp() * 1000)


def _print(explanation: Explanation, server_name: str, tool_name: str) -> None:
    snapshot, decision = explanation.snapshot, explanation.decision
    name = printable(f"{snapshot['policy_id']} {snapshot['version']}")
    print(f"policy    {name} ({snapshot['mode']})  {snapshot['policy_hash'][:12]}")
    print(f"call      {printable(tool_name)} on {printable(server_name)}")
    if explanation.tags:
        print(f"classes   {printable(', '.join(explanation.tags))}")
    if explanation.left_out:
        print(f"          This policy does not apply here: {printable(explanation.left_out)}.")
    print()
    names = [printable(record["rule_id"]) for record in explanation.trace]
    cells = max(map(width, names), default=0)
    for number, (name, record) in enumerate(zip(names, explanation.trace, strict=True), 1):
        print(f"{number:4}  {pad(name, cells)}  {record['kind']:<10}  {_outcome(record)}")
        for line in predicate_lines(record["predicates"]):
            print(line)
    if explanation.trace:
        print()
    _print_decision(decision)


def _outcome(record: dict[str, Any]) -> str:
    text = printable(str(record["why"]))
    if record["readings"]:
        text += f" ({', '.join(map(_reading, record['readings']))})"
    if record["decision"]:
        action = paint(record["decision"], DECISION_COLOURS.get(record["decision"]))
        text += f" -> {action} ({printable(record['reason_code'])})"
    before, after = record["state_before"], record["state_after"]
    if record["matched"] and before != after:
        text += f"  [{_state(before)} -> {_state(after)}]"
    return text


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
    print(f"          {printable(decision['summary'])}")
    if "backoff_ms" in decision:
        print(f"backoff   {decision['backoff_ms']} ms")
    if "hint" in decision:
        print(f"hint      {printable(decision['hint']['hint_text'])}")
        if decision["hint"]["suggested_args"] is not None:
            print(f"          {printable(msgspec.json.encode(decision['hint']['suggested_args']).decode())}")
    if "terminate" in decision:
        end = decision["terminate"]
        words = printable(f"{end['terminate_code']}: {end['terminate_message']}")
        print(f"ends run  {words}")
    if "would" in decision:
        would = decision["would"]
        action = paint(would["action"], DECISION_COLOURS.get(would["action"]))
        cause = printable(f"rule {would['rule_id']}, {would['reason_code']}")
        print(f"would     {action}  {cause} (if the mode were not observe)")
