"""`sub state`: the counters that policies keep, of runs and of this machine."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.render.moments import duration
from subluminal.cli.render.output import note, print_json, table
from subluminal.contracts.errors import UsageError
from subluminal.host.run.listing import list_runs
from subluminal.host.run.view import Counter, StateView, reset, run_state, wide_state
from subluminal.reports.printable import count, printable
from subluminal.runs.kill import runs_named


@click.command("state")
@click.argument("run", required=False)
@click.option("--machine", is_flag=True, help="Only what outlives runs: scopes agent, principal and machine.")
@click.option("--reset", "afresh", is_flag=True, help="Set the state aside; counters begin again at zero.")
@click.option("--dry-run", is_flag=True, help="With --reset: say what would be set aside.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def state_command(run: str | None, machine: bool, afresh: bool, dry_run: bool, as_json: bool) -> int:
    """Show what budgets and rate limits have counted, their limits, and who used them.

    RUN is an id, a beginning or end of one, `last`, or `last~1`. Without it: the counters of this machine, and a list
    of the runs that have state. A rule's counters appear with its first call. Exit code: 0, or 1 if a state is damaged.

    \b
    Examples:
      sub state
      sub state last
      sub state --machine --json
      sub state last --reset
    """
    if run is not None and machine:
        raise UsageError("name one run, or --machine, not both")
    run_id = None if run is None else _named(run)
    if afresh:
        return _reset(run_id, machine, dry_run, as_json)
    if run_id is not None:
        view = run_state(run_id)
        if view is None:
            raise UsageError(
                f"run {printable(run_id)} has no state on this machine", hint="`sub state` lists those that have."
            )
        return _show({"run": view}, [], as_json)
    wide = wide_state()
    runs = [] if machine else list_runs()
    listed = [
        {"run_id": info.run_id, "calls": info.calls, "terminated": info.terminated is not None, "damage": info.damage}
        for info in runs
    ]
    return _show({} if wide is None else {"machine": wide}, listed, as_json)


def _named(run: str) -> str:
    found = runs_named(run)
    if not found:
        raise UsageError("there is no run with state", hint="`sub state` lists them.")
    return found[0]


def _reset(run_id: str | None, machine: bool, dry_run: bool, as_json: bool) -> int:
    if run_id is None and not machine:
        raise UsageError("say whose state to reset", hint="Name a run, or --machine.")
    what = "this machine" if run_id is None else printable(run_id)
    aside = None if dry_run else reset(run_id)
    if as_json:
        print_json({"reset": what, "dry_run": dry_run, "set_aside": aside})
    else:
        note(
            f"would set the state of {what} aside"
            if dry_run
            else f"the state of {what} begins anew; the old one: {aside}"
        )
    return 0


def _show(views: dict[str, StateView], runs: list[dict[str, Any]], as_json: bool) -> int:
    damaged = any(view.damage for view in views.values()) or any(run["damage"] for run in runs)
    if as_json:
        shown: dict[str, Any] = {name: _plain(view) for name, view in views.items()}
        print_json({"run": None, "machine": None, **shown, "runs": runs})
        return int(damaged)
    for name, view in views.items():
        print("\n".join(_lines(name, view)))
    if runs:
        rows = [
            [printable(run["run_id"]), str(run["calls"]), run["damage"] or ("stopped" if run["terminated"] else "")]
            for run in runs
        ]
        print(("\n" if views else "") + table(rows, ["RUN", "CALLS", ""]))
    elif not views:
        print("no state yet: it begins with the first call under a budget, a rate limit, a breaker or dedupe")
    return int(damaged)


def _plain(view: StateView) -> dict[str, Any]:
    return {**view._asdict(), "counters": [counter._asdict() for counter in view.counters]}


def _lines(name: str, view: StateView) -> list[str]:
    if view.damage:
        mend = "--machine" if name == "machine" else "RUN"
        return [f"damaged: {view.damage} ({view.path})", f"begin anew with: sub state {mend} --reset"]
    head = (
        "this machine" if name == "machine" else f"{count(view.calls, 'call')}{', stopped' if view.terminated else ''}"
    )
    lines = [head]
    if view.counters:
        rows = [_row(counter) for counter in view.counters]
        lines.append(table(rows, ["RULE", "POLICY", "KIND", "SCOPE", "USED", "LIMIT", "BY"]))
    for kind, number in view.unnamed.items():
        if number:
            lines.append(f"{number} {kind if number > 1 else kind[:-1]} of single calls (dedupe, repeats, errors)")
    if len(lines) == 1:
        lines.append("no counters yet")
    return lines


def _row(counter: Counter) -> list[str]:
    scope = counter.scope if counter.of is None else f"{counter.scope} {counter.of}"
    used = [f"{value:,} {name.replace('_', ' ')}" for name, value in counter.used.items()]
    limits = [
        f"{value:,} {name.removeprefix('limit_').replace('_', ' ')}"
        for name, value in counter.limits.items()
        if name != "window_ms"
    ]
    limit = ", ".join(limits)
    if "window_ms" in counter.limits:
        limit += f" in {duration(counter.limits['window_ms'])}"
    users = sorted(counter.used_by.items(), key=lambda user: -user[1])
    by = ", ".join(f"{run} {calls:,}" for run, calls in users[:3]) + (
        f", {len(users) - 3} more" if len(users) > 3 else ""
    )
    cells = (counter.rule_id, counter.policy_id, counter.kind, scope, ", ".join(used), limit, by)
    return [printable(cell) for cell in cells]
