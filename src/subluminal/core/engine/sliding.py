"""One limit of a budget within any stretch of `window_ms`: for policies that have such budgets.

Up to 64 calls are exact to the millisecond. More, and cost units, are counted in sixtieths of the window (of an hour:
minutes): what is charged counts for the whole window and at most one sixtieth longer, never shorter.
"""

from __future__ import annotations

from subluminal.core.engine.windows import EXACT, Window

GRAINS = 60


class Sliding:
    """`values` are the grain and what `Window` makes of it."""

    __slots__ = ("_window", "threshold")

    def __init__(self, limit: int, window_ms: int, *, weighted: bool) -> None:
        self.threshold = limit
        self._window = _window(limit, window_ms, weighted)

    def adopted(self, found: tuple[int, ...] | None) -> tuple[int, ...]:
        """What was found, as this limit counts: it may have been charged under another limit or window."""
        window = self._window
        if not found:
            return (window.grain_ms,)
        if found[0] == window.grain_ms:
            return found
        # Its events say when they were, whatever its window was.
        was = _window(EXACT, found[0] * GRAINS, weighted=bool(found[0]))
        kept: tuple[int, ...] = ()
        for at_ms, units in was.events(found[1:]):
            for _ in range(1 if window.grain_ms else min(units, EXACT)):
                kept = window.push(kept, at_ms, units)
        return (window.grain_ms, *kept)

    def used(self, values: tuple[int, ...], now_ms: int) -> int:
        return self._window.count(values[1:], now_ms)

    def charged(self, values: tuple[int, ...], now_ms: int, units: int) -> tuple[int, ...]:
        return (values[0], *self._window.push(values[1:], now_ms, units))

    def wait_ms(self, values: tuple[int, ...], now_ms: int, units: int) -> int:
        return self._window.wait_ms(values[1:], now_ms, units)


def _window(limit: int, window_ms: int, weighted: bool) -> Window:
    return Window(limit, window_ms, GRAINS, -1 if weighted else EXACT)
