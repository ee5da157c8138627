"""Entries in a file that many processes change: read and written with `pread` and `pwrite`, never mapped.

What was used lately is in one small table. A call reads it (one `pread`), changes its entries in memory, and writes the
whole table over the *other* of two copies (one `pwrite`). The copy with the higher version whose checksum is right
stands: a process killed at any instant leaves the whole effect of a call or nothing, and the cost of a call does not
depend on how many processes share the file, nor on what they did meanwhile. Whoever finds the version that it wrote
itself still knows everything, and decodes nothing.

A key that is new in a pool of marks or windows is mostly never seen again: it is appended to the table's tail, and goes
among the other entries when it is used once more. When the table has outgrown its place, its tail moves to the rings
(`rings`), and if that is not enough its oldest entries; what moves, moves with the call.

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
    FRONT_AT,
    FRONT_BYTES,
    MAX_TABLE_BYTES,
    NAME_PAGES,
    PACKERS,
    PAGE,
    PAGE_ROOM,
    READERS,
    RING,
    RINGS,
    SELDOM,
    TABLE_ROOM,
    TABLES_AT,
    VERSION,
    VERSION_AT,
    WORDS,
    WORDS_AT,
    WRITERS,
    common_size,
    entries,
    entry_size,
    entry_values,
    names_at,
    names_page,
    pack_entry,
    pack_page,
    read_page,
    split,
)
from subluminal.host.run.rings import MOST_AT_ONCE, Ring
from subluminal.native.chosen import core

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
_ROOM = TABLE_ROOM - FRONT_AT  # for image and tail
_COPIES_AT = (TABLES_AT, TABLES_AT + TABLE_ROOM)
_VERSIONS_AT = (_TABLE_OFFSET + VERSION_AT, _TABLE_OFFSET + TABLE_ROOM + VERSION_AT)
# What tells of a whole page, beside the words, that nobody has written since we wrote a copy: the version of the other.
_SIGHTS = [
    struct.Struct(f"<{WORDS.size}s{at - WORDS.size}xQ{PAGE - at - VERSION.size}x").unpack for at in _VERSIONS_AT[::-1]
]
_versions = struct.Struct(
    f"<{_VERSIONS_AT[0]}xQ{TABLE_ROOM - VERSION.size}xQ{PAGE - _VERSIONS_AT[1] - VERSION.size}x"
).unpack
_put_front, _pack_crc, _join = FRONT.pack_into, CRC.pack, b"".join
# Pools whose keys are made of arguments: as many as there are calls.
_OF_ARGUMENTS = (MARK, WINDOW)
_WORD = struct.Struct("<QQ")
# The count of values that most counters and buckets have, and keep.
_USUAL = 3
_put_usual = WRITERS[_USUAL]
# In C, where entries stay where they are; what they leave, and all where they are None, `_load` and `_change` do.
_taken = None if core is None else core.table_taken
_changed = None if core is None else core.table_changed
_MOST_MOVED = (MOST_AT_ONCE - 1) * PAGE_ROOM
_SHORT = "it is shorter than it should be"
_TOO_MUCH = "one call changes more state than the run's file can hold"


class Table:
    """One state file, seen by this process. `wait` is how long `begin` waits for the others.

    `_image` is the table as it stands in the file, from its front on; it is changed in place and written as it is, with
    `_seldom` before it and `_tail` behind it. A key may be in both: then its entry in the image is the newer one.
    """

    __slots__ = (
        "_all_known", "_copies", "_guesses", "_heads", "_image", "_kept", "_loaded", "_places", "_salt", "_seldom",
        "_steady", "_tail", "_tail_crc", "_values", "_version", "_words", "_written", "boot", "calls", "changed",
        "crowded", "fd", "killed", "lock", "mono_at", "plain_calls", "rings", "stopped", "terminated", "unpublished",
        "wait", "wide_at",
    )  # fmt: skip

    def __init__(self, fd: int, salt: int) -> None:
        self.fd = fd
        self.wait = LOCK_WAIT_SECONDS
        self.lock = QueuedLock(fd)
        self._salt = salt
        self._version = self._loaded = -1
        self._steady = False  # the table that was loaded last was as long as the one before
        self._words = b""  # as they were read
        self._seldom = b""
        self._image = bytearray(FRONT_BYTES)
        self._tail = bytearray()
        self._tail_crc = 0  # with what stands before it
        # Entries of this version, as far as they were asked for or written; None: there is none.
        self._values: dict[bytes, tuple[int, ...] | None] = {}
        self._places: dict[bytes, int] = {}  # where a key stands in this image
        # Where keys of _USUAL values stand that were written before, in every image that has these heads there.
        self._kept: dict[bytes, int] = {}
        self._heads: list[bytes] = []
        self._guesses: dict[bytes, int] = {}  # where a key stood in an earlier image
        self._all_known = False  # every key of the image is in `_places`, every key of the tail in `_values`
        self._written = self._copies = 0  # pages of names that were ever written, and their second copies, as bits
        self.rings = [Ring(fd, pool, salt, self.write_at) for pool in range(len(RINGS))]
        self.crowded = False  # others have written since our last turn
        self.changed = False  # something that not every call changes
        self.unpublished = False  # what was committed is not in the file yet
        self.calls = self.killed = self.terminated = 0
        self.stopped = False  # killed or terminated
        self.plain_calls = -1  # not read yet
        self.boot = self.mono_at = self.wide_at = 0

    # -- having it --------------------------------------------------------------------------------------------

    def begin(self, held: bool = False) -> None:
        """Become the only one to change the file, and know what stands in it. `held`: the lock is ours already."""
        fd = self.fd
        if self.crowded and not held:
            self._look_ahead()
        try:
            if held:
                pass
            elif self.lock.queued:
                self._wait()
            else:
                flock(fd, AT_ONCE)
                self.wait = LOCK_WAIT_SECONDS
        except BlockingIOError:
            self._wait()
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be locked: {error.strerror}") from None
        try:
            raw = os.pread(fd, PAGE, WORDS_AT)
            words, older = _SIGHTS[self._version & 1](raw)
            if older + 1 != self._version or words != self._words:
                self._take_over(raw)
                self.crowded = True
        except BaseException as fault:
            flock(fd, LOCK_UN)
            raise _cannot_read(fault) from None

    def _look_ahead(self) -> None:
        """Before the lock: to go through what others did takes as long as a call, and keeps nobody waiting here. What
        they do until the lock is ours is read again under it, and so is what could not be read whole."""
        try:
            raw = os.pread(self.fd, PAGE, WORDS_AT)
            words, older = _SIGHTS[self._version & 1](raw)
            self.crowded = older + 1 != self._version or words != self._words
            if self.crowded:
                self._take_over(raw)
        except (OSError, struct.error, StateUnavailable):
            pass

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

    def read(self) -> None:
        """A look without the lock: at what stood at some moment."""
        try:
            self._take_over(os.pread(self.fd, PAGE, WORDS_AT))
        except OSError as error:
            raise _cannot_read(error) from None

    def _take_over(self, raw: bytes) -> None:
        """What others did."""
        if len(raw) < PAGE:
            raise StateDamaged(_SHORT)
        words = raw[: WORDS.size]
        if words != self._words:
            calls, not_calls, killed, not_killed = WORDS.unpack(words)
            # A complement that is one behind is a word that was about to be written.
            if not (0 <= calls - (not_calls ^ ALL) <= 1 and 0 <= killed - (not_killed ^ ALL) <= 1):
                raise StateDamaged("its first words are not what was written")
            self._words, self.plain_calls, self.killed = words, calls, killed
        one, two = _versions(raw)
        newest = two if two > one else one
        if newest != self._version and not self._load(raw, newest == two) and not self._load(raw, newest != two):
            raise StateDamaged("neither copy of its table is whole")
        self.stopped = bool(self.killed or self.terminated)

    def _load(self, raw: bytes, copy: int) -> bool:
        """Take over one copy, if it is whole."""
        at = _TABLE_OFFSET + copy * TABLE_ROOM
        if _taken is not None and self._seldom:
            taken = _taken(raw, at, copy, self._image, self._seldom, self._tail, self._tail_crc, _ROOM)
            if taken is not None:
                self._version, self.calls, self._tail_crc = taken
                self._loaded = self._version
                self._values.clear()
                self._all_known, self._steady = False, True
                return True
        start = at + FRONT_AT
        length, tail_length, version, calls = FRONT.unpack_from(raw, start)
        if not FRONT_BYTES <= length <= MAX_TABLE_BYTES or version & 1 != copy:
            return False
        seldom = raw[at + CRC.size : start]
        end = start + min(length, _ROOM)
        image, tail, known = raw[start:end], raw[end : end + tail_length], self._tail
        if length > _ROOM:
            image += os.pread(self.fd, length - _ROOM, EXTENTS_AT + copy * EXTENT_BYTES)
        if seldom == self._seldom and tail.startswith(known):
            tail_crc = crc32(tail[len(known) :], self._tail_crc) if tail else self._tail_crc
        else:
            tail_crc = crc32(tail, crc32(seldom, self._salt))
        if (len(image), len(tail), crc32(image, tail_crc)) != (length, tail_length, CRC.unpack_from(raw, at)[0]):
            return False
        self._version = self._loaded = version
        self.calls = calls
        if seldom != self._seldom:
            self._take_seldom(seldom)
        if tail != known:
            self._tail = bytearray(tail)
        self._tail_crc = tail_crc
        self._values.clear()
        self._guesses = self._places
        self._steady = length == len(self._image)
        if self._steady and all(map(image.startswith, self._heads, self._kept.values())):
            self._image[:] = image
        else:
            self._image = bytearray(image)
            self._forget_kept()
        self._places = self._kept.copy()
        self._all_known = length == FRONT_BYTES and not tail
        if length > 4 * TABLE_ROOM:  # too long to search for each of its keys
            self._find_all()
        return True

    def _forget_kept(self) -> None:
        """Entries do not stand where they stood."""
        self._kept.clear()
        self._heads.clear()

    def _take_seldom(self, seldom: bytes) -> None:
        self._seldom = seldom
        self.terminated, self.boot, self.mono_at, self.wide_at, written, copies = SELDOM.unpack_from(seldom)
        self._written, self._copies = int.from_bytes(written, "little"), int.from_bytes(copies, "little")
        for ring, named in zip(self.rings, RING.iter_unpack(seldom[SELDOM.size :]), strict=True):
            if named != (ring.first, ring.last, ring.used, ring.crc):
                ring.take_over(*named)

    def _find_all(self) -> None:
        places, image, at = self._places, self._image, FRONT_BYTES
        self._forget_kept()
        places.clear()
        while at < len(image):
            places[bytes(image[at : at + KEY_BYTES])] = at
            at += entry_size(image, at)
        self._all_known = self._all_known or not self._tail

    def _find(self, key: bytes) -> int:
        at = self._places.get(key, -1)
        if at >= 0 or self._all_known:
            return at
        at = self._guesses.get(key, -1)
        if at < 0 or not self._image.startswith(key, at):
            at = self._image.find(key, FRONT_BYTES)
        if at >= 0:
            self._places[key] = at
        return at

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        seen = self._values
        if key in seen:
            return seen[key]
        values: tuple[int, ...] | None = None
        at = self._places.get(key, -1)
        if at < 0 and not self._all_known:
            at = self._find(key)
        if at >= 0:
            image = self._image
            values = READERS[image[at + COUNT_AT]](image, at + ENTRY_BYTES)
        elif not self._all_known and (at := self._tail.find(key)) >= 0:
            values = entry_values(self._tail, at)
        else:
            ring = self.rings[pool]
            if ring.behind or key in ring.index:
                values = ring.get(key)
        seen[key] = values
        return values

    def all(self) -> list[tuple[bytes, int, tuple[int, ...]]]:
        """Every entry (key, pool, values), the most recent last. For people, and after a reboot."""
        found: dict[bytes, tuple[bytes, int, tuple[int, ...]]] = {}
        rings = (b"".join(ring.all()) for ring in self.rings)
        for raw in (*rings, bytes(self._tail), bytes(self._image[FRONT_BYTES:])):
            for entry in entries(raw, 0):
                found.pop(entry[0], None)
                found[entry[0]] = entry
        return list(found.values())

    # -- writing ----------------------------------------------------------------------------------------------

    def commit(self, ops: list[Op], calls: int = 0, defer: bool = False) -> int:
        """Publish all of it at once; the number of calls. The lock stays. `defer`: `publish` follows, under it."""
        try:
            self.calls = calls = self.calls + calls
            version, made = self._version + 1, None
            if _changed is not None and not self.changed:
                made = _changed(
                    ops, self._image, self._tail, self._kept, self._values,
                    self._seldom, self._tail_crc, 0 if defer else version, calls, _ROOM,
                )  # fmt: skip
            if made is None:
                whole = self._change(ops, version, defer)
            else:
                whole, self._tail_crc = made
            if not whole:
                self.unpublished = True
                return calls + self.plain_calls
            if os.pwrite(self.fd, whole, _COPIES_AT[version & 1]) != len(whole):
                self.write_at(whole, _COPIES_AT[version & 1])
            self._version = version
            self.unpublished = False
            return calls + self.plain_calls
        except BaseException as fault:
            self._version = -1  # what is in memory is not what stands in the file
            self._seldom = b""
            self.unpublished = False
            self._places.clear()
            self._forget_kept()
            for ring in self.rings:
                ring.reset()
            raise _cannot_write(fault) from None

    def _change(self, ops: list[Op], version: int, defer: bool) -> bytes:
        """The copy to be written, with the operations in it; nothing where that is deferred."""
        image, tail, kept, seen = self._image, self._tail, self._kept, self._values
        for pool, key, values in ops:
            if pool < MARK:
                if key in kept and len(values) == _USUAL:
                    one, two, three = values
                    _put_usual(image, kept[key] + ENTRY_BYTES, one, two, three)
                    seen[key] = values
                    continue
            elif pool < LABEL and seen.get(key, ops) is None:
                count = len(values)
                raw = PACKERS[count](key, pool, count, *values)
                tail += raw
                self._tail_crc = crc32(raw, self._tail_crc)
                seen[key] = values
                continue
            self._put(pool, key, values)
        length, tail_length = len(image), len(tail)
        if length + tail_length > _ROOM:
            self._make_room(ops)
            length, tail_length = len(image), 0
        elif defer:
            return b""
        if self.changed:
            self._change_seldom()
        _put_front(image, 0, length, tail_length, version, self.calls)
        whole = _join((_pack_crc(crc32(image, self._tail_crc)), self._seldom, image, tail))
        return whole if length <= _ROOM else self._write_extent(whole, version & 1)

    def publish(self) -> None:
        """What was deferred. A process that is killed before this leaves nothing of it."""
        if self.unpublished:
            self.commit([])

    def _put(self, pool: int, key: bytes, values: Any) -> None:
        """Change an entry that was not looked at, or not written before, or whose length changes; or add one."""
        if pool == LABEL:
            self._label(key, values)
            return
        image, at, count = self._image, self._find(key), len(values)
        if at >= 0 and image[at + COUNT_AT] == count:
            WRITERS[count](image, at + ENTRY_BYTES, *values)
            # Not where tables come and go in which everything has moved.
            if pool < MARK and count == _USUAL and (self._steady or self._version != self._loaded):
                self._kept[key] = at
                self._heads.append(bytes(image[at : at + ENTRY_BYTES]))
        elif at < 0 and pool in _OF_ARGUMENTS and self.get(pool, key) is None:
            raw = pack_entry(pool, key, values)
            self._tail += raw
            self._tail_crc = crc32(raw, self._tail_crc)
        else:
            if at >= 0:
                del image[at : at + entry_size(image, at)]
                self._find_all()
            at = len(image)
            image += pack_entry(pool, key, values)
            self._places[key] = at
            if len(image) > MAX_TABLE_BYTES:
                raise StateUnavailable(_TOO_MUCH)
        self._values[key] = values

    def _change_seldom(self) -> None:
        times = self.boot, self.mono_at, self.wide_at
        names = self._written.to_bytes(14, "little"), self._copies.to_bytes(14, "little")
        rings = [RING.pack(ring.first, ring.last, ring.used, ring.crc) for ring in self.rings]
        self._seldom = SELDOM.pack(self.terminated, *times, *names) + b"".join(rings)
        self._tail_crc = crc32(self._tail, crc32(self._seldom, self._salt))
        self.changed = False

    def _write_extent(self, whole: bytes, copy: int) -> bytes:
        """Of a table that is longer than its place (it has no tail then); what goes there."""
        if len(whole) > MAX_TABLE_BYTES:
            raise StateUnavailable(_TOO_MUCH)
        self.write_at(whole[TABLE_ROOM:], EXTENTS_AT + copy * EXTENT_BYTES)
        return whole[:TABLE_ROOM]

    def count(self) -> int:
        """A call that changes no entry; the number of calls."""
        self.plain_calls = calls = self.plain_calls + 1
        raw = _WORD.pack(calls, calls ^ ALL)
        try:
            os.pwrite(self.fd, raw, WORDS_AT)
        except OSError as error:
            raise _cannot_write(error) from None
        self._words = raw + self._words[_WORD.size :]
        return self.calls + calls

    def kill(self) -> None:
        """Without the lock, so that nothing can prevent it."""
        self.killed, self.stopped, self._words = 1, True, b""
        self.write_at(_WORD.pack(1, 1 ^ ALL), WORDS_AT + _WORD.size)

    def write_at(self, raw: bytes | bytearray, at: int) -> None:
        """All of it: a file system may take less at once, and says why the next time."""
        try:
            done = os.pwrite(self.fd, raw, at)
            while done != len(raw):
                done += os.pwrite(self.fd, raw[done:], at + done)
        except OSError as error:
            raise _cannot_write(error) from None

    # -- making room ------------------------------------------------------------------------------------------

    def _make_room(self, ops: list[Op]) -> None:
        """The tail goes to the rings, and what is still too much of the oldest entries. One ring takes _MOST_MOVED."""
        moved = self._empty_tail()
        if not self._all_known:
            self._find_all()
        if len(self._image) > _ROOM:
            self._spill({op[1] for op in ops}, moved)
        for pool, body in moved.items():
            self.rings[pool].extend(body)
        self.changed = True
        self._values.clear()

    def _empty_tail(self) -> dict[int, bytes]:
        """What goes to each ring."""
        tail = bytes(self._tail)
        self._tail.clear()
        size = common_size(tail) if 0 < len(tail) <= _MOST_MOVED else 0
        pools = tail[KEY_BYTES::size] if size else b""
        if size and pools.count(pools[:1]) == len(pools):
            return {pools[0]: tail}
        moved = dict.fromkeys(_OF_ARGUMENTS, b"")
        for raw in split(tail):
            key, pool = raw[:KEY_BYTES], raw[KEY_BYTES]
            if len(moved[pool]) + len(raw) <= _MOST_MOVED:
                moved[pool] += raw
            elif self._find(key) < 0:  # a call with a great many new keys: some stay, and move with later calls
                self._places[key] = len(self._image)
                self._image += raw
        return moved

    def _spill(self, used: set[bytes], moved: dict[int, bytes]) -> None:
        """Move the oldest entries of the pool that has most, but for those just used."""
        image, keys = self._image, list(self._places)  # in the order in which they stand
        ends = [*self._places.values(), len(image)]
        pools = [image[at + KEY_BYTES] for at in ends[:-1]]
        idle = [pool for pool, key in zip(pools, keys, strict=True) if key not in used]
        if not idle:
            return
        pool = max(set(idle), key=idle.count)
        most = min(max(TABLE_ROOM // 2, len(image) - _ROOM), _MOST_MOVED - len(moved.get(pool, b"")))
        goes: list[bytes] = []
        stays: list[bytes] = []
        names: list[bytes] = []
        for number, key in enumerate(keys):
            raw = bytes(image[ends[number] : ends[number + 1]])
            if most > 0 and pools[number] == pool and key not in used:
                goes.append(raw)
                most -= len(raw)
            else:
                stays.append(raw)
                names.append(key)
        moved[pool] = moved.get(pool, b"") + b"".join(goes)
        image[FRONT_BYTES:] = b"".join(stays)
        self._forget_kept()
        self._places.clear()
        self._places.update(zip(names, accumulate(map(len, stays), initial=FRONT_BYTES), strict=False))

    def forget(self, kept: Callable[[int, tuple[int, ...]], bool]) -> None:
        """Drop every entry whose pool and values are not `kept`; `commit` makes it known."""
        raws = [pack_entry(pool, key, values) for key, pool, values in self.all() if kept(pool, values)]
        while sum(map(len, raws)) > MAX_TABLE_BYTES - FRONT_BYTES:
            del raws[: len(raws) // 8 + 1]
        self._image[FRONT_BYTES:] = b"".join(raws)
        self._tail.clear()
        for ring in self.rings:
            ring.clear()
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


def _cannot_read(fault: BaseException) -> BaseException:
    if isinstance(fault, OSError):
        return StateUnavailable(f"the run's state cannot be read: {fault.strerror}")
    return StateDamaged(_SHORT) if isinstance(fault, struct.error) else fault


def _cannot_write(fault: BaseException) -> BaseException:
    if isinstance(fault, OSError):
        return StateUnavailable(f"the run's state cannot be written: {fault.strerror}")
    return fault
