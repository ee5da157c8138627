"""How this machine stands with its fleet, as figures; nothing where it has joined none."""

from __future__ import annotations

from typing import Any

from subluminal.contracts import figures as known
from subluminal.contracts.errors import SubluminalError
from subluminal.contracts.figures import Reading, one
from subluminal.fleet.joined import require_joined
from subluminal.fleet.status import machine_status
from subluminal.host.home import is_present, joined_file


def fleet_figures(home: str) -> list[Reading]:
    """What is not known is absent: a machine that cannot read its snapshot has no age of one to tell."""
    if not is_present(joined_file(home)):
        return []
    try:
        facts = machine_status(require_joined(home), home)
    except SubluminalError:
        return [one(known.SNAPSHOT_VALID, 0)]
    found = [one(known.SNAPSHOT_VALID, int(facts["error"] is None and not facts["overdue"]))]
    if facts["age_s"] is not None:
        found.append(one(known.SNAPSHOT_AGE, facts["age_s"]))
    if facts["version"] is not None:
        found.append(one(known.SNAPSHOT_VERSION, facts["version"]))
        found.append(one(known.STOP_ACTIVE, len(facts["stops"])))
    return found + _shipping(facts["shipping"])


def _shipping(shipping: dict[str, Any] | None) -> list[Reading]:
    if shipping is None or shipping["unacked_events"] is None:
        return []
    return [one(known.UNACKED_EVENTS, shipping["unacked_events"])]
