"""One turn of an exchange: what was put out leaves in the order that is the promise of the record.

    forward            what goes on is on its way to the server first
    announce           start and decision events of what was judged
    hand over          to the sink: from here on the decisions survive every process
    answer             only now does anybody hear of them
    settle, hand over  the ends of calls

With `audit_before` the decisions are handed over before anything is forwarded: a write-ahead record.
"""

from __future__ import annotations

from time import monotonic_ns

from subluminal.mcp.calls import Answer, Ended, Forward, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.mcp.calls import Calls
    from subluminal.producer.producer import Producer


class Turn:
    """`forward` and `answer` take messages in order, without framing. `clock` gives monotonic nanoseconds."""

    __slots__ = ("_answer", "_audit_before", "_calls", "_clock", "_forward", "_producer")

    def __init__(
        self,
        producer: Producer,
        calls: Calls,
        forward: Callable[[list[Any]], None],
        answer: Callable[[list[Any]], None],
        *,
        audit_before: bool = False,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._producer = producer
        self._calls = calls
        self._forward = forward
        self._answer = answer
        self._audit_before = audit_before
        self._clock = clock

    def carry_out(self, wall_ms: int, read_ns: int) -> None:
        """`read_ns`: when what led to this was read, for our own share of the time."""
        calls, producer = self._calls, self._producer
        outputs = calls.outputs
        if not outputs:
            return
        calls.outputs = []
        if self._audit_before:
            self._announce(outputs, wall_ms, read_ns, read_ns)
            producer.hand_over()
        onward = [output.data for output in outputs if type(output) is Forward and output.data is not None]
        if onward:
            self._forward(onward)
        self._announce(outputs, wall_ms, read_ns, self._clock())
        if producer.gate.outbox:
            producer.hand_over()
        answers = [output.data for output in outputs if type(output) is Answer]
        if answers:
            self._answer(answers)
        self._settle(outputs, wall_ms, read_ns)

    def _announce(self, outputs: list[Any], wall_ms: int, read_ns: int, sent_ns: int) -> None:
        gate = self._producer.gate
        for output in outputs:
            if type(output) is Forward:
                entry = output.entry
                if entry is not None:
                    entry.overhead_ns += sent_ns - read_ns
                    entry.sent_ns = sent_ns
                    assert entry.record is not None  # an entry that is forwarded is a call
                    gate.announce(entry.record, wall_ms)
            elif type(output) is Refused:
                record = output.record
                gate.announce(record, wall_ms)
                gate.settle_refused(record, wall_ms, record.started_mono_ms, output.bytes_out)

    def _settle(self, outputs: list[Any], wall_ms: int, read_ns: int) -> None:
        producer = self._producer
        for output in outputs:
            if type(output) is Ended:
                entry = output.entry
                assert entry.record is not None  # only calls end
                now_ns = self._clock()
                producer.gate.settle(
                    entry.record,
                    output.status,
                    wall_ms,
                    now_ns // 1_000_000,
                    latency_ms=entry.spent_ms + max(0, read_ns - entry.sent_ns) // 1_000_000,
                    bytes_out=output.size,
                    result_raw=output.result,
                    result_stream_hash=output.stream_hash,
                    error=output.error,
                    overhead_us=(entry.overhead_ns + now_ns - read_ns) // 1000,
                )
        producer.hand_over()
