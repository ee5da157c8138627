"""Which runs have state here, and what a killed one left behind."""

from __future__ import annotations

from subluminal.doctor.findings import WARNING, Area, count, quoted
from subluminal.host.run.registration import stale_registrations
from subluminal.host.run.state import list_runs


def check_runs() -> Area:
    runs = list_runs()
    stale = stale_registrations()
    stopped = [run for run in runs if run.terminated is not None]
    area = Area("runs", facts={"with_state": len(runs), "stopped": len(stopped), "stale_registrations": stale})
    area.summary = f"{count(len(runs), 'run')} with state" if runs else "none yet"
    if stopped:
        area.summary += f", {len(stopped)} stopped"
    if stale:
        message = f"{count(len(stale), 'registration')} of a `sub run` that was killed"
        area.add(WARNING, "stale-registration", message, quoted("rm", *stale))
    return area
