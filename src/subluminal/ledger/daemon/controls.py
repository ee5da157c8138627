"""Lines on the daemon's socket: events, or `{"control": ...}`, which ask for something. Any of them may be hostile."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from subluminal.contracts.moments import is_moment
from subluminal.ledger.daemon.connections import Connection
from subluminal.ledger.daemon.live import Follower, follow_request
from subluminal.ledger.store.lines import newest_arrival
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.store.prune import Shipped, prune
from subluminal.ledger.store.writer import Store

# All that decoding a hostile line can raise; nothing that comes over the socket may end the daemon.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Reference(msgspec.Struct):
    shim_id: str = ""
    seq: int | None = None


class _Line(msgspec.Struct):
    control: str | None = None
    source: _Reference | None = None


class _Prune(msgspec.Struct):
    before: str
    shipped: Shipped | None = None


class _Policy(msgspec.Struct):
    policy_hash: str
    snapshot: str


_decode = msgspec.json.Decoder(_Line).decode


def control_of(line: bytes) -> str | None:
    """None: an event, or what shall be refused as one."""
    try:
        return _decode(line).control
    except UNREADABLE:
        return None


def reference(line: bytes) -> dict[str, Any]:
    """Which event is answered."""
    try:
        source = _decode(line).source
    except UNREADABLE:
        source = None
    return {} if source is None else {"shim_id": source.shim_id, "seq": source.seq}


def answer(control: str, line: bytes, connection: Connection, store: Store) -> dict[str, Any]:
    """What a control asks of the store: the daemon is the one writer, so it does it."""
    try:
        if control == "follow":
            request = follow_request(msgspec.json.decode(line))
            connection.follower = Follower(request, newest_arrival(store.connection))
            return {"following": {"after": connection.follower.after}}
        if control == "prune":
            asked = msgspec.json.decode(line, type=_Prune)
            if not is_moment(asked.before):
                return {"error": "before is no date"}
            return {"pruned": prune(store, asked.before, asked.shipped)}
        if control == "policy":
            policy = msgspec.json.decode(line, type=_Policy)
            if not is_snapshot(policy.snapshot.encode(), policy.policy_hash):
                return {"error": "the snapshot does not have this policy_hash"}
            store.add_policy(policy.policy_hash, policy.snapshot)
            return {"policy": policy.policy_hash}
    except (*UNREADABLE, sqlite3.Error, OSError) as error:
        return {"error": str(error)}
    return {"error": "unknown control; known are wake, status, stop, follow, prune, policy and ui"}
