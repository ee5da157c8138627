"""`sub policy diff`."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.policy.source import compiled
from subluminal.cli.render.output import paint, print_json
from subluminal.policy.diff.change import SEVERITIES, Change
from subluminal.policy.diff.snapshots import diff_snapshots
from subluminal.reports.printable import count, printable

_COLOURS = {"critical": "red", "warn": "yellow", "info": "green"}


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--detailed-exitcode", is_flag=True, help="0 no difference, 1 error, 2 the policies differ.")
@click.option("--fail-on", type=click.Choice(SEVERITIES), help="Exit 1 on a change of this severity or above.")
def diff_command(old: str, new: str, as_json: bool, detailed_exitcode: bool, fail_on: str | None) -> int:
    """Say what changed between two policies and which way: what loosens a deny or a limit is critical, what
    tightens is info. Formatting, comments and key order are no difference; the order of rules is.

    \b
    Exit codes:
      0  compared (with --detailed-exitcode: no difference)
      1  a policy has errors, or --fail-on was met
      2  usage error (with --detailed-exitcode also: the policies differ)

    \b
    Examples:
      sub policy diff old.yaml new.yaml
      git show main:.subluminal/policy.yaml | sub policy diff - .subluminal/policy.yaml --fail-on critical
    """
    before, after = compiled(old), compiled(new)
    changes = diff_snapshots(before, after)
    if as_json:
        print_json(
            {
                "old": _named(before, old),
                "new": _named(after, new),
                "identical": not changes,
                "summary": _totals(changes),
                "changes": [change.as_dict() for change in changes],
            }
        )
    else:
        _print(before, after, changes)
    if fail_on and any(SEVERITIES.index(change.severity) >= SEVERITIES.index(fail_on) for change in changes):
        return 1
    return 2 if detailed_exitcode and changes else 0


def _named(snapshot: dict[str, Any], path: str) -> dict[str, str]:
    return {
        "file": path,
        "policy_id": snapshot["policy_id"],
        "policy_version": snapshot["version"],
        "policy_hash": snapshot["policy_hash"],
    }


def _totals(changes: list[Change]) -> dict[str, int]:
    return {severity: sum(1 for c in changes if c.severity == severity) for severity in reversed(SEVERITIES)}


def _print(before: dict[str, Any], after: dict[str, Any], changes: list[Change]) -> None:
    print(printable(f"{before['policy_id']} {before['version']} -> {after['policy_id']} {after['version']}"))
    if not changes:
        print("No difference.")
        return
    for change in changes:
        severity = paint(f"{change.severity:<8}", _COLOURS[change.severity], bold=change.severity == "critical")
        where = printable(change.rule_id if change.rule_id is not None else "policy")
        print(f"  {severity}  {where}: {printable(change.summary)} ({change.direction})")
    totals = ", ".join(f"{number} {severity}" for severity, number in _totals(changes).items() if number)
    print(f"{count(len(changes), 'change')}: {totals}")
