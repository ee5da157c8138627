"""What was verified, put where shims find it. Nothing is laid that was not whole, and nothing goes before that is.

Whoever runs an agent can write there, too, and leave a list that is whole and says something else. So what stands there
is compared at each look with what would be laid, and `Memory`, which is in this process alone, tells whether somebody
else has written meanwhile. Where the origin cannot be asked, what was verified last is put back all the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

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
from subluminal.policy.laid import POLICIES, STOPS, Laid, NotLaid, lay, names_of, read_list, replace_list, stands

_COMPILED_BY = f"{__version__}/{COMPILER_REVISION}"
# Of what a policy may be offline, so much is lost at most by not writing the list at every refresh.
_CONFIRM_EVERY = 50
# msgspec prepares a type when it is first used, and the process dies where two threads do so at once: policies and
# stops are compiled by the same code in threads of their own.
_compiling = Lock()


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


class Memory:
    """One list as this process has laid it, and how often it was found to be another one since (`put_back`)."""

    def __init__(self) -> None:
        self.laid: Laid | None = None
        self.snapshots: list[dict[str, Any]] = []
        self.put_back = 0
        self.put_back_ms = 0

    def compiled(self, of: str) -> list[dict[str, Any]] | None:
        """What these bytes were compiled to."""
        return self.snapshots if self.laid is not None and self.laid.of == of else None

    def keep(self, laid: Laid, snapshots: list[dict[str, Any]]) -> None:
        self.laid, self.snapshots = laid, snapshots

    def altered(self, wall_ms: int) -> None:
        self.put_back += 1
        self.put_back_ms = wall_ms


def lay_policies(origin: Origin, joined: Joined, home: str, wall_ms: int, memory: Memory | None = None) -> bool:
    """Refresh the policies of this machine. True: others are in force than before."""
    memory = memory or Memory()
    with _or_put_back(POLICIES, memory, joined, home, wall_ms), origin.session() as session:
        packets = [
            (tenant, session.target(policies_path(tenant), MAX_PUBLISHED_BYTES))
            for tenant in dict.fromkeys((EVERYONE, joined.tenant or EVERYONE))
        ]
        version = session.version
        of = _hash(b"".join(data for _, data in packets))
        snapshots = memory.compiled(of)
        if snapshots is None:
            with _compiling:
                snapshots = [snapshot for tenant, data in packets for snapshot in read_policies(data, tenant)]
    fresh = Laid(
        names_of(snapshots),
        version=version,
        laid_at_ms=wall_ms,
        good_until_ms=wall_ms + joined.max_offline_ms,
        max_offline_ms=joined.max_offline_ms,
        compiled_by=_COMPILED_BY,
        known=[{name: each[name] for name in ("policy_id", "version", "policy_hash")} for each in snapshots],
        of=of,
    )
    return _lay(POLICIES, fresh, snapshots, memory, joined, home)


def lay_stops(origin: Origin, joined: Joined, home: str, wall_ms: int, memory: Memory | None = None) -> bool:
    """Take over the stops that are active now. True: others are than before."""
    memory = memory or Memory()
    with _or_put_back(STOPS, memory, joined, home, wall_ms), origin.session() as session:
        data = session.target(STOPS_PATH, MAX_STOPS_BYTES)
        version = session.version
        with _compiling:
            stops = read_stops(data)
            snapshots = [stop_snapshot(stop) for stop in stops]
            known = [msgspec.to_builtins(stop) for stop in stops]
    fresh = Laid(
        names_of(snapshots),
        version=version,
        laid_at_ms=wall_ms,
        compiled_by=_COMPILED_BY,
        known=known,
        of=_hash(data),
    )
    return _lay(STOPS, fresh, snapshots, memory, joined, home)


def follow_clock(set_by_ms: int, joined: Joined, home: str, memory: Memory) -> None:
    """The clock was set: what is left of `max_offline` stays what it was."""
    with laying(home):
        _check_still(joined, home)
        try:
            was = memory.laid or read_list(POLICIES, home)
        except NotLaid:
            return
        moved = msgspec.structs.replace(was, good_until_ms=was.good_until_ms + set_by_ms)
        if stands(POLICIES, was, home):  # what somebody has altered is put back by the look that follows, and told
            replace_list(POLICIES, moved, home)
        if memory.laid is not None:
            memory.laid = moved


def active_stops(home: str | None = None) -> list[Stop]:
    """As they are laid here; raises NotLaid."""
    return [msgspec.convert(stop, Stop) for stop in read_list(STOPS, home).known]


def _lay(which: str, fresh: Laid, snapshots: list[dict[str, Any]], memory: Memory, joined: Joined, home: str) -> bool:
    with laying(home):
        _check_still(joined, home)
        mine = memory.laid or _believed(which, fresh, home)
        is_there = mine is not None and stands(which, mine, home)
        if mine is not None and is_there and _says_the_same(mine, fresh):
            memory.keep(mine, snapshots)
            return False
        if not is_there and (memory.laid is not None or _should_be_there(which, fresh, joined, home)):
            memory.altered(fresh.laid_at_ms)
        changed = lay(which, snapshots, fresh, home)
        memory.keep(fresh, snapshots)
        return changed


def _believed(which: str, fresh: Laid, home: str) -> Laid | None:
    """The list that lies there, where it names what would be laid and nothing else."""
    try:
        was = read_list(which, home)
    except NotLaid:
        return None
    same = (was.of, was.compiled_by, was.names, was.known) == (fresh.of, fresh.compiled_by, fresh.names, fresh.known)
    return was if same else None


def _should_be_there(which: str, fresh: Laid, joined: Joined, home: str) -> bool:
    """Of a process that has laid nothing yet: whether what lies there was altered, and not only laid from an earlier
    publication or by another compiler."""
    try:
        was = read_list(which, home)
    except NotLaid:
        return bool(joined.joined_at)
    return (was.of, was.compiled_by) == (fresh.of, fresh.compiled_by)


def _says_the_same(mine: Laid, fresh: Laid) -> bool:
    if (mine.of, mine.max_offline_ms) != (fresh.of, fresh.max_offline_ms):
        return False
    if not fresh.good_until_ms:
        return not mine.good_until_ms
    step_ms = max(1000, fresh.max_offline_ms // _CONFIRM_EVERY)
    return mine.version == fresh.version and 0 <= fresh.good_until_ms - mine.good_until_ms < step_ms


@contextmanager
def _or_put_back(which: str, memory: Memory, joined: Joined, home: str, wall_ms: int) -> Iterator[None]:
    try:
        yield
    except Exception:
        if memory.laid is not None and not stands(which, memory.laid, home):
            with laying(home):
                _check_still(joined, home)
                memory.altered(wall_ms)
                lay(which, memory.snapshots, memory.laid, home)
        raise


def _check_still(joined: Joined, home: str) -> None:
    """What was fetched for a fleet that this machine has left meanwhile is not laid over what it has joined since."""
    if joined.joined_at and has_left(joined, home):
        raise FleetError(f"This machine has left {joined.url}.")


def _hash(data: bytes) -> str:
    return sha256_hex(data)
