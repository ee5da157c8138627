"""How this machine stands with its fleet, as figures; nothing where it has joined none."""

from __future__ import annotations

from typing import Any

from subluminal.contracts.errors import SubluminalError
from subluminal.fleet.joined import require_joined
from subluminal.fleet.status import machine_status
from subluminal.host.home import is_present, joined_file
from subluminal.ledger.read.figures import Figure, gauge


def fleet_figures(home: str) -> list[Figure]:
    """What is not known is absent: a machine that cannot read its snapshot has no age of one to tell."""
    if not is_present(joined_file(home)):
        return []
    try:
        facts = machine_status(require_joined(home), home)
    except SubluminalError:
        return [_valid(False)]
    found = [_valid(facts["error"] is None and not facts["overdue"])]
    if facts["age_s"] is not None:
        about = "Since the policy of the fleet was last found to be current."
        found.append(gauge("subluminal.snapshot.age", about, "s", facts["age_s"]))
    if facts["version"] is not None:
        about = "Version of the fleet's policy that is in force."
        found.append(gauge("subluminal.snapshot.version", about, "1", facts["version"]))
        found.append(gauge("subluminal.stop.active", "Stops that are in force.", "{stop}", len(facts["stops"])))
    return found + _shipping(facts["shipping"])


def _valid(is_valid: bool) -> Figure:
    about = (
        "1 while what the fleet has laid is whole and not overdue; 0: calls are refused, or fail as their class says."
    )
    return gauge("subluminal.snapshot.valid", about, "1", int(is_valid))


def _shipping(shipping: dict[str, Any] | None) -> list[Figure]:
    if shipping is None or shipping["unacked_events"] is None:
        return []
    about = "Events of the ledger that no collector has acknowledged."
    return [gauge("subluminal.unacked.events", about, "{event}", shipping["unacked_events"])]
