"""Followers of the live stream. Each is a place in the order of arrival plus a filter; nothing is held for it.

A follower that reads slowly falls behind in the database, not in memory, and misses nothing.
"""

from __future__ import annotations

import fnmatch
import sqlite3
from typing import Annotated, Any

import msgspec

from subluminal.ledger.store.lines import arrivals

# Events looked at for one follower before the daemon turns to its other work.
LOOK_EVENTS = 500


class FollowRequest(msgspec.Struct):
    """`{"control": "follow", ...}`: every member is optional, lists are alternatives, names may be globs."""

    run: list[str] = []
    server: list[str] = []
    tool: list[str] = []
    decision: list[str] = []
    status: list[str] = []
    type: list[str] = []
    after: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None


def follow_request(control: dict[str, Any]) -> FollowRequest:
    """Raises `msgspec.ValidationError`; a single string stands for a list of one."""
    listed = {name: [value] if isinstance(value, str) else value for name, value in control.items()}
    return msgspec.convert(listed, FollowRequest)


class Follower:
    def __init__(self, request: FollowRequest, newest: int) -> None:
        self._request = request
        self._all = not any((request.run, request.server, request.tool, request.decision, request.status, request.type))
        self.after = newest if request.after is None else request.after

    def next_lines(self, connection: sqlite3.Connection) -> tuple[list[bytes], bool]:
        """Lines that have arrived and match, and whether there may be more."""
        found = arrivals(connection, self.after, LOOK_EVENTS)
        if not found:
            return [], False
        self.after = found[-1][0]
        return [line for _, line in found if self._all or self._wanted(line)], len(found) >= LOOK_EVENTS

    def _wanted(self, line: bytes) -> bool:
        request = self._request
        event = msgspec.json.decode(line)
        call, decision = _members(event, "call"), _members(event, "decision")
        return (
            _matches(request.type, event.get("type"))
            and _matches(request.run, event.get("run_id"))
            and _matches(request.server, call.get("server_name"))
            and _matches(request.tool, call.get("tool_name"))
            and _matches(request.decision, decision.get("action"))
            and _matches(request.status, event.get("status"))
        )


def _members(event: dict[str, Any], name: str) -> dict[str, Any]:
    """An event type of a newer interface pack may use the name for anything."""
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _matches(patterns: list[str], value: Any) -> bool:
    return not patterns or (isinstance(value, str) and any(fnmatch.fnmatchcase(value, p) for p in patterns))
