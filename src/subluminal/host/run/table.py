"""Entries in a file that many processes change: read and written with `pread` and `pwrite`, never mapped.

What was used lately is in one small table. A call reads it (one `pread`), changes its entries in memory, and writes the
whole table over the *other* of two copies (one `pwrite`). The copy with the higher version whose checksum is right
stands: a process killed at any instant leaves the whole effect of a call or nothing, and the cost of a call does not
depend on how many processes share the file, nor on what they did meanwhile.

When the table has outgrown a page, its oldest entries move to their cold pages, a few with each call. These have two
copies as well, and the table says which of them stands: what moves, moves with the call. A cold page that is full
forgets the entry that was moved there longest ago.

Why not mapped: a mapped file that somebody truncates ends its readers with SIGBUS. Here it is a short read, and a
sentence.
"""

from __future__ import annotations

import os
import struct
from fcntl import LOCK_UN, flock
from zlib import crc32

from subluminal.core.engine.state import KEY_BYTES, LABEL, MAX_LABEL_BYTES, StateDamaged, StateUnavailable
from subluminal.host.run.lock import AT_ONCE, QueuedLock
from subluminal.host.run.pages import (
    ALL,
    COLD_FIRST,
    COLD_HEAD,
    COLD_HEAD_BYTES,
    COLD_PAGES,
    COUNT_AT,
    CRC,
    ENTRY_BYTES,
    EXTENT_BYTES,
    EXTENTS_AT,
    FRONT,
    HEAD,
    HEAD_BYTES,
    MAX_TABLE_BYTES,
    PAGE,
    REST,
    REST_AT,
    SIGHT,
    TABLES_AT,
    WORDS_AT,
    WRITERS,
    cold_at,
    cold_page,
    entries,
    entry_size,
    entry_values,
    pack_entry,
)

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
_READ_BYTES = _TABLE_OFFSET + 2 * PAGE
_WORD = struct.Struct("<QQ")
_TOO_MUCH = "one call changes more state than the run's file can hold"


