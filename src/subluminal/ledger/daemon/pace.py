"""When the daemon looks next. Time is passed in.

After work, again at once; then, while a shim is connected or a journal has a living writer, after 50 ms, doubling to a
second; else after five seconds. A doorbell (`{"control": "wake"}`), a new connection or a signal ends any wait. With
nothing to do for `idle_exit_s` it is time to end; the next shim starts a new daemon.
"""

from __future__ import annotations

# After a small batch, this long until the next: under a steady stream batches grow, and each commit costs the same.
GATHER_S = 0.02
SMALL_BATCH_BYTES = 512 << 10
LOOK_FIRST_S = 0.05
LOOK_LAST_S = 1.0
LOOK_IDLE_S = 5.0
RETRY_S = 0.5


class Pace:
    __slots__ = ("_active_at", "_idle_exit_s", "_look_s", "_not_before", "rung")

    def __init__(self, idle_exit_s: float, now: float) -> None:
        self.rung = True  # there may be something: look at once
        self._idle_exit_s = idle_exit_s
        self._look_s = LOOK_FIRST_S
        self._not_before = 0.0  # no batch before this moment
        self._active_at = now

    def may_work(self, now: float) -> bool:
        return now >= self._not_before

    def worked(self, size: int, now: float) -> None:
        """A batch with that many bytes of journals was committed; there may be more."""
        self._active_at = now
        if 0 < size < SMALL_BATCH_BYTES:
            self._not_before = now + GATHER_S
        self._look_s = LOOK_FIRST_S
        self.rung = True

    def found_nothing(self) -> None:
        self._look_s = LOOK_FIRST_S if self.rung else min(self._look_s * 2, LOOK_LAST_S)
        self.rung = False

    def failed(self, now: float) -> None:
        self._not_before = now + RETRY_S

    def wait_s(self, now: float, *, watched: bool) -> float:
        """`watched`: somebody is connected, or a journal is there."""
        if now < self._not_before:
            return self._not_before - now
        if self.rung:
            return 0.0
        return self._look_s if watched else min(LOOK_IDLE_S, max(0.05, self._idle_exit_s))

    def is_over(self, now: float, *, watched: bool) -> bool:
        if watched:
            self._active_at = max(self._active_at, now - self._idle_exit_s / 2)
            return False
        return now - self._active_at > self._idle_exit_s
