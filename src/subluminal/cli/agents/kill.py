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

    RUN is an id, a beginning or end of one, `last`, or `last~1`. An agent that was started without `sub run` goes on,
    but can call no tool. The order and its reason are in the run's timeline. Exit code: 0 stopped; 1 no such run, one
    that had ended before, or a process that could not be ended.

    \b
    Examples:
      sub kill last --reason 'it loops'
      sub kill run-019a
      sub kill --all --reason 'runaway agents'
    """
    if every == (run is not None):
        raise UsageError("name one run, or --all", hint="`sub runs` lists them; `last` is the most recent.")
    targets = runs_named(run)
    done = kill_runs(targets, reason)
    if as_json:
        names = {"killed": done.killed, "ended_before": done.ended, "not_found": done.not_found}
        print_json({**names, "processes_left": done.left})
    else:
        if not targets:
            note("There is no run to stop. `sub runs` lists runs.")
        for target in targets:
            if target in done.ended:
                note(f"{printable(target)} had ended before: there was nothing to stop")
            elif target in done.killed:
                note(f"stopped {printable(target)}")
            else:
                note(f"sub: no run {target!r} has state on this machine; `sub state` lists those that have")
        if done.left:
            note(f"sub: still running: {', '.join(map(str, done.left))}")
    return 0 if set(done.killed) - set(done.ended) and not done.left else 1