class Table:
    """One state file, seen by this process. `wait` is how long `begin` waits for the others.

    `_image` is the table as it stands in the file, head and entries; it is changed in place and written as it is.
    """

    __slots__ = (
        "_copies", "_guesses", "_image", "_places", "_salt", "_values", "_version", "_written", "boot", "calls",
        "changed", "fd", "killed", "lock", "mono_at", "plain_calls", "terminated", "wait", "wide_at",
    )  # fmt: skip

    def __init__(self, fd: int, salt: int) -> None:
        self.fd = fd
        self.wait = LOCK_WAIT_SECONDS
        self.lock = QueuedLock(fd)
        self._salt = salt
        self._version = -1
        self._image = bytearray(HEAD_BYTES)
        self._values: dict[bytes, tuple[int, ...]] = {}  # entries of this image, as far as they were read or written
        self._places: dict[bytes, int] = {}  # where a key stands in this image
        self._guesses: dict[bytes, int] = {}  # where it stood in an earlier one
        self._written = self._copies = 0  # cold pages that were ever written, and their second copies, as bits
        self.changed = False  # something of the head that not every call changes
        self.calls = self.plain_calls = self.killed = self.terminated = 0
        self.boot = self.mono_at = self.wide_at = 0

    # -- having it --------------------------------------------------------------------------------------------

    def begin(self, size: int = _READ_BYTES) -> None:
        """Become the only one to change the file, and know what stands in it."""
        try:
            if self.lock.queued:
                self._wait()
            else:
                flock(self.fd, AT_ONCE)
                self.wait = LOCK_WAIT_SECONDS
        except BlockingIOError:
            self._wait()
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be locked: {error.strerror}") from None
        try:
            self.read(size)
        except BaseException:
            flock(self.fd, LOCK_UN)
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
        os.close(self.fd)

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
        at = _TABLE_OFFSET + copy * PAGE
        crc, length, version, calls, terminated, boot, mono_at, wide_at, written, copies = HEAD.unpack_from(raw, at)
        if not HEAD_BYTES <= length <= MAX_TABLE_BYTES:
            return False
        image = bytearray(raw[at : at + min(length, PAGE)])
        if length > PAGE:
            image += os.pread(self.fd, length - PAGE, EXTENTS_AT + copy * EXTENT_BYTES)
        image[:4] = bytes(4)
        if len(image) != length or crc32(image, self._salt) != crc or version & 1 != copy:
            return False
        self._version, self.calls, self.terminated = version, calls, terminated
        self.boot, self.mono_at, self.wide_at = boot, mono_at, wide_at
        self._written, self._copies = int.from_bytes(written, "little"), int.from_bytes(copies, "little")
        self._take_over(image)
        return True

    def _take_over(self, image: bytearray) -> None:
        self._image = image
        self._values.clear()
        if self._places:
            self._guesses = self._places.copy()
            self._places.clear()
        if len(image) > 2 * PAGE:  # too long to search for each of its keys
            at = HEAD_BYTES
            while at < len(image):
                self._places[bytes(image[at : at + KEY_BYTES])] = at
                at += entry_size(image, at)

    def _find(self, key: bytes) -> int:
        at = self._places.get(key, -1)
        if at >= 0:
            return at
        at = self._guesses.get(key, -1)
        if at < 0 or not self._image.startswith(key, at):
            at = self._image.find(key, HEAD_BYTES)
        if at >= 0:
            self._places[key] = at
        return at

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        values = self._values.get(key)
        if values is not None:
            return values
        at = self._find(key)
        if at >= 0:
            values = entry_values(self._image, at)
        elif self._written:
            cold = self._cold(cold_page(pool, key, self._salt))
            at = cold.find(key)
            values = entry_values(cold, at) if at >= 0 else None
        if values is not None:
            self._values[key] = values
        return values

    def _cold(self, page: int) -> bytearray:
        if not self._written >> page & 1:
            return bytearray()
        raw = os.pread(self.fd, PAGE, cold_at(page, self._copies >> page & 1))
        if len(raw) == PAGE:
            crc, length = COLD_HEAD.unpack_from(raw)
            if length <= PAGE and crc32(raw[4:length], self._salt) == crc:
                return bytearray(raw[COLD_HEAD_BYTES:length])
        raise StateDamaged("a page of it is not what was written")

    def all(self) -> list[tuple[bytes, int, tuple[int, ...]]]:
        """Every entry (key, pool, values): cold ones first, the most recent last. For people, and after a reboot."""
        found: dict[bytes, tuple[bytes, int, tuple[int, ...]]] = {}
        for page in range(COLD_FIRST[LABEL]):
            found.update((entry[0], entry) for entry in entries(self._cold(page), 0))
        found.update((entry[0], entry) for entry in entries(self._image, HEAD_BYTES))
        return list(found.values())

    # -- writing ----------------------------------------------------------------------------------------------

    def commit(self, ops: list[Op], calls: int = 0) -> None:
        """Publish all of it at once. The lock stays."""
        image, places, seen = self._image, self._places, self._values
        try:
            for pool, key, values in ops:
                at = places.get(key, -1)
                if at >= 0 and len(values) == image[at + COUNT_AT]:
                    WRITERS[len(values)](image, at + ENTRY_BYTES, *values)
                    seen[key] = values
                else:
                    self._put(pool, key, values)
            if len(image) > PAGE:
                self._spill({op[1] for op in ops})
            self.calls += calls
            self.write()
        except BaseException:
            self._version = -1  # what is in memory is not what stands in the file
            raise

    def _put(self, pool: int, key: bytes, values: Any) -> None:
        """Change an entry that was not looked at, or whose length changes; or add one."""
        if pool == LABEL:
            self._label(key, values)
            return
        image, at = self._image, self._find(key)
        raw = pack_entry(pool, key, values)
        if at >= 0 and entry_size(image, at) == len(raw):
            image[at : at + len(raw)] = raw
        else:
            if at >= 0:
                del image[at : at + entry_size(image, at)]
                self._take_over(image)
            self._places[key] = len(image)
            image += raw
            if len(image) > MAX_TABLE_BYTES:
                raise StateUnavailable(_TOO_MUCH)
        self._values[key] = values

    def write(self) -> None:
        """The table as it stands in memory, over the older copy."""
        image, version = self._image, self._version + 1
        size, copy = len(image), version & 1
        if self.changed:
            cold = self._written.to_bytes(64, "little"), self._copies.to_bytes(64, "little")
            REST.pack_into(image, REST_AT, self.terminated, self.boot, self.mono_at, self.wide_at, *cold)
            self.changed = False
        FRONT.pack_into(image, 0, 0, size, version, self.calls)
        CRC.pack_into(image, 0, crc32(image, self._salt))
        if size <= PAGE:
            self.write_at(image, TABLES_AT + copy * PAGE)
        elif size > MAX_TABLE_BYTES:
            raise StateUnavailable(_TOO_MUCH)
        else:
            self.write_at(image[PAGE:], EXTENTS_AT + copy * EXTENT_BYTES)
            self.write_at(image[:PAGE], TABLES_AT + copy * PAGE)
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
            while done < len(raw):
                done += os.pwrite(self.fd, raw[done:], at + done)
        except OSError as error:
            raise StateUnavailable(f"the run's state cannot be written: {error.strerror}") from None

    def _spill(self, used: set[bytes]) -> None:
        """Move the oldest entries, but for those just used, to their cold pages, until the table fits its page."""
        image, at, left = self._image, HEAD_BYTES, len(self._image)
        pages: dict[int, bytearray] = {}
        kept = bytearray()
        while at < len(image) and left > PAGE:
            size = entry_size(image, at)
            raw = bytes(image[at : at + size])
            at += size
            if raw[:KEY_BYTES] in used:
                kept += raw
                continue
            left -= size
            number = cold_page(raw[KEY_BYTES], raw[:KEY_BYTES], self._salt)
            if number not in pages:
                pages[number] = self._cold(number)
            _replace(pages[number], raw)
        for number, cold in pages.items():
            self._write_cold(number, cold)
        if pages:
            image[HEAD_BYTES:at] = kept
            self._take_over(image)

    def _write_cold(self, number: int, body: bytes | bytearray) -> None:
        tail = COLD_HEAD.pack(0, COLD_HEAD_BYTES + len(body))[4:] + body
        self._copies ^= 1 << number
        self._written |= 1 << number
        self.changed = True
        raw = crc32(tail, self._salt).to_bytes(4, "little") + tail
        self.write_at(raw.ljust(PAGE, b"\0"), cold_at(number, self._copies >> number & 1))

    def forget(self, kept: Callable[[int, tuple[int, ...]], bool]) -> None:
        """Drop every entry whose pool and values are not `kept`; `write` makes it known."""
        for page in range(COLD_FIRST[LABEL]):
            if self._written >> page & 1:
                self._write_cold(page, _kept(self._cold(page), kept))
        self._take_over(self._image[:HEAD_BYTES] + _kept(self._image[HEAD_BYTES:], kept))

    # -- names for people -------------------------------------------------------------------------------------

    def _label(self, key: bytes, text: bytes) -> None:
        """Names come from outside, so they stand apart from the entries; losing one loses nothing."""
        number = cold_page(LABEL, key, self._salt)
        try:
            body = self._cold(number)
        except StateDamaged:
            body = bytearray()
        text = text[:MAX_LABEL_BYTES]
        body += key + bytes((len(text),)) + text
        while len(body) > PAGE - COLD_HEAD_BYTES:
            del body[: KEY_BYTES + 1 + body[KEY_BYTES]]
        self._write_cold(number, body)

    def labels(self) -> dict[bytes, str]:
        found = {}
        for page in range(COLD_FIRST[LABEL], COLD_FIRST[LABEL] + COLD_PAGES[LABEL]):
            body, at = self._cold(page), 0
            while at < len(body):
                end = at + KEY_BYTES + 1 + body[at + KEY_BYTES]
                found[bytes(body[at : at + KEY_BYTES])] = body[at + KEY_BYTES + 1 : end].decode("utf-8", "replace")
                at = end
        return found


def _replace(cold: bytearray, raw: bytes) -> None:
    """Put an entry last; what has been there longest goes if there is no room."""
    at = cold.find(raw[:KEY_BYTES])
    if at >= 0:
        del cold[at : at + entry_size(cold, at)]
    cold += raw
    while len(cold) > PAGE - COLD_HEAD_BYTES:
        del cold[: entry_size(cold, 0)]


def _kept(body: bytearray, kept: Callable[[int, tuple[int, ...]], bool]) -> bytearray:
    return bytearray().join(pack_entry(pool, key, new) for key, pool, new in entries(body, 0) if kept(pool, new))
