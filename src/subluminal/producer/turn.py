"""One turn of an exchange: what was put out leaves in the order that is the promise of the record.

    forward            what goes on is on its way to the server first
    announce           start and decision events of what was judged
    hand over          to the sink: from here on the decisions survive every process
    answer             only now does anybody hear of them
    settle, hand over  the ends of calls
    look               at what a server says of itself, which its client has by now

With `audit_before` the decisions are handed over before anything is forwarded: a write-ahead record. With `ends_wait`
the ends stay with the gate: the door hands them over with what comes next, or after a moment of its own
(`ENDS_WAIT_MS`), and before it ends. Nobody was told that they are on record, and whoever is killed in that moment
leaves what one leaves who is killed just before the end of a call: a decision, and an end that the ledger misses.

With `later`, for doors on a loop (`producer.later`), the ends wait as well, and the decisions of one turn of the loop
are handed over together: still before anybody hears of one.
"""

from __future__ import annotations

from time import monotonic_ns

from subluminal.mcp.calls import Answer, Ended, Forward, Said

# An agent that calls again at once does so in less; a reader of the record does not notice it.
ENDS_WAIT_MS = 1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from subluminal.producer.producer import Producer

    class Outputs(Protocol):
        """Where a door gathers what must happen next: `mcp.calls.Calls`, or a door's own."""

        outputs: list[Any]

    class Later(Protocol):
        """Sees to it that what waits is handed over: decisions before anybody is answered."""

        def decided(self) -> None: ...
        def before_answer(self) -> None: ...
        def ended(self) -> None: ...


class Turn:
    """`forward` and `answer` take messages in order, without framing. `clock` gives monotonic nanoseconds."""

    __slots__ = ("_answer", "_audit_before", "_calls", "_clock", "_ends_wait", "_forward", "_later", "_producer")

    def __init__(
        self,
        producer: Producer,
        calls: Outputs,
        forward: Callable[[list[Any]], None],
        answer: Callable[[list[Any]], None],
        *,
        audit_before: bool = False,
        ends_wait: bool = False,
        later: Later | None = None,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._producer = producer
        self._calls = calls
        self._forward = forward
        self._answer = answer
        self._audit_before = audit_before
        self._ends_wait = ends_wait
        self._later = later
        self._clock = clock

    def carry_out(self, wall_ms: int, read_ns: int) -> None:
        """`read_ns`: when what led to this was read, for our own share of the time.

        Long on purpose: the order is read here from top to bottom, and on every call each function costs half a
        microsecond.
        """
        calls = self._calls
        outputs: list[Any] = calls.outputs
        if not outputs:
            return
        calls.outputs = []
        # Lists where there is something to list: most turns have one output or two.
        onward: Any
        judged: Any  # Forward with an entry, or Refused
        answers: Any
        ended: Any
        said: Any
        onward = judged = answers = ended = said = ()
        first = outputs[0]
        kind = type(first)
        if kind is Forward and len(outputs) == 1 and first.data is not None and first.entry is not None:
            onward, judged = [first.data], outputs  # a call, and nothing beside it
        elif kind is Answer and len(outputs) == 2 and type(outputs[1]) is Ended:
            answers, ended = [first.data], (outputs[1],)  # its reply
        else:
            onward, judged, answers, ended, said = _sorted(outputs)
        producer = self._producer
        gate, later = producer.gate, self._later
        if judged and self._audit_before:
            self._announce(judged, wall_ms)
            producer.hand_over()
        if onward:
            self._forward(onward)
        if judged:
            sent_ns = self._clock()
            for output in judged:
                if type(output) is Forward:
                    entry: Any = output.entry
                    entry.sent_ns = sent_ns
                    gate.announce(entry.record, wall_ms)
                else:
                    self._announce_refused(output, wall_ms)
            if later is None:
                producer.hand_over()
            else:
                later.decided()
        if answers:
            if later is not None:
                later.before_answer()
            self._answer(answers)
        if ended:
            for output in ended:
                entry = output.entry
                now_ns = self._clock()
                waited_ns = read_ns - entry.sent_ns
                gate.settle(
                    entry.record,
                    output.status,
                    wall_ms,
                    now_ns // 1_000_000,
                    entry.spent_ms + (waited_ns // 1_000_000 if waited_ns >= 1_000_000 else 0),
                    output.size,
                    output.result,
                    output.stream_hash,
                    output.error,
                    (entry.sent_ns - entry.read_ns + now_ns - read_ns) // 1000,
                )
            if later is not None:
                later.ended()
            elif not self._ends_wait:
                producer.hand_over()
        if said:
            for output in said:
                output.tools.heard(output.method, output.result, learned=True)
            producer.hand_over()

    def _announce(self, judged: list[Any], wall_ms: int) -> None:
        """Start and decision events, and the ends of what was refused."""
        for output in judged:
            if type(output) is Forward:
                self._producer.gate.announce(output.entry.record, wall_ms)  # type: ignore[union-attr, arg-type]
            else:
                self._announce_refused(output, wall_ms)

    def _announce_refused(self, refused: Any, wall_ms: int) -> None:
        gate, record = self._producer.gate, refused.record
        gate.announce(record, wall_ms)
        gate.settle_refused(record, wall_ms, record.started_mono_ms, refused.bytes_out)


def _sorted(outputs: list[Any]) -> tuple[Any, ...]:
    """By who is told: the server, the record, the client, the record of ends, whoever looks at what a server says."""
    onward, judged, answers, ended, said = [], [], [], [], []
    for output in outputs:
        kind = type(output)
        if kind is Forward:
            if output.data is not None:
                onward.append(output.data)
            if output.entry is not None:
                judged.append(output)
        elif kind is Answer:
            answers.append(output.data)
        elif kind is Ended:
            ended.append(output)
        elif kind is Said:
            said.append(output)
        else:
            judged.append(output)
    return onward, judged, answers, ended, said
