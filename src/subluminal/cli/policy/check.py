"""`sub policy check`: what a policy would have decided about calls that were recorded."""

from __future__ import annotations

import gc

import click

from subluminal.cli.policy.source import compiled
from subluminal.cli.policy.stacked import is_of_repository
from subluminal.cli.render.output import note, paint, print_json
from subluminal.contracts.errors import UsageError
from subluminal.ledger.read.history import recorded_runs
from subluminal.policy.replay.backtest import Backtest, Group
from subluminal.reports.printable import count, printable


@click.command("check")
@click.argument("policy", metavar="POLICY")
@click.argument("more", metavar="[SOURCE]...", nargs=-1)
@click.option("--against", multiple=True, metavar="SOURCE", help="What was recorded; may be given several times.")
@click.option("--fail-on-new-blocks", is_flag=True, help="Exit 1 if a call that was let through would be refused.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def check_command(
    policy: str, more: tuple[str, ...], against: tuple[str, ...], fail_on_new_blocks: bool, as_json: bool
) -> int:
    """Judge recorded calls again under POLICY and say what would newly be refused or let through.

    A SOURCE is a ledger.db, a trace bundle, a JSONL file of events, or `ledger` for this machine's. Each run is
    replayed with its own budgets, rates, breakers and dedupe windows at the recorded times. Where a rule depends on
    arguments that the record holds only in part, the call is counted as unknown, never guessed.

    \b
    Exit codes:
      0  compared
      1  the policy has errors, or --fail-on-new-blocks was met
      2  usage error, or a source cannot be read

    \b
    Examples:
      sub policy check .subluminal/policy.yaml --against ledger
      sub policy check new.yaml --against trace.tar.gz other/ --fail-on-new-blocks
    """
    if not against:
        raise UsageError("--against is missing", hint="Name a ledger, a bundle or a file of events; or `ledger`.")
    gc.disable()  # millions of small objects, no cycles, and the process ends afterwards: collecting costs a third
    backtest = Backtest(compiled(policy), of_repository=is_of_repository(policy))
    for source in (*against, *more):
        for run in recorded_runs(source):
            backtest.replay(run)
    if as_json:
        print_json({"policy": policy, "against": [*against, *more], **backtest.as_dict()})
    else:
        _print(backtest)
    return 1 if fail_on_new_blocks and backtest.new_blocks else 0


def _print(backtest: Backtest) -> None:
    name = f"{backtest.snapshot['policy_id']} {backtest.snapshot['version']}"
    print(f"{printable(name)} over {count(backtest.calls, 'call')} of {count(backtest.runs_selected, 'run')}")
    if backtest.runs_selected < backtest.runs:
        note(f"{count(backtest.runs - backtest.runs_selected, 'run')} left out: the policy's selectors do not match.")
    for title, groups, colour in (
        ("newly refused", backtest.newly_refused, "red"),
        ("newly let through", backtest.newly_allowed, "yellow"),
        ("refused as before, but otherwise", backtest.refused_otherwise, None),
        ("unknown", backtest.unknown, "yellow"),
    ):
        if groups.count():
            print(paint(f"{title}: {count(groups.count(), 'call')}", colour))
            for group in groups.ordered():
                _print_group(group)
    print(f"unchanged: {backtest.still_allowed} let through, {backtest.still_refused} refused")
    if backtest.would_refuse:
        print(f"observe mode: {count(backtest.would_refuse, 'call')} would be refused if it were enforced")
    if backtest.skipped:
        note(f"{count(backtest.skipped, 'call')} left out: stopped by an operator, or never decided.")


def _print_group(group: Group) -> None:
    rule = group.rule_id or "no rule"
    print(f"  {group.count:>7}  {group.action}  {printable(rule)}  ({printable(group.reason_code)})")
    for example in group.examples:
        tool = f"{example['server_name']}/{example['tool_name']}"
        print(printable(f"           {tool}  call {example['call_id']} of {example['run_id']}: {example['summary']}"))
