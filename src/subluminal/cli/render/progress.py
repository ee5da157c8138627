"""How far long work has come, on one line of a terminal that goes away again: stderr, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

_T = TypeVar("_T")

# Work that is done within this needs no words.
QUIET_S = 0.5
_EVERY_S = 0.1


class Progress:
    """`with Progress("events") as progress: progress.step()`; `total` where it is known."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._next = monotonic() + QUIET_S
        self._shown = False
        self._wanted = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[J")
            sys.stderr.flush()

    def step(self, number: int = 1) -> None:
        self._done += number
        if self._wanted and monotonic() >= self._next:
            self._next = monotonic() + _EVERY_S
            self._shown = True
            of = "" if self._total is None else f" of {self._total:,}"
            sys.stderr.write(f"\r\x1b[J{self._done:,}{of} {self._what} ...\r")
            sys.stderr.flush()


def with_progress(items: Iterable[_T], what: str, total: int | None = None) -> Iterator[_T]:
    """The items, one after the other."""
    known = len(items) if total is None and isinstance(items, Sized) else total
    with Progress(what, known) as progress:
        for item in items:
            yield item
            progress.step()
