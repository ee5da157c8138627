"""How this machine stands with its fleet: facts for `sub fleet status`, `sub doctor` and programs."""

from __future__ import annotations

from time import time_ns
from typing import Any

import msgspec

from subluminal.contracts.errors import PolicyError
from subluminal.contracts.moments import rfc3339
from subluminal.fleet.joined import Joined
from subluminal.fleet.keeper.state import read_state
from subluminal.policy.laid import POLICIES, STOPS, is_whole, read_list


def machine_status(joined: Joined, home: str | None = None) -> dict[str, Any]:
    now_ms = time_ns() // 1_000_000
    state = read_state(home)
    facts: dict[str, Any] = {
        "url": joined.url,
        "tenant": joined.tenant,
        "joined_at": joined.joined_at,
        "collector": joined.collector,
        "max_offline_ms": joined.max_offline_ms,
        "version": None,
        "confirmed_at": None,
        "age_s": None,
        "good_until": None,
        "overdue": None,
        "policies": [],
        "stops": [],
        "error": None,
        "keeper": state.pid or None,
        "tasks": {name: msgspec.to_builtins(task) for name, task in sorted(state.tasks.items())},
    }
    try:
        laid = read_list(POLICIES, home)
        stops = read_list(STOPS, home)
        facts |= {"version": max(laid.version, stops.version), "policies": laid.known, "stops": stops.known}
        refreshed = state.tasks.get("refresh")
        confirmed_ms = max(laid.good_until_ms - laid.max_offline_ms, refreshed.last_good_ms if refreshed else 0)
        facts |= {"confirmed_at": rfc3339(confirmed_ms), "age_s": max(0, now_ms - confirmed_ms) // 1000}
        facts |= {"good_until": rfc3339(laid.good_until_ms), "overdue": laid.overdue(now_ms)}
        if not (is_whole(POLICIES, home) and is_whole(STOPS, home)):
            facts["error"] = "A policy that the fleet has laid is missing or was altered: every call is refused."
    except PolicyError as error:
        facts["error"] = str(error)
    return facts
