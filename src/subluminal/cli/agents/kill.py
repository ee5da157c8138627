"""`sub kill`: the emergency stop of a run."""

from __future__ import annotations

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError
from subluminal.reports.printable import printable
from subluminal.runs.kill import kill_runs, runs_named


@click.command("kill")
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run on this machine.")
@click.option("--reason", default="stopped by the operator", help="Shown to the agent with each refusal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def kill_command(run: str | None, every: bool, reason: str, as_json: bool) -> int:
    """Stop a run: every further tool call of RUN is refused, and `sub run` ends the agent.

    RUN is an id, the beginning of one, or `last`. An agent that was started without `sub run` goes on, but can call no
    tool. Exit code: 0 stopped, 1 no such run or a process that could not be ended.

    \b
    Examples:
      sub kill last
      sub kill run-019a
      sub kill --all --reason 'runaway agents'
    """
    if every == (run is not None):
        raise UsageError("name one run, or --all", hint="`sub runs` lists them; `last` is the most recent.")
    targets = runs_named(run)
    if not targets:
        raise UsageError("there is no run to stop", hint="`sub runs` lists them.")
    done = kill_runs(targets, reason)
    if as_json:
        print_json({"killed": done.killed, "not_found": done.not_found, "processes_left": done.left})
    else:
        for target in targets:
            found = target in done.killed
            note(f"stopped {printable(target)}" if found else f"sub: no run {target!r} has state on this machine")
        if done.left:
            note(f"sub: still running: {', '.join(map(str, done.left))}")
    return 0 if done.killed and not done.left else 1
