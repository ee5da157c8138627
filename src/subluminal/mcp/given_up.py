"""Ids whose request was given up: cancelled, timed out, or used for two requests at once.

The server may still answer. Until it has, a request that uses the id again could get an answer that is not its own.
"""

from __future__ import annotations

from collections import OrderedDict

from subluminal.contracts.digest import blake2b

# Oldest forgotten first. Whoever would have a late answer taken for another call's has to give up this many requests
# first, each on record as a failure.
MAX_GIVEN_UP = 16_384
MAX_KEY_BYTES = 64


class GivenUp:
    """`due` has how many replies may still come for each."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: OrderedDict[bytes, int] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return _short(key) in self.due

    def add(self, key: bytes) -> None:
        key = _short(key)
        self.due[key] = self.due.pop(key, 0) + 1
        if len(self.due) > MAX_GIVEN_UP:
            self.due.popitem(last=False)

    def answered(self, key: bytes) -> None:
        key = _short(key)
        left = self.due.get(key, 0) - 1
        if left > 0:
            self.due[key] = left
        else:
            self.due.pop(key, None)


def _short(key: bytes) -> bytes:
    return key if len(key) <= MAX_KEY_BYTES else blake2b(key).digest()
