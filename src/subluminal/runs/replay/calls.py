"""The calls of a door in a replay: each is held against the record, and judged at the time that stands there.

Windows, rates and breakers see the times of the record, so that they fill up as they did, however fast the agent asks
again. What a call is, is decided before it is judged: whether it is let through this time is what we want to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from subluminal.mcp.calls import Calls
from subluminal.mcp.message.reading import id_key
from subluminal.runs.replay.picking import Picked, Picker
from subluminal.runs.replay.tape import Taped

if TYPE_CHECKING:
    from subluminal.core.gate.gate import Gate
    from subluminal.core.gate.record import CallRecord
    from subluminal.mcp.legs import Open
    from subluminal.mcp.message.reading import Reading, Reply
    from subluminal.surface.items import Item

# So that a window which reaches back before the first call does not reach below zero.
_BEFORE_MS = 1 << 40


class RecordedTime:
    """The time of the record: it only goes forward, and is the same in every process of a replay."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = self._now_ms = start_ms

    def reach(self, at_ms: int | None) -> None:
        self._now_ms = max(self._now_ms, at_ms or 0)

    @property
    def wall_ms(self) -> int:
        return self._now_ms

    def monotonic_ns(self) -> int:
        return (_BEFORE_MS + self._now_ms - self._start_ms) * 1_000_000


class ReplayedCalls(Calls):
    """`tell` hears of each call what of the record it is, and what was decided."""

    def __init__(
        self,
        *given: Any,
        picker: Picker,
        picks: dict[bytes, Picked],
        time: RecordedTime,
        tell: Callable[[str, Picked, CallRecord], None],
        **more: Any,
    ) -> None:
        super().__init__(*given, **more)
        self._picker = picker
        self._picks = picks
        self._time = time
        self._tell = tell
        self._under_way: dict[str, Taped] = {}

    def judge(
        self,
        reading: Reading,
        bytes_in: int,
        wall_ms: int,
        now_ns: int,
        args_stream_hash: str | None = None,
        too_large: str | None = None,
    ) -> tuple[Open, CallRecord]:
        picked = self._picker.pick(reading.tool_name, reading.arguments)
        call = picked.call
        if call is not None:
            self._time.reach(call.at_ms)
        wall_ms, now_ns = self._time.wall_ms, self._time.monotonic_ns()
        entry, record = super().judge(reading, bytes_in, wall_ms, now_ns, args_stream_hash, too_large)
        if reading.id_raw is not None:
            self._picks[id_key(reading.id_raw)] = picked
        if call is not None:
            entry.spent_ms = call.latency_ms or 0
            self._under_way[record.call_id] = call
        self._tell(reading.tool_name, picked, record)
        return entry, record

    def answered(self, entry: Open, reply: Reply, size: int, now_ns: int) -> None:
        call = None if entry.record is None else self._under_way.pop(entry.record.call_id, None)
        if call is not None:
            self._time.reach(call.ended_ms)
        super().answered(entry, reply, size, now_ns)


class RecordedSurface:
    """How the tools stood when the run was recorded: here everything would be new."""

    def __init__(self, gate: Gate, server_name: str, calls: list[Taped]) -> None:
        self._gate = gate
        self._server_name = server_name
        self._classes: dict[str, frozenset[str]] = {call.tool_name: frozenset(call.classes) for call in calls}

    @property
    def edits(self) -> bool:
        return self._gate.listing.edits

    def heard(self, method: str, result: bytes) -> Mapping[str, frozenset[str]]:
        return self._classes

    def scanned(self, items: list[Item]) -> Mapping[str, frozenset[str]]:
        return self._classes

    def hides(self, tool_name: str, risk_classes: frozenset[str] | None) -> bool:
        return self._gate.hides(self._server_name, tool_name, risk_classes)

    def why_refused(self, tool_name: str) -> str | None:
        return None
