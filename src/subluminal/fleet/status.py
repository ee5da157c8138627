"""How this machine stands with its fleet: facts for `sub fleet status`, `sub doctor` and programs."""

from __future__ import annotations

import os
import sqlite3
from time import time_ns
from typing import Any

import msgspec

from subluminal.contracts.errors import FleetError, LedgerError, PolicyError
from subluminal.contracts.moments import epoch_ms, rfc3339
from subluminal.fleet.joined import NO_CREDENTIAL, Joined
from subluminal.fleet.keeper.state import State, read_state
from subluminal.fleet.machine.clock import clock_words
from subluminal.fleet.shipping.progress import standing
from subluminal.fleet.sidecar import unshipped
from subluminal.host.home import fleet_dir, sub_home
from subluminal.policy.laid import POLICIES, STOPS, is_whole, read_list

# A list with what it names, or an acknowledgement with its journal.
_ROOM_BYTES = 64 << 10


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
        "put_back": _put_back(state),
        "no_room": _no_room(home),
        "clock_ahead_s": None,
        "clock": None,
        "keeper": state.pid or None,
        "shipping": None if joined.collector is None else _shipping(state, now_ms, home),
        "tasks": {name: msgspec.to_builtins(task) for name, task in sorted(state.tasks.items())},
    }
    refreshed = state.tasks.get("refresh")
    ahead_s = refreshed.facts.get("clock_ahead_s") if refreshed else None
    if isinstance(ahead_s, int):
        facts |= {"clock_ahead_s": ahead_s, "clock": clock_words(ahead_s)}
    try:
        laid = read_list(POLICIES, home)
        stops = read_list(STOPS, home)
        facts |= {"version": max(laid.version, stops.version), "policies": laid.known, "stops": stops.known}
        confirmed_ms = laid.good_until_ms - laid.max_offline_ms
        if refreshed and refreshed.last_good_ms <= now_ms:  # a moment to come is one of another clock
            confirmed_ms = max(confirmed_ms, refreshed.last_good_ms)
        facts |= {"confirmed_at": rfc3339(confirmed_ms), "age_s": max(0, now_ms - confirmed_ms) // 1000}
        facts |= {"good_until": rfc3339(laid.good_until_ms), "overdue": laid.overdue(now_ms)}
        if not (is_whole(POLICIES, home) and is_whole(STOPS, home)):
            facts["error"] = "A policy that the fleet has laid is missing or was altered: every call is refused."
    except PolicyError as error:
        facts["error"] = str(error)
    return facts


def _no_room(home: str | None) -> str | None:
    """Told of the disk itself: the keeper cannot write down that it cannot write."""
    path = fleet_dir(home)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    if found.f_bavail * found.f_frsize >= _ROOM_BYTES:
        return None
    return f"The disk of {path} is full: nothing that the fleet says can be kept, and nothing is shipped."


def _put_back(state: State) -> dict[str, dict[str, Any]]:
    """What the keeper found altered or removed and has laid again: how often, and when last."""
    found = {}
    for which, name in ((POLICIES, "refresh"), (STOPS, "stop")):
        facts = state.tasks[name].facts if name in state.tasks else {}
        if isinstance(facts.get("put_back"), int) and isinstance(facts.get("put_back_ms"), int):
            found[which] = {"times": facts["put_back"], "last_at": rfc3339(facts["put_back_ms"])}
    return found


def _shipping(state: State, now_ms: int, home: str | None) -> dict[str, Any]:
    """How far the collector is behind this ledger, and what the keeper heard last. What is not known is None."""
    task = state.tasks.get("ship")
    told = task.facts if task is not None else {}
    facts: dict[str, Any] = {
        "unacked_events": None,
        "unacked_since": None,
        "behind_s": None,
        "acked_at": None,
        "refused": None,
        "waits": told.get("waits", 0),
        "last_error": (task.last_error if task is not None else None) or told.get("last_wait"),
        "no_credential": task is not None and task.code == NO_CREDENTIAL,
        "error": None,
    }
    try:
        found = standing(home)
        left = unshipped(home or sub_home())
        facts["unacked_events"] = left.waiting if left is not None else None
    except (FleetError, LedgerError, sqlite3.Error, OSError) as error:
        return {**facts, "error": str(error)}
    if found is not None:
        facts |= {name: getattr(found, name) for name in ("unacked_since", "acked_at", "refused")}
        if found.unacked_since is not None:
            facts["behind_s"] = max(0, now_ms - epoch_ms(found.unacked_since)) // 1000
    return facts
