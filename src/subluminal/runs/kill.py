"""The emergency stop: every further tool call of a run is refused, and whoever keeps the run ends its agent."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NamedTuple

from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.contracts.short_ids import named, runs_back
from subluminal.host import home
from subluminal.host.clock import utc_now
from subluminal.host.run.listing import kill, list_runs
from subluminal.host.run.processes import run_processes, send_signal
from subluminal.host.run.registration import registered
from subluminal.reports.printable import printable

# `sub run` looks ten times a second and needs up to 3.6 s to end an agent that will not.
WAIT_S = 6.0
OPERATOR = "OPERATOR"
RUNNING = "RUNNING"
_POLL_S = 0.05


class Killed(NamedTuple):
    """`ended`: those of the killed that had ended before. `left`: processes that were still there after a while."""

    killed: list[str]
    ended: list[str]
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
    """Each is stopped, even one that is believed to have ended: should it come back, it can call nothing."""
    ordered_at = utc_now()
    killed = [run_id for run_id in run_ids if kill(run_id, OPERATOR, reason)]
    not_found = [run_id for run_id in run_ids if run_id not in killed]
    left = _wait_for_agents(killed)
    return Killed(killed, _note_down(killed, reason, ordered_at), not_found, left)


def _note_down(run_ids: list[str], reason: str, ordered_at: str) -> list[str]:
    """The order as an event of each run that the ledger knows; returns those that had ended before it.

    A call that is refused tells of it as well, but none may follow.
    """
    ended: list[str] = []
    if not run_ids or not os.path.exists(home.ledger_db()):
        return ended
    import sqlite3

    from subluminal.contracts.filters import RunFilters
    from subluminal.ledger.daemon.sync import sync
    from subluminal.ledger.read.ledger import open_ledger

    try:
        sync()
        with open_ledger() as ledger:
            known = {run["run_id"]: run for run in ledger.runs(RunFilters(run_id=run_ids), limit=len(run_ids)).rows}
    except (SubluminalError, sqlite3.Error):
        return ended  # the stop itself must not depend on the record
    for run_id, run in known.items():
        if run["status"] != RUNNING and run["ended_at"] < ordered_at:
            ended.append(run_id)
        else:
            _record(run, reason)
    return ended


def _record(run: dict[str, Any], reason: str) -> None:
    """Imported when the run has been stopped: nothing of this may hold that up."""
    from subluminal.agents.recorder import Recorder
    from subluminal.contracts.agent_event import AgentEvent, AgentEventKind
    from subluminal.contracts.identity import Identity
    from subluminal.host.identity import make_source

    source = make_source()
    identity = Identity(run["run_id"], run["agent_id"], run["client"], run["env"], run["principal"], run["workload"])
    recorder = Recorder(identity, source)
    recorder.record(AgentEvent("operator", AgentEventKind.Status, "operator", None, reason, {"order": "kill"}))
    recorder.leave("TERMINATED")


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
