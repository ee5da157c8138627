"""The emergency stop: every further tool call of a run is refused, and whoever keeps the run ends its agent."""

from __future__ import annotations

import signal
import time
from typing import NamedTuple

from subluminal.contracts.errors import UsageError
from subluminal.contracts.short_ids import named, runs_back
from subluminal.host.run.listing import kill, list_runs
from subluminal.host.run.processes import run_processes, send_signal
from subluminal.host.run.registration import registered
from subluminal.reports.printable import printable

# `sub run` looks ten times a second and needs up to 3.6 s to end an agent that will not.
WAIT_S = 6.0
_POLL_S = 0.05


class Killed(NamedTuple):
    """`left`: processes of the runs that were still there after a while."""

    killed: list[str]
    not_found: list[str]
    left: list[int]


def runs_named(run: str | None) -> list[str]:
    """The runs that are meant (`short_ids`), as far as they have state here; None: all that are not stopped yet."""
    known = list_runs()
    if run is None:
        return [info.run_id for info in known if info.terminated is None]
    back = runs_back(run)
    if back is not None:
        return [info.run_id for info in known[back : back + 1]]
    matches = named(run, [info.run_id for info in known])
    if len(matches) > 1:
        shown = ", ".join(printable(run_id) for run_id in matches[:5])
        raise UsageError(f"{run!r} may be any of {len(matches)} runs", hint=f"Give more of it: {shown}")
    return matches or [run]


def kill_runs(run_ids: list[str], reason: str) -> Killed:
    killed = [run_id for run_id in run_ids if kill(run_id, "OPERATOR", reason)]
    return Killed(killed, [run_id for run_id in run_ids if run_id not in killed], _wait_for_agents(killed))


def _wait_for_agents(run_ids: list[str]) -> list[int]:
    """Until whoever keeps these runs has ended their agents; the processes that are left after a while."""
    keepers = {run_id: registered(run_id) for run_id in run_ids}
    for pid in (pid for pids in keepers.values() for pid in pids):
        send_signal(pid, signal.SIGCONT)  # a keeper that was stopped with Ctrl-Z could not obey
    deadline = time.monotonic() + WAIT_S
    kept = [run_id for run_id, pids in keepers.items() if pids]
    while any(registered(run_id) for run_id in kept) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [pid for run_id in kept if registered(run_id) for pid in run_processes(run_id)]
