"""How a machine that has joined a fleet stands with it. The facts are handed in: whoever knows fleets is beside us."""

from __future__ import annotations

from typing import Any

from subluminal.doctor.findings import ERROR, WARNING, Area
from subluminal.reports.printable import count

# A few polls: less is a network that had a bad minute.
_FAILURES = 3


def check_fleet(facts: dict[str, Any]) -> Area:
    """`facts` as `sub fleet status --json` prints them, or `error` alone."""
    area = Area("fleet", facts=facts)
    if facts.get("error"):
        area.summary = "what it has laid is not whole" if "url" in facts else "cannot be read"
        area.add(ERROR, "fleet-not-laid", str(facts["error"]), "sub fleet keep --once")
        return area
    stops = count(len(facts["stops"]), "stop")
    area.summary = f"{facts['url']}, version {facts['version']}, confirmed {facts['confirmed_at']}, {stops} active"
    if facts["overdue"]:
        message = f"{facts['overdue']}: what it cannot judge is decided by class"
        area.add(ERROR, "fleet-overdue", message, "sub fleet keep --once")
    for name, task in facts["tasks"].items():
        if task.get("failures", 0) >= _FAILURES:
            area.add(WARNING, "fleet-failing", f"{name} has failed {task['failures']} times: {task['last_error']}")
    return area
