"""Tool calls from their judgement to their end, on any transport: what is asked of the gate, and what a reply means.

What must happen next is put out in `outputs`, each addressed: `Forward` to the server, `Answer` to the client,
`Refused` and `Ended` to the record. They leave in the order that `producer.turn` keeps, the promise of the record.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import TOOL_QUARANTINED
from subluminal.mcp.faults import fault, tool_error, upstream_error
from subluminal.mcp.legs import Legs, Open, task_of
from subluminal.mcp.message.reading import call_context, read_value
from subluminal.mcp.message.wire import is_plain_result
from subluminal.mcp.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.gate.gate import Gate
    from subluminal.core.gate.record import CallRecord
    from subluminal.mcp.message.reading import Reading, Reply
    from subluminal.mcp.tools import ToolNotes

UNANSWERABLE = "sent without an id: its outcome is not known"
TASK_NOT_FOLLOWED = "it goes on as a task, not followed here"


class Forward(Struct, eq=False, gc=False):
    """A message for the server. `entry` is the tool call that it makes, if it makes one."""

    data: Any  # the message's bytes, or whatever the door holds them in
    entry: Open | None = None


class Answer(Struct, eq=False, gc=False):
    """A message for the client."""

    data: bytes


class Refused(Struct, eq=False, gc=False):
    """A call that goes no further. `bytes_out` is the size of what its caller is told."""

    record: CallRecord
    bytes_out: int


class Said(Struct, eq=False, gc=False):
    """What a server says of itself: a result of one of `tools.SAYINGS`, to be looked at when it has been passed on."""

    tools: ToolNotes
    method: str
    result: bytes


class Ended(Struct, eq=False, gc=False):
    """A call whose outcome is known. `result` None: too large to hold; `stream_hash` stands instead (§1.10)."""

    entry: Open
    status: str
    size: int = 0
    result: bytes | None = b""
    stream_hash: str | None = None
    error: dict[str, Any] | None = None


class Calls:
    def __init__(
        self,
        gate: Gate,
        server_name: str,
        transport: str,
        tools: ToolNotes,
        *,
        refusal_style: str = "error",
        follows_tasks: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        self.gate = gate
        self.server_name = server_name
        self.transport = transport
        self.refusal_style = refusal_style
        self.follows_tasks = follows_tasks
        self.timeout_ms = timeout_ms
        self.outputs: list[Forward | Answer | Refused | Ended | Said] = []
        self.tools = tools
        self.legs = Legs(self.end)

    def judge(
        self,
        reading: Reading,
        bytes_in: int,
        wall_ms: int,
        now_ns: int,
        args_stream_hash: str | None = None,
        too_large: str | None = None,
    ) -> tuple[Open, CallRecord]:
        """Ask the gate about a call; its record has the decision."""
        risk_classes = self.tools.risk_classes.get(reading.tool_name)
        if risk_classes is None and self.tools.to_read:
            risk_classes = self.tools.recalled(reading.tool_name)
        # All by their place: names would be compared with names for every call.
        call = ToolCall(
            self.server_name,
            reading.tool_name,
            reading.arguments,
            bytes_in,
            self.transport,
            None if reading.meta is None else call_context(reading.meta),
            args_stream_hash,
            reading.ambiguous,
            None,
            risk_classes,
            too_large,
            1,
            reading.args_raw_hash,
            self.timeout_ms,
        )
        id_raw = reading.id_raw or b""
        waiting = None
        if (reading.request_state is not None or reading.input_responses is not None) and reading.ambiguous is None:
            waiting = self.legs.continued(reading)
        elif self.legs.not_executed and reading.ambiguous is None:
            waiting = self.legs.came_again(reading)
        if waiting is None:
            record = self.gate.judge(call, wall_ms, now_ns // 1_000_000)
            entry = Open(id_raw, record, now_ns, now_ns)
        else:
            record = waiting.entry.record  # type: ignore[assignment]  # only calls wait for input
            self.gate.judge_again(record, call, wall_ms, now_ns // 1_000_000)
            record.waited_ms += (now_ns - waiting.since_ns) // 1_000_000
            entry = Open(id_raw, record, now_ns, now_ns, spent_ms=waiting.entry.spent_ms)
        if reading.meta is not None and reading.era_2026:
            entry.tool_name = reading.tool_name
        return entry, record

    def refusal(self, record: CallRecord, era_2026: bool = False) -> Refusal:
        """What the caller of a refused call is told, once that is on record."""
        if record.decision.reason_code == TOOL_QUARANTINED and self.tools.surface is not None:
            why = self.tools.surface.why_refused(record.call.tool_name)
            if why is not None:
                record.decision.summary = why
                if record.decision.hint is not None:
                    record.decision.hint.hint_text = why
        return Refusal(*self.gate.refusal(record), self.refusal_style == "result", era_2026)

    def answered(self, entry: Open, reply: Reply, size: int, now_ns: int) -> None:
        """The reply to a call has come."""
        if reply.error is not None:
            self.end(entry, "ERROR", size, reply.error, error=upstream_error(read_value(reply.error)))
            return
        result = reply.result or b""
        if reply.ends_well or is_plain_result(result):
            self.outputs.append(Ended(entry, "OK", size, result))
        else:
            self.returned(entry, read_value(result), result, size, now_ns)

    def returned(self, entry: Open, value: Any, result: bytes, size: int, now_ns: int) -> None:
        """`value` is the result where it may be more than an end that went well."""
        if isinstance(value, dict):
            if self.legs.asks_for_input(entry, value, now_ns) or self._became_task(entry, value):
                return
            if value.get("isError") is True:
                self.end(entry, "ERROR", size, result, error=tool_error(value))
                return
        self.outputs.append(Ended(entry, "OK", size, result))

    def _became_task(self, entry: Open, value: dict[str, Any]) -> bool:
        if self.follows_tasks:
            return self.legs.became_task(entry, value)
        if task_of(value) is None:
            return False
        self.end(entry, "CANCELLED", error=fault("unknown", TASK_NOT_FOLLOWED))
        return True

    def answered_unread(self, entry: Open, failed: bool, size: int, stream_hash: str) -> None:
        """A reply too large to hold: only its size, its hash and whether it is an error."""
        error = fault("upstream_error", "the server answered with an error too large to read") if failed else None
        self.end(entry, "ERROR" if failed else "OK", size, None, stream_hash, error)

    def cancelled(self, entry: Open) -> None:
        self.end(entry, "CANCELLED", error=fault("unknown", "cancelled by the client"))

    def end(
        self,
        entry: Open,
        status: str,
        size: int = 0,
        result: bytes | None = b"",
        stream_hash: str | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        self.outputs.append(Ended(entry, status, size, result, stream_hash, error))
