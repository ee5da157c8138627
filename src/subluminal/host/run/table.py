"""Entries in a file that many processes change: read and written with `pread` and `pwrite`, never mapped.

What was used lately is in one small table. A call reads it (one `pread`), changes its entries in memory, and writes the
whole table over the *other* of two copies (one `pwrite`). The copy with the higher version whose checksum is right
stands: a process killed at any instant leaves the whole effect of a call or nothing, and the cost of a call does not
depend on how many processes share the file, nor on what they did meanwhile.

A key that is new in a pool of marks or windows is mostly never seen again: it goes to a ring (`rings`) at once, and
into the table when it is used once more. When the table has outgrown its place, its oldest entries move to a ring; what
moves, moves with the call.

Why not mapped: a mapped file that somebody truncates ends its readers with SIGBUS. Here it is a short read, and a
sentence.
"""

from __future__ import annotations

import os
import struct
from fcntl import LOCK_UN, flock
from itertools import accumulate
from zlib import crc32

from subluminal.core.engine.state import (
    KEY_BYTES,
    LABEL,
    MARK,
    MAX_LABEL_BYTES,
    WINDOW,
    StateDamaged,
    StateUnavailable,
)
from subluminal.host.run.lock import AT_ONCE, QueuedLock
from subluminal.host.run.pages import (
    ALL,
    COUNT_AT,
    CRC,
    ENTRY_BYTES,
    EXTENT_BYTES,
    EXTENTS_AT,
    FRONT,
    HEAD,
    HEAD_BYTES,
    MAX_TABLE_BYTES,
    NAME_PAGES,
    PACKERS,
    PAGE,
    PAGE_ROOM,
    REST,
    REST_AT,
    RING,
    RINGS,
    RINGS_OF_HEAD_AT,
    SIGHT,
    TABLE_ROOM,
    TABLES_AT,
    WORDS_AT,
    WRITERS,
    entries,
    entry_size,
    entry_values,
    names_at,
    names_page,
    pack_entry,
    pack_page,
    read_page,
)
from subluminal.host.run.rings import MOST_AT_ONCE, Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.core.engine.state import Op

# Holders need microseconds; on a machine with far more runnable processes than cores one may be off the processor for
# a while. Only a stopped holder takes longer, and it must not cost every later call the full wait again.
LOCK_WAIT_SECONDS = 2.0
LOCK_WAIT_AGAIN_SECONDS = 0.05

_TABLE_OFFSET = TABLES_AT - WORDS_AT
_READ_BYTES = _TABLE_OFFSET + 2 * TABLE_ROOM
_COPIES_AT = (TABLES_AT, TABLES_AT + TABLE_ROOM)
_RING_PLACES = [RINGS_OF_HEAD_AT + pool * RING.size for pool in range(len(RINGS))]
# Pools whose keys are made of arguments: as many as there are calls.
_OF_ARGUMENTS = (MARK, WINDOW)
_WORD = struct.Struct("<QQ")
_TOO_MUCH = "one call changes more state than the run's file can hold"


