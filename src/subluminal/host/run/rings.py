"""Entries that were used once, or not lately: pages of them that are only appended to, a ring of pages for each pool.

Entries come from the table, many at once. They are appended behind the last ones and stand when a table is published
that counts them. A key's last entry holds
its values; older ones are copies that nobody reads. When a ring is nearly full its oldest pages are taken out of it,
and what is still the last of its key is written again; unless the pool holds MAX_KEYS keys, then it is forgotten: the
least recently used.

The table has the checksum of the last page as far as it counts it; a page that is full has its own. Every process keeps
an index of keys, and reads each entry once for it.
"""

from __future__ import annotations

import os
from zlib import crc32

from subluminal.core.engine.state import KEY_BYTES, MAX_KEYS, StateDamaged
from subluminal.host.run.pages import (
    PAGE,
    PAGE_HEAD_BYTES,
    PAGE_ROOM,
    RINGS,
    entry_values,
    fitting,
    keys_of,
    page_at,
    page_head,
    read_page,
    split,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Pages that one call may fill: as many must be free, because those that it takes out are needed until it is published.
MOST_AT_ONCE = 8
_SPARE = 3 * MOST_AT_ONCE
# From here on old pages are taken out, two for each that was filled. So many may pass in a row of which all must be
# written again, before one is gained.
_ROOM = _SPARE + 32
# From here on too: a larger index would cost a millisecond whenever it is laid out anew.
_MANY_KEYS = MAX_KEYS + 512
_DAMAGED = "a page of it is not what was written"


class Ring:
    """Of one pool. `write(raw, at)` puts bytes into the file.

    Pages have numbers that only grow, from `first` to `last`; `used` is what the table counts of the last one, `crc`
    its checksum, `body_at` where its entries begin in the file.
    """

    __slots__ = (
        "_fd", "_keys", "_known", "_pool", "_salt", "_write", "behind", "body_at", "crc", "first", "index", "last",
        "used",
    )  # fmt: skip

    def __init__(self, fd: int, pool: int, salt: int, write: Callable[[bytes, int], None]) -> None:
        self._fd = fd
        self._pool = pool
        self._salt = salt
        self._write = write
        self.first = self.last = self.used = 0
        self.crc = salt
        self.body_at = page_at(pool, 0) + PAGE_HEAD_BYTES
        self.reset()

    def reset(self) -> None:
        """Forget what was read: some of it may never have been published."""
        self.index: dict[bytes, int] = {}  # key to the page of its last entry
        self._keys: dict[int, list[bytes]] = {}  # of each page, in order
        self._known = (0, 0, self._salt)  # how far the index goes, and the checksum there
        self.behind = True  # there may be more than the index knows

    def take_over(self, first: int, last: int, used: int, crc: int) -> None:
        """What a table says that somebody else published."""
        if not self.behind:
            self._known = (self.last, self.used, self.crc)
        for number in range(self.first, first):
            self._forget(number)
        self.first, self.last, self.used, self.crc = first, last, used, crc
        self.body_at = page_at(self._pool, last) + PAGE_HEAD_BYTES
        if self._known[:2] > (last, used):
            self.reset()
        self.behind = self._known != (last, used, crc)

    # -- reading ----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> tuple[int, ...] | None:
        if self.behind:
            self.learn()
        number = self.index.get(key, -1)
        if number < self.first:
            return None
        body = self._body(number)
        at = body.rfind(key)
        return None if at < 0 else entry_values(body, at)

    def _body(self, number: int) -> bytes:
        if number == self.last:
            body = os.pread(self._fd, self.used, self.body_at)
            if len(body) == self.used and crc32(body, self._salt) == self.crc:
                return body
        else:
            page = read_page(os.pread(self._fd, PAGE, page_at(self._pool, number)), number, self._salt)
            if page is not None:
                return page
        raise StateDamaged(_DAMAGED)

    def learn(self) -> None:
        """The keys of what others appended."""
        number, start, crc = self._known
        if number == self.last and start:  # the usual case: a little more on the last page
            body = os.pread(self._fd, self.used - start, self.body_at + start)
            if len(body) != self.used - start or crc32(body, crc) != self.crc:
                raise StateDamaged(_DAMAGED)
            self._know(number, body)
        else:
            if number < self.first:
                number, start = self.first, 0
            for page in range(number, self.last + 1):
                self._know(page, self._body(page)[start:])
                start = 0
        self.behind = False

    def _know(self, number: int, body: bytes) -> None:
        keys = keys_of(body)
        self._keys.setdefault(number, []).extend(keys)
        index = self.index
        for key in keys:
            index[key] = number

    def _forget(self, number: int) -> None:
        index = self.index
        for key in self._keys.pop(number, ()):
            if index.get(key) == number:
                del index[key]

    def all(self) -> Iterator[bytes]:
        """Every entry, older copies before newer ones."""
        for number in range(self.first, self.last + 1):
            yield from split(self._body(number))

    # -- appending --------------------------------------------------------------------------------------------

    def extend(self, body: bytes) -> None:
        """Entries that fill MOST_AT_ONCE pages at most."""
        if self.behind:
            self.learn()
        for _ in range(2 * self._append(body)):
            if len(self.index) > _MANY_KEYS or self.last - self.first >= RINGS[self._pool] - _ROOM:
                self._append(self._taken_out())
        while self.last - self.first >= RINGS[self._pool] - _SPARE:
            self._forget(self.first)
            self.first += 1

    def _append(self, body: bytes) -> int:
        """How many pages it filled."""
        filled = 0
        while body:
            size = fitting(body, PAGE_ROOM - self.used)
            if size:
                fits = body[:size]
                self._write(fits, self.body_at + self.used)
                self.crc = crc32(fits, self.crc)
                self.used += size
                self._know(self.last, fits)
                body = body[size:]
            if body:
                self._write(page_head(self.last, self.used, self.crc), self.body_at - PAGE_HEAD_BYTES)
                self.last += 1
                self.used, self.crc = 0, self._salt
                self.body_at = page_at(self._pool, self.last) + PAGE_HEAD_BYTES
                filled += 1
        return filled

    def _taken_out(self) -> bytes:
        """The oldest pages go, two if what must be written again of them is no more than one."""
        index, size = self.index, 0
        kept: list[bytes] = []
        for _ in range(2):
            number = self.first
            if len(index) <= MAX_KEYS:
                newest = {raw[:KEY_BYTES]: raw for raw in split(self._body(number))}
                live = [raw for key, raw in newest.items() if index.get(key) == number]
                more = sum(map(len, live))
                if kept and size + more > PAGE_ROOM:
                    break
                kept += live
                size += more
            self.first = number + 1
            self._forget(number)
        return b"".join(kept)

    def clear(self) -> None:
        self.first = self.last = self.last + 1
        self.used, self.crc = 0, self._salt
        self.body_at = page_at(self._pool, self.last) + PAGE_HEAD_BYTES
        self.reset()
