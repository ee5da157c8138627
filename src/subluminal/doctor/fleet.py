"""How a machine that has joined a fleet stands with it. The facts are handed in: whoever knows fleets is beside us."""

from __future__ import annotations

from typing import Any

from subluminal.doctor.findings import ERROR, WARNING, Area
from subluminal.reports.printable import count

# A few polls: less is a network that had a bad minute.
_FAILURES = 3
# An event is shipped within seconds where all is well; a machine that has just been woken needs a little longer.
_BEHIND_S = 600


def check_fleet(facts: dict[str, Any]) -> Area:
    """`facts` as `sub fleet status --json` prints them, or `error` alone."""
    area = Area("fleet", facts=facts)
    if facts.get("error"):
        area.summary = "what it has laid is not whole" if "url" in facts else "cannot be read"
        area.add(ERROR, "fleet-not-laid", str(facts["error"]), "sub fleet keep --once")
    else:
        stops = count(len(facts["stops"]), "stop")
        area.summary = f"{facts['url']}, version {facts['version']}, confirmed {facts['confirmed_at']}, {stops} active"
        if facts["overdue"]:
            message = f"{facts['overdue']}: what it cannot judge is decided by class"
            area.add(ERROR, "fleet-overdue", message, "sub fleet keep --once")
    for which, told in facts.get("put_back", {}).items():
        message = (
            f"somebody has altered or removed the {which} that the fleet has laid here ({count(told['times'], 'time')},"
            f" last at {told['last_at']}); the keeper has put them back"
        )
        area.add(WARNING, "fleet-altered", message, "sub fleet status")
    if facts.get("no_room"):
        area.add(ERROR, "fleet-no-room", facts["no_room"], "sub prune --dry-run --older-than 30d")
    over = facts.get("tasks", {}).get("room", {}).get("facts", {}).get("over_bytes")
    if over:
        message = (
            f"the home is {over:,} bytes beyond --max-disk: runs that go on, or decisions that were not acknowledged"
        )
        area.add(WARNING, "fleet-over-disk", message, "sub fleet ship --status")
    if facts.get("clock"):
        area.add(WARNING, "fleet-clock", facts["clock"], "sub fleet status")
    shipping = facts.get("shipping")
    for name, task in facts.get("tasks", {}).items():
        of_credential = name == "ship" and shipping is not None and shipping["no_credential"]
        if task.get("failures", 0) >= _FAILURES and not of_credential:
            area.add(WARNING, "fleet-failing", f"{name} has failed {task['failures']} times: {task['last_error']}")
    if shipping is not None:
        _check_shipping(area, shipping, facts)
    return area


def _check_shipping(area: Area, shipping: dict[str, Any], facts: dict[str, Any]) -> None:
    """Whether the record of this machine reaches its collector."""
    if shipping["error"]:
        area.add(WARNING, "fleet-ship-unknown", f"how far the ledger was shipped cannot be read: {shipping['error']}")
        return
    if facts["keeper"] and "ship" not in facts["tasks"]:
        message = f"the keeper ships nothing to {facts['collector']}: its log says why"
        area.add(WARNING, "fleet-not-shipping", message, "sub fleet ship --once")
    if shipping["no_credential"]:
        area.add(ERROR, "fleet-no-credential", f"nothing is shipped: {shipping['last_error']}")
    behind = behind_words(shipping)
    area.summary += f", {behind}"
    if (shipping["behind_s"] or 0) >= _BEHIND_S or (shipping["waits"] >= _FAILURES and shipping["unacked_events"]):
        why = f": {shipping['last_error']}" if shipping["last_error"] else ""
        area.add(WARNING, "fleet-behind", f"the collector is {behind}{why}", "sub fleet ship --once")
    if shipping["refused"]:
        message = f"the collector has refused {count(shipping['refused'], 'event')}; they are kept, and tried each hour"
        area.add(WARNING, "fleet-refused", message, "sub fleet ship --status")


def behind_words(shipping: dict[str, Any]) -> str:
    if not shipping["unacked_events"]:
        return "nothing behind"
    since = f", since {shipping['unacked_since']}" if shipping["unacked_since"] else ""
    return f"{count(shipping['unacked_events'], 'event')} behind{since}"