class Table:
    """One state file, seen by this process. `wait` is how long `begin` waits for the others.

    `_image` is the table as it stands in the file, head and entries; it is changed in place and written as it is.
    """

    __slots__ = (
        "_all_known", "_copies", "_guesses", "_image", "_places", "_salt", "_values", "_version", "_written", "boot",
        "calls", "changed", "fd", "killed", "lock", "mono_at", "plain_calls", "rings", "terminated", "wait",
        "wide_at",
    )  # fmt: skip

    def __init__(self, fd: int, salt: int) -> None:
        self.fd = fd
        self.wait = LOCK_WAIT_SECONDS
        self.lock = QueuedLock(fd)
        self._salt = salt
        self._version = -1
        self._image = bytearray(HEAD_BYTES)
        # Entries of this version, as far as they were asked for or written; None: there is none.
        self._values: dict[bytes, tuple[int, ...] | None] = {}
        self._places: dict[bytes, int] = {}  # where a key stands in this image
        self._guesses: dict[bytes, int] = {}  # where it stood in an earlier one
        self._all_known = False  # every key of this image is in `_places`
        self._written = self._copies = 0  # pages of names that were ever written, and their second copies, as bits
        self.rings = [Ring(fd, pool, salt, self.write_at) for pool in range(len(RINGS))]
        self.changed = False  # something of the head that not every call changes
        self.calls = self.killed = self.terminated = 0
        self.plain_calls = -1  # not read yet
        self.boot = self.mono_at = self.wide_at = 0

    # -- having it --------------------------------------------------------------------------------------------

    def begin(self, size: int = _READ_BYTES) -> None:
        """Become the only one to change the file, and know what stands in it."""
        fd = self.fd
        try:
            if self.lock.queued:
                self._wait()
            else:
                flock(fd, AT_ONCE)
                self.wait = LOCK_WAIT_SECONDS
        except BlockingIOError:
            self._wait()
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be locked: {error.strerror}") from None
        try:
            self.read(size)
        except BaseException:
            flock(fd, LOCK_UN)
            raise

    def begin_held(self, size: int = _READ_BYTES) -> None:
        """As `begin`, where the lock is ours already."""
        try:
            self.read(size)
        except BaseException:
            flock(self.fd, LOCK_UN)
            raise

    def _wait(self) -> None:
        if not self.lock.take(self.wait):
            self.wait = min(self.wait, LOCK_WAIT_AGAIN_SECONDS)
            raise StateUnavailable("another process holds the run's state and does not let go")
        self.wait = LOCK_WAIT_SECONDS

    def close(self) -> None:
        self.lock.close()
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self, size: int = SIGHT.size) -> None:
        """Take over what others did. Without the lock it is a look: at what stood at some moment."""
        try:
            raw = os.pread(self.fd, size, WORDS_AT)
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be read: {error.strerror}") from None
        if len(raw) < size:
            raise StateDamaged("it is shorter than it should be")
        calls, not_calls, killed, not_killed, one, two = SIGHT.unpack_from(raw)
        if calls != self.plain_calls or killed != self.killed or not (not_calls and not_killed):
            # A complement that is one behind is a word that was about to be written.
            if not (0 <= calls - (not_calls ^ ALL) <= 1 and 0 <= killed - (not_killed ^ ALL) <= 1):
                raise StateDamaged("its first words are not what was written")
            self.plain_calls = calls
            self.killed = killed
        newest = two if two > one else one
        if newest != self._version:
            if size < _READ_BYTES:
                self.read(_READ_BYTES)
            elif not self._load(raw, newest == two) and not self._load(raw, newest != two):
                raise StateDamaged("neither copy of its table is whole")

    def _load(self, raw: bytes, copy: int) -> bool:
        """Take over one copy, if it is whole."""
        at = _TABLE_OFFSET + copy * TABLE_ROOM
        crc, length, version, calls, terminated, boot, mono_at, wide_at, written, copies, *rings = HEAD.unpack_from(
            raw, at
        )
        if not HEAD_BYTES <= length <= MAX_TABLE_BYTES:
            return False
        image = bytearray(raw[at : at + min(length, TABLE_ROOM)])
        if length > TABLE_ROOM:
            image += os.pread(self.fd, length - TABLE_ROOM, EXTENTS_AT + copy * EXTENT_BYTES)
        image[:4] = bytes(4)
        if len(image) != length or crc32(image, self._salt) != crc or version & 1 != copy:
            return False
        self._version, self.calls, self.terminated = version, calls, terminated
        self.boot, self.mono_at, self.wide_at = boot, mono_at, wide_at
        self._written, self._copies = int.from_bytes(written, "little"), int.from_bytes(copies, "little")
        for pool, ring in enumerate(self.rings):
            named = rings[4 * pool : 4 * pool + 4]
            if named != [ring.first, ring.last, ring.used, ring.crc]:
                ring.take_over(*named)
        self._image = image
        self._values.clear()
        self._guesses = self._places.copy()
        self._places.clear()
        self._all_known = length == HEAD_BYTES
        if length > 4 * TABLE_ROOM:  # too long to search for each of its keys
            self._find_all()
        return True

    def _find_all(self) -> None:
        places, image, at = self._places, self._image, HEAD_BYTES
        places.clear()
        while at < len(image):
            places[bytes(image[at : at + KEY_BYTES])] = at
            at += entry_size(image, at)
        self._all_known = True

    def _find(self, key: bytes) -> int:
        at = self._places.get(key, -1)
        if at >= 0 or self._all_known:
            return at
        at = self._guesses.get(key, -1)
        if at < 0 or not self._image.startswith(key, at):
            at = self._image.find(key, HEAD_BYTES)
        if at >= 0:
            self._places[key] = at
        return at

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        seen = self._values
        if key in seen:
            return seen[key]
        at = self._places.get(key, -1) if self._all_known else self._find(key)
        if at >= 0:
            values: tuple[int, ...] | None = entry_values(self._image, at)
        else:
            ring = self.rings[pool]
            values = ring.get(key) if ring.behind or key in ring.index else None
        seen[key] = values
        return values

    def all(self) -> list[tuple[bytes, int, tuple[int, ...]]]:
        """Every entry (key, pool, values), the most recent last. For people, and after a reboot."""
        found: dict[bytes, tuple[bytes, int, tuple[int, ...]]] = {}
        for raw in (*(b"".join(ring.all()) for ring in self.rings), bytes(self._image[HEAD_BYTES:])):
            for entry in entries(raw, 0):
                found.pop(entry[0], None)
                found[entry[0]] = entry
        return list(found.values())

    # -- writing ----------------------------------------------------------------------------------------------

    def commit(self, ops: list[Op], calls: int = 0) -> None:
        """Publish all of it at once. The lock stays."""
        image, places, seen = self._image, self._places, self._values
        try:
            for pool, key, values in ops:
                at = places.get(key, -1)
                count = len(values)
                if at >= 0:
                    if count == image[at + COUNT_AT]:
                        WRITERS[count](image, at + ENTRY_BYTES, *values)
                        seen[key] = values
                        continue
                elif self._all_known and pool != LABEL:
                    raw = PACKERS[count](key, pool, count, *values)
                    if pool in _OF_ARGUMENTS and seen.get(key, raw) is None:
                        del seen[key]
                        ring = self.rings[pool]
                        ring.append(key, raw)
                        RING.pack_into(image, _RING_PLACES[pool], ring.first, ring.last, ring.used, ring.crc)
                        continue
                    places[key] = len(image)
                    image += raw
                    seen[key] = values
                    continue
                self._put(pool, key, values)
            if len(image) > TABLE_ROOM:
                self._spill({op[1] for op in ops})
            self.calls += calls
            self.write()
        except BaseException:
            self._version = -1  # what is in memory is not what stands in the file
            for ring in self.rings:
                ring.reset()
            raise

    def _put(self, pool: int, key: bytes, values: Any) -> None:
        """Change an entry that was not looked at, or whose length changes; or add one."""
        if pool == LABEL:
            self._label(key, values)
            return
        image, at = self._image, self._find(key)
        raw = pack_entry(pool, key, values)
        if at < 0 and pool in _OF_ARGUMENTS and self.get(pool, key) is None:
            del self._values[key]
            self.rings[pool].append(key, raw)
            self._name_ring(pool)
            return
        if at >= 0 and entry_size(image, at) == len(raw):
            image[at : at + len(raw)] = raw
        else:
            if at >= 0:
                del image[at : at + entry_size(image, at)]
                self._find_all()
            self._places[key] = len(image)
            image += raw
            if len(image) > MAX_TABLE_BYTES:
                raise StateUnavailable(_TOO_MUCH)
        self._values[key] = values

    def _name_ring(self, pool: int) -> None:
        ring = self.rings[pool]
        RING.pack_into(self._image, _RING_PLACES[pool], ring.first, ring.last, ring.used, ring.crc)

    def write(self) -> None:
        """The table as it stands in memory, over the older copy."""
        image, version = self._image, self._version + 1
        size, copy = len(image), version & 1
        if self.changed:
            names = self._written.to_bytes(14, "little"), self._copies.to_bytes(14, "little")
            times = self.boot, self.mono_at, self.wide_at
            REST.pack_into(image, REST_AT, self.terminated, *times, *names)
            self.changed = False
        FRONT.pack_into(image, 0, 0, size, version, self.calls)
        CRC.pack_into(image, 0, crc32(image, self._salt))
        if size <= TABLE_ROOM:
            self.write_at(image, _COPIES_AT[copy])
        elif size > MAX_TABLE_BYTES:
            raise StateUnavailable(_TOO_MUCH)
        else:
            self.write_at(image[TABLE_ROOM:], EXTENTS_AT + copy * EXTENT_BYTES)
            self.write_at(image[:TABLE_ROOM], _COPIES_AT[copy])
        self._version = version

    def count(self) -> int:
        """A call that changes no entry; the number of calls."""
        self.plain_calls = calls = self.plain_calls + 1
        try:
            os.pwrite(self.fd, _WORD.pack(calls, calls ^ ALL), WORDS_AT)
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be written: {error.strerror}") from None
        return self.calls + calls

    def kill(self) -> None:
        """Without the lock, so that nothing can prevent it."""
        self.killed = 1
        self.write_at(_WORD.pack(1, 1 ^ ALL), WORDS_AT + _WORD.size)

    def write_at(self, raw: bytes | bytearray, at: int) -> None:
        """All of it: a file system may take less at once, and says why the next time."""
        try:
            done = os.pwrite(self.fd, raw, at)
            while done != len(raw):
                done += os.pwrite(self.fd, raw[done:], at + done)
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be written: {error.strerror}") from None

    def _spill(self, used: set[bytes]) -> None:
        """Move the oldest entries of the pool that has most to its ring, but for those just used."""
        if not self._all_known:
            self._find_all()
        image, keys = self._image, list(self._places)  # in the order in which they stand
        ends = [*self._places.values(), len(image)]
        pools = [image[at + KEY_BYTES] for at in ends[:-1]]
        idle = [pool for pool, key in zip(pools, keys, strict=True) if key not in used]
        if not idle:
            return
        pool = max(set(idle), key=idle.count)
        most = min(max(TABLE_ROOM // 2, len(image) - TABLE_ROOM), (MOST_AT_ONCE - 1) * PAGE_ROOM)
        moved: list[bytes] = []
        stays: list[bytes] = []
        names: list[bytes] = []
        for number, key in enumerate(keys):
            raw = bytes(image[ends[number] : ends[number + 1]])
            if most > 0 and pools[number] == pool and key not in used:
                moved.append(raw)
                most -= len(raw)
            else:
                stays.append(raw)
                names.append(key)
        self.rings[pool].extend(moved)
        self._name_ring(pool)
        image[HEAD_BYTES:] = b"".join(stays)
        self._places.clear()
        self._places.update(zip(names, accumulate(map(len, stays), initial=HEAD_BYTES), strict=False))
        self._values.clear()

    def forget(self, kept: Callable[[int, tuple[int, ...]], bool]) -> None:
        """Drop every entry whose pool and values are not `kept`; `write` makes it known."""
        raws = [pack_entry(pool, key, values) for key, pool, values in self.all() if kept(pool, values)]
        while sum(map(len, raws)) > MAX_TABLE_BYTES - HEAD_BYTES:
            del raws[: len(raws) // 8 + 1]
        self._image[HEAD_BYTES:] = b"".join(raws)
        for pool, ring in enumerate(self.rings):
            ring.clear()
            self._name_ring(pool)
        self._values.clear()
        self._find_all()
        self.changed = True

    # -- names for people -------------------------------------------------------------------------------------

    def _label(self, key: bytes, text: bytes) -> None:
        """Names come from outside, so they stand apart from the entries; losing one loses nothing."""
        page = names_page(key, self._salt)
        body = bytearray(self._names(page))
        text = text[:MAX_LABEL_BYTES]
        body += key + bytes((len(text),)) + text
        while len(body) > PAGE_ROOM:
            del body[: KEY_BYTES + 1 + body[KEY_BYTES]]
        self._copies ^= 1 << page
        self._written |= 1 << page
        self.changed = True
        self.write_at(pack_page(page, body, self._salt), names_at(page, self._copies >> page & 1))

    def _names(self, page: int) -> bytes:
        if not self._written >> page & 1:
            return b""
        raw = os.pread(self.fd, PAGE, names_at(page, self._copies >> page & 1))
        return read_page(raw, page, self._salt) or b""

    def labels(self) -> dict[bytes, str]:
        found = {}
        for page in range(NAME_PAGES):
            body, at = self._names(page), 0
            while at < len(body):
                end = at + KEY_BYTES + 1 + body[at + KEY_BYTES]
                found[body[at : at + KEY_BYTES]] = body[at + KEY_BYTES + 1 : end].decode("utf-8", "replace")
                at = end
        return found
