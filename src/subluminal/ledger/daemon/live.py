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


class FollowRequest:
    """`{"control": "follow", ...}`: every member is optional. Filters go by the words of the options or of the API."""

    __slots__ = ("after", "filters")

    def __init__(self, control: dict[str, Any]) -> None:
        asked = {_NAMES.get(word, word): value for word, value in control.items() if word not in ("control", "after")}
        self.filters = EventFilters(**asked)
        self.after = control.get("after")
        if self.after is not None and not (type(self.after) is int and 0 <= self.after < 1 << 63):
            raise UsageError("after must be a place in the order of arrival.", hint="Use the one of an answer before.")


def follow_request(control: dict[str, Any]) -> FollowRequest:
    """Raises `msgspec.ValidationError`, as what reads a line from the socket does."""
    try:
        return FollowRequest(control)
    except UsageError as error:
        raise msgspec.ValidationError(f"{error} {error.hint}") from None


class Follower:
    def __init__(self, request: FollowRequest, newest: int) -> None:
        self._wanted = Wanted(request.filters) if request.filters.asked else None
        self.after = newest if request.after is None else request.after

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
