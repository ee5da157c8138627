"""`sub kill`: the emergency stop of a run."""

from __future__ import annotations

import os
import signal
import time

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError
from subluminal.host.run.processes import run_processes
from subluminal.host.run.registration import registered
from subluminal.host.run.state import SharedState, list_runs
from subluminal.reports.printable import printable

# `sub run` looks ten times a second and needs up to 3.6 s to end an agent that will not.
WAIT_S = 6.0
_POLL_S = 0.05
MIN_PREFIX = 4


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
    targets = _targets(run)
    if not targets:
        raise UsageError("there is no run to stop", hint="`sub runs` lists them.")
    killed = [target for target in targets if SharedState.kill(target, "OPERATOR", reason)]
    left = _wait_for_agents(killed)
    if as_json:
        missing = [target for target in targets if target not in killed]
        print_json({"killed": killed, "not_found": missing, "processes_left": left})
    else:
        for target in targets:
            found = target in killed
            note(f"stopped {printable(target)}" if found else f"sub: no run {target!r} has state on this machine")
        if left:
            note(f"sub: still running: {', '.join(map(str, left))}")
    return 0 if killed and not left else 1


def _targets(run: str | None) -> list[str]:
    known = list_runs()
    if run is None:
        return [info.run_id for info in known if info.terminated is None]
    if run == "last":
        return [info.run_id for info in known[:1]]
    ids = [info.run_id for info in known]
    if run in ids or len(run) < MIN_PREFIX:
        return [run]
    matches = [run_id for run_id in ids if run_id.startswith(run)]
    if len(matches) > 1:
        shown = ", ".join(printable(run_id) for run_id in matches[:5])
        raise UsageError(f"{run!r} is the beginning of {len(matches)} runs", hint=f"Give more of it: {shown}")
    return matches or [run]


def _wait_for_agents(run_ids: list[str]) -> list[int]:
    """Until whoever keeps these runs has ended their agents; the processes that are left after a while."""
    keepers = {run_id: registered(run_id) for run_id in run_ids}
    for pid in (pid for pids in keepers.values() for pid in pids):
        _wake(pid)
    deadline = time.monotonic() + WAIT_S
    kept = [run_id for run_id, pids in keepers.items() if pids]
    while any(registered(run_id) for run_id in kept) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [pid for run_id in kept if registered(run_id) for pid in run_processes(run_id)]


def _wake(pid: int) -> None:
    """A keeper that was stopped with Ctrl-Z could not obey."""
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass
