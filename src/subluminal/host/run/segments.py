"""Entries that were not used lately: pages of them, each written once, in a ring for each pool.

A segment is written behind the newest of its ring and stands when a table is published that counts it. A key's newest
segment holds its values; older ones hold copies that nobody reads. When a ring is nearly full its oldest segments are
taken out of it, and what is still the newest of its key is written again; unless the pool holds MAX_KEYS keys, then it
is forgotten: the least recently used.

Every process keeps an index of keys, and reads each segment once for it, which is once for some fifty calls.
"""

from __future__ import annotations

import os

from subluminal.core.engine.state import KEY_BYTES, MAX_KEYS, StateDamaged
from subluminal.host.run.pages import (
    PAGE,
    PAGE_ROOM,
    SEGMENTS,
    entry_size,
    entry_values,
    pack_page,
    read_page,
    segment_at,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

# Segments that one call may write: as many places must be free, because those that it takes out are needed until it is
# published.
MOST_AT_ONCE = 8
_SPARE = 3 * MOST_AT_ONCE
# From here on old segments are taken out, two or three for each that is written. So many may pass in a row of which all
# must be written again, before one is gained.
_ROOM = _SPARE + 32


class Segments:
    """Of one file. `write(raw, at)` puts bytes into it."""

    __slots__ = ("_fd", "_first", "_index", "_keys", "_next", "_read_to", "_salt", "_write")

    def __init__(self, fd: int, salt: int, write: Callable[[bytes, int], None]) -> None:
        self._fd = fd
        self._salt = salt
        self._write = write
        self._first = [0] * len(SEGMENTS)
        self._next = [0] * len(SEGMENTS)
        self.reset()

    def reset(self) -> None:
        """Forget what was read: some of it may never have been published."""
        self._index: list[dict[bytes, int]] = [{} for _ in SEGMENTS]
        self._keys: list[dict[int, list[bytes]]] = [{} for _ in SEGMENTS]  # of each segment that was read
        self._read_to = [0] * len(SEGMENTS)

    def ends(self) -> list[int]:
        return [*self._first, *self._next]

    def take_over(self, ends: list[int]) -> None:
        before, self._first, self._next = self._first, ends[: len(SEGMENTS)], ends[len(SEGMENTS) :]
        for pool, (old, new) in enumerate(zip(before, self._first, strict=True)):
            for number in range(old, new):
                self._forget(pool, number)
        if any(read > end for read, end in zip(self._read_to, self._next, strict=True)):
            self.reset()

    def get(self, pool: int, key: bytes) -> tuple[int, ...] | None:
        if self._first[pool] == self._next[pool]:
            return None
        if self._read_to[pool] < self._next[pool]:
            self._learn(pool)
        number = self._index[pool].get(key, -1)
        if number < self._first[pool]:
            return None
        body = self._body(pool, number)
        at = body.find(key)
        return None if at < 0 else entry_values(body, at)

    def _body(self, pool: int, number: int) -> bytes:
        body = read_page(os.pread(self._fd, PAGE, segment_at(pool, number)), number, self._salt)
        if body is None:
            raise StateDamaged("a page of it is not what was written")
        return body

    def _learn(self, pool: int) -> None:
        for number in range(max(self._read_to[pool], self._first[pool]), self._next[pool]):
            self._know(pool, number, [raw[:KEY_BYTES] for raw in _entries(self._body(pool, number))])

    def _know(self, pool: int, number: int, keys: list[bytes]) -> None:
        self._keys[pool][number] = keys
        self._index[pool].update(dict.fromkeys(keys, number))
        self._read_to[pool] = number + 1

    def _forget(self, pool: int, number: int) -> None:
        index = self._index[pool]
        for key in self._keys[pool].pop(number, ()):
            if index.get(key) == number:
                del index[key]

    def add(self, pool: int, raws: list[bytes], in_use: Container[bytes]) -> None:
        """Segments of these entries, MOST_AT_ONCE. `in_use`: keys that the table has, newer than any here."""
        if self._read_to[pool] < self._next[pool]:
            self._learn(pool)
        before = self._next[pool]
        self._append(pool, raws)
        for _ in range(2 * (self._next[pool] - before)):
            if self._next[pool] - self._first[pool] > SEGMENTS[pool] - _ROOM:
                self._append(pool, self._taken_out(pool, in_use))
        while self._next[pool] - self._first[pool] > SEGMENTS[pool] - _SPARE:
            self._forget(pool, self._first[pool])
            self._first[pool] += 1

    def _append(self, pool: int, raws: list[bytes]) -> None:
        while raws:
            number, size, count = self._next[pool], 0, 0
            while count < len(raws) and size + len(raws[count]) <= PAGE_ROOM:
                size += len(raws[count])
                count += 1
            self._write(pack_page(number, b"".join(raws[:count]), self._salt), segment_at(pool, number))
            self._know(pool, number, [raw[:KEY_BYTES] for raw in raws[:count]])
            self._next[pool] = number + 1
            raws = raws[count:]

    def _taken_out(self, pool: int, in_use: Container[bytes]) -> list[bytes]:
        """The oldest segments go, two if what must be written again of them is no more than one."""
        index, size = self._index[pool], 0
        kept: list[bytes] = []
        for _ in range(2):
            number = self._first[pool]
            live = [raw for raw in _entries(self._body(pool, number)) if index.get(raw[:KEY_BYTES]) == number]
            if kept and size + sum(map(len, live)) > PAGE_ROOM:
                break
            self._first[pool] = number + 1
            if len(index) <= MAX_KEYS:
                live = [raw for raw in live if raw[:KEY_BYTES] not in in_use]
                kept += live
                size += sum(map(len, live))
            self._forget(pool, number)
        return kept

    def all(self) -> Iterator[bytes]:
        """Every entry, older copies before newer ones."""
        for pool in range(len(SEGMENTS)):
            for number in range(self._first[pool], self._next[pool]):
                yield from _entries(self._body(pool, number))

    def clear(self) -> None:
        self._first = self._next.copy()
        self.reset()


def _entries(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        end = at + entry_size(body, at)
        yield body[at:end]
        at = end
