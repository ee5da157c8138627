"""`sub hints`: each rule that refused, throttled or hinted, and what the agents did next."""

from __future__ import annotations

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.record.columns import print_table, share
from subluminal.cli.record.nothing_yet import say_nothing_found
from subluminal.cli.record.query import bring_up_to_date
from subluminal.cli.render.columns import terminal_columns
from subluminal.cli.render.moments import short_time
from subluminal.cli.render.output import paint
from subluminal.cli.render.rows import print_json_rows
from subluminal.contracts.filters import HINT_FILTERS, HintFilters
from subluminal.contracts.short_ids import short
from subluminal.ledger.read.hints import hint_rules
from subluminal.ledger.read.ledger import Row, open_or_empty
from subluminal.reports.printable import printable

HELP = """Show the rules that refused, throttled or hinted, and what the agents did next.

After a refusal an agent may correct itself and succeed, repeat, go to another tool, give up, or end. How this is found
in the record is a documented rule (docs/control.md); the transcripts of Claude Code and Codex, where they are still on
disk, tell which calls were made at once. RECOVERY is the share of refusals that were corrected, of those that are not
still open and that no operator let through; CALLS is how many calls it took.

With --rule everything is told of one rule: each hint text, and examples to look at with `sub show` and `sub promote`.
With --run it is told of these runs only; `sub runs --wide` has the recovery of each.

\b
Examples:
  sub hints
  sub hints --since today
  sub hints --rule no-force-push
  sub hints --run last
  sub hints --json | jq 'select(.recovery_rate != null and .recovery_rate < 0.5) | .rule_id'
"""

OPTIONS = [
    *filter_options(HINT_FILTERS),
    Option("--no-transcripts", "no_transcripts", "Go by times alone; read no transcript of a client.", is_flag=True),
    Option("--json", "as_json", "One JSON object for each rule.", is_flag=True),
    Option("--no-sync", "no_sync", "Do not take in what still lies in the spool.", is_flag=True),
]

_HEADER = ["RULE", "REFUSED", "RECOVERY", "CALLS", "CORRECTED", "REPEATED", "OTHER TOOL", "GAVE UP", "ENDED", "OPEN",
    "PROMOTED", "RUNS", "REASON"]  # fmt: skip
_DROPPED = ("REASON", "PROMOTED", "RUNS", "OPEN", "CALLS", "ENDED")
_OUTCOMES = ("corrected", "repeated", "other_tool", "gave_up", "ended", "open", "promoted")


def hints(values: Values) -> int:
    bring_up_to_date(values["no_sync"])
    sources = None
    if not values["no_transcripts"]:
        from subluminal.control.hints.messages import transcript_messages

        sources = transcript_messages
    with open_or_empty() as ledger:
        filters = HintFilters(**conditions(HINT_FILTERS, values, ledger))
        rules = hint_rules(ledger, filters, sources)
        if not rules:
            say_nothing_found(ledger, "No call was refused, throttled or hinted.")
    if values["as_json"]:
        print_json_rows(rules)
    elif values["rule_id"]:
        print("\n\n".join("\n".join(_whole(rule)) for rule in rules))
    elif rules:
        drop = tuple(_HEADER.index(title) for title in _DROPPED)
        numbers = tuple(range(1, len(_HEADER) - 1))
        print_table([_row(rule) for rule in rules], _HEADER, numbers=numbers, drop=drop, total=terminal_columns())
    return 0


def _name(rule: Row) -> str:
    return printable(rule["rule_id"] or f"({rule['reason_code']})")


def _calls(calls: float | None) -> str:
    return "-" if calls is None else f"{calls:.1f}"


def _row(rule: Row) -> list[str]:
    outcomes = [str(rule["outcomes"][word]) for word in _OUTCOMES]
    figures = [str(rule["refused"]), share(rule["recovery_rate"]), _calls(rule["calls_to_recovery"])]
    return [_name(rule), *figures, *outcomes, str(rule["runs"]), printable(rule["reason_code"])]


def _whole(rule: Row) -> list[str]:
    """Everything of one rule."""
    lines = [
        paint(_name(rule), None, bold=True) + f"  {printable(rule['reason_code'])}",
        f"  refused    {_counts(rule['actions'])} in {_plural(rule['runs'], 'run')}, "
        f"{short_time(rule['first_at'])} to {short_time(rule['last_at'])}",
        f"  agents     {_names(rule['agents'], 'agent_id')}",
        f"  tools      {_names(rule['tools'], 'tool')}",
        *_tally(rule, "  "),
    ]
    if rule["by_time"]:
        told = f"of {_plural(rule['by_time'], 'refusal')} only times tell what followed: calls made at once count too"
        lines.append(f"  doubt      {told}")
    for hint in rule["hints"]:
        lines += [f"  hint       {printable(hint['hint_text'])}", *_tally(hint, "    ")]
    for example in rule["examples"]:
        following = "" if example["next_tool"] is None else f", then {printable(example['next_tool'])}"
        outcome = example["outcome"].replace("_", " ")
        lines.append(
            f"  {short_time(example['at'])}  {printable(short(example['call_id']))}  {printable(example['tool'])}:"
            f" {outcome}{following}"
        )
    return lines


def _tally(tally: Row, indent: str) -> list[str]:
    found = {word.replace("_", " "): count for word, count in tally["outcomes"].items()}
    recovered = f"{share(tally['recovery_rate'])} of {tally['counted']}"
    if tally["calls_to_recovery"] is not None:
        recovered += f", after {_calls(tally['calls_to_recovery'])} calls"
    if tally["as_hinted"]:
        recovered += f", {tally['as_hinted']} exactly as suggested"
    return [f"{indent}recovery   {recovered}", f"{indent}then       {_counts(found)}"]


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counted.items() if count) or "nothing"


def _names(counted: list[Row], key: str) -> str:
    return printable(", ".join(f"{row[key]} ({row['refused']})" for row in counted))


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


HINTS = Command("hints", hints, HELP, OPTIONS)
