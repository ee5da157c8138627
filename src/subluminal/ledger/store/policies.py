"""Compiled policies by their hash: what was in force when a decision was taken.

The policy package keeps compiled snapshots in `SUB_HOME/snapshots/`: a small head that names the `policy_hash`, then
the snapshot's canonical bytes, whose SHA-256 that hash is. What a fleet has laid lies under its hash, without a head.
Only bytes that have the hash are believed.
"""

from __future__ import annotations

import os
from hashlib import sha256

from subluminal.host.home import laid_snapshot

MAX_SNAPSHOT_BYTES = 40 << 20
_HEAD_BYTES = 512


def is_snapshot(text: bytes, policy_hash: str) -> bool:
    return sha256(text).hexdigest() == policy_hash


def find_snapshot(directory: str, policy_hash: str) -> bytes | None:
    """The canonical snapshot with this hash, if it is still on this machine. `directory` is the home's `snapshots/`."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        names = []
    mark = b'"policy_hash":"%s",' % policy_hash.encode("utf-8", "replace")
    for name in names:
        if name.endswith(".json"):
            found = _read(os.path.join(directory, name), mark)
            if found is not None and is_snapshot(found, policy_hash):
                return found
    return _laid(os.path.dirname(directory), policy_hash)


def _laid(home: str, policy_hash: str) -> bytes | None:
    if len(policy_hash) != 64 or not policy_hash.isalnum():  # it comes out of an event, and becomes a name
        return None
    found = _read(laid_snapshot(policy_hash, home), b"{")
    return found if found is not None and is_snapshot(found, policy_hash) else None


def _read(path: str, mark: bytes) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            head = file.read(_HEAD_BYTES)
            place = head.find(mark)
            if place < 0:
                return None
            return b"{" + head[place + len(mark) :] + file.read(MAX_SNAPSHOT_BYTES)
        except OSError:
            return None
