"""What was verified, put where shims find it. Nothing is laid that was not whole, and nothing goes before that is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from subluminal import __version__
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import FleetError
from subluminal.fleet.joined import Joined, has_left
from subluminal.fleet.machine.origin import Origin
from subluminal.fleet.published import (
    EVERYONE,
    MAX_PUBLISHED_BYTES,
    MAX_STOPS_BYTES,
    STOPS_PATH,
    Stop,
    policies_path,
    read_policies,
    read_stops,
    stop_snapshot,
)
from subluminal.host.files import open_private
from subluminal.host.home import laying_lock_file
from subluminal.policy.compile.snapshot import COMPILER_REVISION
from subluminal.policy.laid import POLICIES, STOPS, Laid, NotLaid, is_whole, lay, read_list

_COMPILED_BY = f"{__version__}/{COMPILER_REVISION}"
# Of what a policy may be offline, so much is lost at most by not writing the list at every refresh.
_CONFIRM_EVERY = 50


@contextmanager
def laying(home: str) -> Iterator[None]:
    """One at a time, of all threads and processes: what one lays and has not listed yet would be taken by another for
    what nobody needs any more. Nobody waits for an origin inside."""
    descriptor = open_private(laying_lock_file(home), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def lay_policies(origin: Origin, joined: Joined, home: str, wall_ms: int) -> bool:
    """Refresh the policies of this machine. True: others are in force than before."""
    with origin.session() as session:
        packets = [
            (tenant, session.target(policies_path(tenant), MAX_PUBLISHED_BYTES))
            for tenant in dict.fromkeys((EVERYONE, joined.tenant or EVERYONE))
        ]
        version = session.version
    of = _hash(b"".join(data for _, data in packets))
    good_until_ms = wall_ms + joined.max_offline_ms
    was = _unchanged(POLICIES, of, home)
    if was is not None:
        step_ms = max(1000, joined.max_offline_ms // _CONFIRM_EVERY)
        same = was.max_offline_ms == joined.max_offline_ms and was.version == version
        if same and 0 <= good_until_ms - was.good_until_ms < step_ms:
            return False
    snapshots = [snapshot for tenant, data in packets for snapshot in read_policies(data, tenant)]
    known = [
        {"policy_id": each["policy_id"], "version": each["version"], "policy_hash": each["policy_hash"]}
        for each in snapshots
    ]
    laid = Laid(
        [],
        version=version,
        laid_at_ms=wall_ms,
        good_until_ms=good_until_ms,
        max_offline_ms=joined.max_offline_ms,
        compiled_by=_COMPILED_BY,
        known=known,
        of=of,
    )
    with laying(home):
        _check_still(joined, home)
        return lay(POLICIES, snapshots, laid, home)


def lay_stops(origin: Origin, joined: Joined, home: str, wall_ms: int) -> bool:
    """Take over the stops that are active now. True: others are than before."""
    with origin.session() as session:
        data = session.target(STOPS_PATH, MAX_STOPS_BYTES)
        version = session.version
    of = _hash(data)
    if _unchanged(STOPS, of, home) is not None:
        return False
    stops = read_stops(data)
    known = [msgspec.to_builtins(stop) for stop in stops]
    laid = Laid([], version=version, laid_at_ms=wall_ms, compiled_by=_COMPILED_BY, known=known, of=of)
    with laying(home):
        _check_still(joined, home)
        return lay(STOPS, [stop_snapshot(stop) for stop in stops], laid, home)


def active_stops(home: str | None = None) -> list[Stop]:
    """As they are laid here; raises NotLaid."""
    return [msgspec.convert(stop, Stop) for stop in read_list(STOPS, home).known]


def laid_policies(home: str | None = None) -> Laid:
    return read_list(POLICIES, home)


def _check_still(joined: Joined, home: str) -> None:
    """What was fetched for a fleet that this machine has left meanwhile is not laid over what it has joined since."""
    if joined.joined_at and has_left(joined, home):
        raise FleetError(f"This machine has left {joined.url}.")


def _unchanged(which: str, of: str, home: str) -> Laid | None:
    """The list as it is laid, where it was made from these bytes by this compiler and nothing of it is missing."""
    try:
        was = read_list(which, home)
    except NotLaid:
        return None
    return was if (was.of, was.compiled_by) == (of, _COMPILED_BY) and is_whole(which, home) else None


def _hash(data: bytes) -> str:
    return sha256_hex(data)
