"""How many times within the last so many milliseconds: exact timestamps for small thresholds, grains for large ones.

A window of up to EXACT is its newest timestamps. One of more, and one whose events weigh differently, is counted in
grains of time: each event is counted until its whole grain has left the window, which is at most a grain longer than
exact, never shorter. Either is a tuple of integers of bounded length, whatever the threshold.
"""

from __future__ import annotations

from subluminal.core.engine.state import CLOCK_SLACK_MS

EXACT = 64
GRAINS = 64


class Window:
    """`threshold` events within `window_ms`. `values` is what `push` returned last, or empty."""

    __slots__ = ("_kept", "grain_ms", "threshold", "window_ms")

    def __init__(self, threshold: int, window_ms: int, grains: int = GRAINS, exact: int = EXACT) -> None:
        self.threshold = threshold
        self.window_ms = window_ms
        self.grain_ms = 0 if threshold <= exact else max(1, -(-window_ms // grains))
        # The newest grain, those that lie in the window whole, and the one that it cuts.
        self._kept = 2 + -(-window_ms // self.grain_ms) if self.grain_ms else 0

    def count(self, values: tuple[int, ...], now_ms: int) -> int:
        if not self.grain_ms:
            return len(self._live(values, now_ms))
        return sum(self._grains(values, now_ms)[1:])

    def pushed(self, values: tuple[int, ...], now_ms: int) -> tuple[int, tuple[int, ...]]:
        """With this event: how many there are, and what to keep."""
        if not values and not self.grain_ms:
            return 1, (now_ms,)
        return self.count(values, now_ms) + 1, self.push(values, now_ms)

    def push(self, values: tuple[int, ...], now_ms: int, units: int = 1) -> tuple[int, ...]:
        """`units` is what the event weighs; a timestamp weighs 1."""
        if not self.grain_ms:
            kept = self._live(values, now_ms)
            return (*kept[max(0, len(kept) + 1 - self.threshold) :], now_ms)
        head, newest, *older = self._grains(values, now_ms)
        return (head, newest + units, *older)

    def wait_ms(self, values: tuple[int, ...], now_ms: int, units: int = 1) -> int:
        """How long until so many more stay within the threshold; zero if they do now, or never will."""
        over = self.count(values, now_ms) + units - self.threshold
        if over <= 0 or units > self.threshold:
            return 0
        if not self.grain_ms:
            return max(1, sorted(self._live(values, now_ms))[over - 1] + self.window_ms - now_ms)
        head, *counts = self._grains(values, now_ms)
        behind = len(counts)
        while over > 0 and behind:
            behind -= 1
            over -= counts[behind]
        return max(1, (head - behind + self._kept - 1) * self.grain_ms - now_ms)

    def events(self, values: tuple[int, ...], now_ms: int) -> list[tuple[int, int]]:
        """When and how much, oldest first; what is in a grain as late as it may have been, and not later than now."""
        if not self.grain_ms:
            return [(at_ms, 1) for at_ms in sorted(values)]
        if not values or self._is_void(values, now_ms):
            return []
        head, *counts = values
        ends = (min((head - behind + 1) * self.grain_ms - 1, now_ms) for behind in range(len(counts)))
        return [(end, units) for end, units in zip(ends, counts, strict=True) if units][::-1]

    def _live(self, stamps: tuple[int, ...], now_ms: int) -> tuple[int, ...]:
        """The timestamps that still lie within the window that ends now."""
        oldest = now_ms - self.window_ms
        newest = now_ms + CLOCK_SLACK_MS
        if not stamps or (stamps[0] > oldest and stamps[-1] <= newest):
            return stamps
        return tuple([at_ms for at_ms in stamps if oldest < at_ms <= newest])

    def _is_void(self, grains: tuple[int, ...], now_ms: int) -> bool:
        """The newest grain lies further ahead than the clocks of several processes explain."""
        return grains[0] > now_ms // self.grain_ms + CLOCK_SLACK_MS // self.grain_ms + 1

    def _grains(self, values: tuple[int, ...], now_ms: int) -> tuple[int, ...]:
        """The number of the newest grain, then the counts of it and of those before it that still count."""
        now = now_ms // self.grain_ms
        if not values or self._is_void(values, now_ms):
            return (now, 0)
        behind = now - values[0]
        if behind <= 0:
            return values
        if behind >= self._kept - 1:
            return (now, 0)
        return (now, *(0,) * behind, *values[1:])[: self._kept]
