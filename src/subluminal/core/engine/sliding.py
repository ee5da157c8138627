"""One limit of a budget within any stretch of `window_ms`: for policies that have such budgets.

Up to 64 calls are exact to the millisecond. More, and cost units, are counted in sixtieths of the window (of an hour:
minutes): what is charged counts for the whole window and at most one sixtieth longer, never shorter.
"""

from __future__ import annotations

from subluminal.core.engine.windows import EXACT, Window

GRAINS = 60


class Sliding:
    """`values` are the grain, the window, and what `Window` makes of them."""

    __slots__ = ("_head", "_window", "threshold")

    def __init__(self, limit: int, window_ms: int, *, weighted: bool) -> None:
        self.threshold = limit
        self._window = _window(limit, window_ms, weighted)
        self._head = (self._window.grain_ms, window_ms)

    def adopted(self, found: tuple[int, ...] | None, now_ms: int) -> tuple[int, ...]:
        """What was found, as this limit counts: it may have been charged under another limit or window."""
        window = self._window
        if found is None:
            return self._head
        if found[:2] == self._head:
            return found
        was = _window(EXACT, found[1], weighted=bool(found[0]))
        kept: tuple[int, ...] = ()
        for at_ms, units in was.events(found[2:], now_ms):
            for _ in range(1 if window.grain_ms else min(units, EXACT)):
                kept = window.push(kept, at_ms, units)
        return (*self._head, *kept)

    def used(self, values: tuple[int, ...], now_ms: int) -> int:
        return self._window.count(values[2:], now_ms)

    def charged(self, values: tuple[int, ...], now_ms: int, units: int) -> tuple[int, ...]:
        return (*self._head, *self._window.push(values[2:], now_ms, units))

    def wait_ms(self, values: tuple[int, ...], now_ms: int, units: int) -> int:
        return self._window.wait_ms(values[2:], now_ms, units)


def _window(limit: int, window_ms: int, weighted: bool) -> Window:
    return Window(limit, window_ms, GRAINS, -1 if weighted else EXACT)
