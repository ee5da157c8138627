"""Followers of the live stream. Each is a place in the order of arrival plus a filter; nothing is held for it.

A follower that reads slowly falls behind in the database, not in memory, and misses nothing.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import EventFilters
from subluminal.ledger.read.wanted import Wanted
from subluminal.ledger.store.lines import arrivals

# Events looked at for one follower before the daemon turns to its other work.
LOOK_EVENTS = 500
_NAMES = {found.word: found.name for found in EventFilters.table}


def follow_request(control: dict[str, Any]) -> tuple[EventFilters, int | None]:
    """`{"control": "follow", "after": N, ...}`: every member is optional. Filters go by the words of the options or of
    the API. Raises `msgspec.ValidationError`, as what reads a line from the socket does."""
    asked = {_NAMES.get(word, word): value for word, value in control.items() if word not in ("control", "after")}
    after = control.get("after")
    if after is not None and not (type(after) is int and 0 <= after < 1 << 63):
        raise msgspec.ValidationError("after must be a place in the order of arrival")
    try:
        return EventFilters(**asked), after
    except UsageError as error:
        advice = "" if error.hint == UsageError.hint else f" {error.hint}"
        raise msgspec.ValidationError(f"{error}{advice}") from None


class Follower:
    def __init__(self, request: tuple[EventFilters, int | None], newest: int) -> None:
        filters, after = request
        self._wanted = Wanted(filters) if filters.asked else None
        self.after = newest if after is None else after

    def next_lines(self, connection: sqlite3.Connection) -> tuple[list[bytes], bool]:
        """Lines that have arrived and match, and whether there may be more."""
        found = arrivals(connection, self.after, LOOK_EVENTS)
        if not found:
            return [], False
        self.after = found[-1][0]
        lines = [line for _, line in found]
        if self._wanted is not None:
            wanted = self._wanted.event
            lines = [line for line in lines if wanted(connection, msgspec.json.decode(line))]
        return lines, len(found) >= LOOK_EVENTS
