"""`shim_health`, the heartbeat of a shim (§1.2): once a minute while calls come, and slower while none do.

An idle beat tells a reader that the shim is there and has nothing to say; without it, silence is the same as death. It
costs one line of the journal every `health_ms` (five minutes, `[shim] health_ms` or SUB_HEALTH_MS; 0: never). It rings
no doorbell, so nothing is started or woken for it, and time asleep does not count. After IDLE_AT_MOST_NS without a call
the beat stops, until the next call: nobody watches a session that was forgotten over night.
"""

from __future__ import annotations

from time import time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.producer.producer import Producer

BUSY_NS = 60_000_000_000
IDLE_AT_MOST_NS = 8 * 3600 * 1_000_000_000


class Heartbeat:
    """The loop calls `beat` when `next_ns` has come: one comparison for each round."""

    __slots__ = ("_calls", "_idle_ns", "_noted_ns", "_opened_ns", "_producer", "_used_ns", "next_ns")

    def __init__(self, producer: Producer, health_ms: int, now_ns: int) -> None:
        self._producer = producer
        self._idle_ns = health_ms * 1_000_000
        self._opened_ns = self._used_ns = self._noted_ns = now_ns
        self._calls = 0
        self.next_ns = now_ns + self._every_ns()

    def _every_ns(self) -> int:
        return min(self._idle_ns, BUSY_NS) or BUSY_NS

    def beat(self, now_ns: int, calls_pending: int) -> None:
        self.next_ns = now_ns + self._every_ns()
        producer = self._producer
        producer.keep_state_fresh()
        calls = producer.gate.counts.total
        if calls != self._calls:
            self._calls = calls
            self._used_ns = now_ns
            self._note(now_ns, calls_pending)
            producer.hand_over()
        elif self._is_due(now_ns):
            self._note(now_ns, calls_pending)
            producer.hand_over(ring=False)

    def _is_due(self, now_ns: int) -> bool:
        """Not while the sink is stuck: what it holds must not grow for nothing."""
        if not self._idle_ns or self._producer.sink.held_bytes:
            return False
        return now_ns - self._noted_ns >= self._idle_ns and now_ns - self._used_ns < IDLE_AT_MOST_NS

    def _note(self, now_ns: int, calls_pending: int) -> None:
        self._noted_ns = now_ns
        sink = self._producer.sink
        health = {
            "uptime_ms": (now_ns - self._opened_ns) // 1_000_000,
            "calls_total": self._calls,
            "calls_pending": calls_pending,
            "events_held": len(sink.held),
            "previews_shed": sink.previews_shed,
        }
        self._producer.gate.health_note(health, time_ns() // 1_000_000)
