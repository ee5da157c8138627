"""One question and its time: all of its statements together have so long, and each is given up with what is left of it.

`Slots`: connections of a store by what they are for, so that what is quick never waits behind what is long.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from subluminal.fleet.stores.base import Dialect, Store, TooLong

WRITE, READ, QUICK = "write", "read", "quick"
# Long questions that a store answers at once; one more waits.
READERS = 4


class Asked:
    """`quick`: an index leads to what it asks for."""

    def __init__(self, store: Store, seconds: float, *, quick: bool = False) -> None:
        self._store, self._seconds, self._quick = store, seconds, quick
        self._until = time.monotonic() + seconds
        self.dialect: Dialect = store.dialect

    def select(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        left = self._until - time.monotonic()
        try:
            if left > 0:
                return self._store.select(sql, values, left, quick=self._quick)
        except TooLong as error:
            if error.seconds < left:  # the store's own limit was shorter
                raise
        raise TooLong(self._seconds)


class Slots:
    """Names of connections, each for one thread at a time."""

    def __init__(self, *, is_one: bool) -> None:
        """`is_one`: a single connection serves every purpose."""
        counts = {"any": 1} if is_one else {WRITE: 1, READ: READERS, QUICK: 1}
        self._free: dict[str, queue.LifoQueue[str]] = {purpose: queue.LifoQueue() for purpose in counts}
        self._is_one = is_one
        for purpose, count in counts.items():
            for number in range(count):
                self._free[purpose].put(f"{purpose}-{number}")

    @contextmanager
    def one(self, purpose: str, seconds: float | None) -> Iterator[str]:
        free = self._free["any" if self._is_one else purpose]
        try:
            name = free.get(timeout=seconds)
        except queue.Empty:
            raise TooLong(seconds or 0.0) from None
        try:
            yield name
        finally:
            free.put(name)
