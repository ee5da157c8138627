"""One client and one server: who asked what, matched by id, in both directions and in batches.

Readings of the client's messages and the server's messages go in; what must happen next comes out in `calls.outputs`.
Messages pass byte for byte; framing is the door's business.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import ALLOW
from subluminal.mcp.calls import UNANSWERABLE, Answer, Calls, Forward, Refused, Said
from subluminal.mcp.faults import fault
from subluminal.mcp.given_up import GivenUp
from subluminal.mcp.legs import Batch, Open
from subluminal.mcp.message.reading import (
    AMBIGUOUS,
    BATCH,
    CALL,
    CANCEL,
    PASS,
    REQUEST,
    TOOLS_LIST,
    Reply,
    id_key,
    no_tool,
    read_value,
)
from subluminal.mcp.message.wire import read_reply, read_reply_batch
from subluminal.mcp.refusal import server_gone
from subluminal.mcp.tools import SAYINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.gate.record import CallRecord
    from subluminal.mcp.message.reading import Reading
    from subluminal.mcp.message.scan import MessageScan


IN_FLIGHT = "an id that is in flight"
MIXED_UP = "its id was used again while it was in flight: no reply can be attributed to it"
_JUDGED = (CALL, AMBIGUOUS)


class Exchange:
    """An id is in flight from its request to its reply, and one request has it at a time.

    A second request with it is ambiguous: its reply could be taken for the first one's. Where nothing is refused it
    goes on, and then no reply with this id says anything of either (`_mix_up`).
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.timeout_ms = calls.timeout_ms or 0
        self._pending: dict[bytes, Open] = {}
        self._given_up = GivenUp()

    # -- client to server -----------------------------------------------------------------------------------------

    def client_message(self, reading: Reading, message: bytes, wall_ms: int, now_ns: int) -> None:
        """`message` is what was read, byte for byte; it goes on as it is unless it is refused."""
        if reading.kind == CALL:
            self.client_call(reading, message, len(message), wall_ms, now_ns)
        elif reading.kind == BATCH:
            self._batch(reading, message, wall_ms, now_ns)
        else:
            self.client_other(reading, message, len(message), wall_ms, now_ns)

    def client_other(
        self,
        reading: Reading,
        data: Any,
        size: int,
        wall_ms: int,
        now_ns: int,
        args_stream_hash: str | None = None,
        too_large: str | None = None,
        batch: Batch | None = None,
    ) -> bool:
        """Whatever it is. False: it is refused and answered."""
        if reading.kind not in _JUDGED:
            if too_large is None and not (reading.kind == REQUEST and self._is_taken(_key(reading.id_raw))):
                if reading.kind != PASS:
                    self._note(reading, now_ns, batch)
                self.calls.outputs.append(Forward(data))
                return True
            reading.tool_name = no_tool(reading)
            reading.arguments = None
        return self.client_call(reading, data, size, wall_ms, now_ns, args_stream_hash, too_large, batch)

    def client_call(
        self,
        reading: Reading,
        data: Any,
        size: int,
        wall_ms: int,
        now_ns: int,
        args_stream_hash: str | None = None,
        too_large: str | None = None,
        batch: Batch | None = None,
    ) -> bool:
        """A tool call, or what may be one, or what cannot pass unjudged. False: it is refused and answered."""
        calls = self.calls
        id_raw = reading.id_raw
        key, taken = b"", False
        if id_raw is not None:
            key = id_raw if id_raw.isdigit() else id_key(id_raw)
            taken = key in self._pending
            if self._given_up.due:
                taken = taken or key in self._given_up
            if taken and reading.ambiguous is None:
                reading.ambiguous = IN_FLIGHT
        entry, record = calls.judge(reading, size, wall_ms, now_ns, args_stream_hash, too_large)
        if record.decision.action != ALLOW:
            self._refuse(record, reading, batch)
            return False
        calls.outputs.append(Forward(data, entry))
        if not key:  # a notification: no reply will ever say how it went
            calls.end(entry, "CANCELLED", error=fault("unknown", UNANSWERABLE))
        elif taken:
            self._mix_up(key, entry)
        else:
            self._pending[key] = entry
            if batch is not None:
                batch.add(entry)
        return True

    def _refuse(self, record: CallRecord, reading: Reading, batch: Batch | None) -> None:
        """Recorded, and answered if it has an id; in a batch the answer waits for the others."""
        ids = reading.ids
        if ids is None:
            ids = [] if reading.id_raw is None else [reading.id_raw]
        replies: list[bytes] = []
        if ids:
            refusal = self.calls.refusal(record, reading.era_2026)
            replies = [refusal.reply(id_raw) for id_raw in ids]
            if reading.ids_in_array and batch is None:
                replies = [b"[" + b",".join(replies) + b"]"]
        self.calls.outputs.append(Refused(record, sum(map(len, replies))))
        if batch is not None:
            batch.refusals += replies
        else:
            self.calls.outputs += map(Answer, replies)

    def _note(self, reading: Reading, now_ns: int, batch: Batch | None) -> None:
        """Remember what is not a tool call but will be answered; end what the client cancels."""
        if reading.id_raw is None:
            return
        key = _key(reading.id_raw)
        if reading.kind == REQUEST:
            entry = self._pending[key] = Open(reading.id_raw, None, now_ns, now_ns, method=reading.method)
            self.calls.legs.note_task_request(entry, reading)
            if batch is not None:
                batch.add(entry)
        elif reading.kind == CANCEL and key in self._pending:
            entry = self._pending[key]
            self._give_up(entry)
            if entry.record is not None:
                self.calls.cancelled(entry)

    def _batch(self, reading: Reading, message: bytes, wall_ms: int, now_ns: int) -> None:
        """Every element is judged on its own; the allowed ones go on as a batch."""
        batch = Batch()
        passed = [
            element.raw
            for element in reading.elements
            if self.client_other(element, None, len(element.raw), wall_ms, now_ns, batch=batch)
        ]
        if passed:
            whole = message if len(passed) == len(reading.elements) else b"[" + b",".join(passed) + b"]"
            self.calls.outputs.append(Forward(whole))
        if batch.refusals and not batch.waiting:
            self.calls.outputs.append(Answer(batch.answer()))  # nothing of it is under way: this is the whole answer

    def _mix_up(self, key: bytes, entry: Open) -> None:
        """Two requests with one id are both on their way."""
        first = self._pending.get(key)
        if first is not None:
            self._give_up(first)
        self._given_up.add(key)
        for mixed in (first, entry):
            if mixed is not None and mixed.record is not None:
                self.calls.end(mixed, "CANCELLED", error=fault("unknown", MIXED_UP))

    # -- server to client -----------------------------------------------------------------------------------------

    def server_message(self, message: bytes, now_ns: int) -> None:
        outputs = self.calls.outputs
        if message[:1] == b"[":
            self._server_batch(message, now_ns)
            return
        answer = Answer(message)
        outputs.append(answer)
        reply = read_reply(message) if self._pending or self._given_up.due else None
        if reply is None:
            self.calls.legs.note_task_status(message)
            return
        entry = self.take(reply.id_raw)
        if entry is None:
            return
        batch = entry.batch
        if batch is not None and batch.refusals:
            # The server answers a batch one by one: so do we.
            outputs.append(Answer(batch.answer()))
        if entry.record is not None:
            self.calls.answered(entry, reply, len(message), now_ns)
        elif entry.method == TOOLS_LIST and reply.result is not None and self.calls.tools.edits:
            answer.data = self._edited(reply, message)
        else:
            self._answered(entry, reply, len(message), now_ns)

    def _edited(self, reply: Reply, message: bytes) -> bytes:
        """A list from which tools may have to be left out: it is judged before it is passed on."""
        from subluminal.mcp.lists import Misread, edited, withheld

        tools = self.calls.tools
        try:
            tools.heard(TOOLS_LIST, reply.result or b"")
            return edited(message, tools.hides)
        except Misread as fault:
            why = fault.why
        except Exception as fault:  # a fault of ours must not open a door
            why = f"it could not be looked at ({type(fault).__name__})"
        return withheld(reply.id_raw, self.calls.server_name, why)

    @property
    def may_edit(self) -> bool:
        """A list is awaited from which tools may have to be left out: a large message must wait until it is known."""
        return self.calls.tools.edits and any(entry.method == TOOLS_LIST for entry in self._pending.values())

    def holds_list(self, size: int) -> bool:
        """Whether a message of this size, too large to be held otherwise, may be a list to be edited."""
        if not self.may_edit:
            return False
        from subluminal.mcp.lists import MAX_EDITED_BYTES

        return size <= MAX_EDITED_BYTES

    def withheld(self, scan: MessageScan, fault: str | None = None) -> list[Answer]:
        """What is answered in place of a message that was too large to be edited; nothing: it may pass. `fault`: why it
        could not be kept. Before `server_scanned`."""
        from subluminal.mcp.lists import TOO_LARGE, withheld

        refused = []
        for values in scan.found.messages or [scan.values]:
            entry = self.waiting(values["id"]) if "id" in values and "method" not in values else None
            if entry is None:
                continue
            if entry.method == TOOLS_LIST:
                refused.append(Answer(withheld(entry.id_raw, self.calls.server_name, TOO_LARGE)))
            elif fault is not None:
                refused.append(Answer(server_gone(entry.id_raw, f"the server's answer is {fault}.")))
        return refused

    def _server_batch(self, message: bytes, now_ns: int) -> None:
        replies = read_reply_batch(message)
        if self.may_edit:
            message = self._edited_batch(message)
        merged: list[bytes] = []
        for reply in replies:
            entry = self.take(reply.id_raw) if reply is not None else None
            if entry is None or reply is None:
                continue
            if entry.batch is not None and entry.batch.refusals:
                merged.extend(entry.batch.refusals)
                entry.batch.refusals = []
            self._answered(entry, reply, len(message) // max(1, len(replies)), now_ns)
        if merged:
            body = message.rstrip(b" \t\r\n")[:-1].rstrip(b" \t\r\n")
            message = body + b"," + b",".join(merged) + b"]"
        self.calls.outputs.append(Answer(message))

    def _edited_batch(self, message: bytes) -> bytes:
        """Lists within it are looked at before any of it is passed on."""
        from subluminal.mcp.lists import Misread, edited_batch

        def lists(element: bytes) -> bool:
            reply = read_reply(element)
            entry = None if reply is None else self._pending.get(_key(reply.id_raw))
            if entry is None or reply is None or reply.result is None or entry.method != TOOLS_LIST:
                return False
            self.calls.tools.heard(TOOLS_LIST, reply.result)
            return True

        try:
            return edited_batch(message, self.calls.tools.hides, lists)
        except Misread:
            return b"[]"  # nobody can say what stands in it

    def _answered(self, entry: Open, reply: Reply, size: int, now_ns: int) -> None:
        if entry.record is not None:
            self.calls.answered(entry, reply, size, now_ns)
        elif reply.result is not None:
            if entry.method in SAYINGS:
                if entry.method == TOOLS_LIST:  # before the client has it: the next shim of the run knows it too
                    self.calls.tools.learn(read_value(reply.result))
                self.calls.outputs.append(Said(self.calls.tools, entry.method, reply.result))
            elif entry.task_id:
                self.calls.legs.task_answer(entry, reply.result, size)

    def server_scanned(self, scan: MessageScan, size: int, stream_hash: str) -> None:
        """A message too large to hold has passed to the client; a scan has found its small members."""
        messages = scan.found.messages or [scan.values]
        for values in messages:
            entry = self.take(values["id"]) if "id" in values and "method" not in values else None
            if entry is None:
                continue
            if entry.batch is not None and entry.batch.refusals:
                self.calls.outputs.append(Answer(entry.batch.answer()))
            failed = "error" in values or values.get("result.isError") == b"true"
            if entry.record is not None:
                self.calls.answered_unread(entry, failed, size // len(messages), stream_hash)
            elif entry.method == TOOLS_LIST:
                self.calls.tools.scanned(scan.found.tools, scan.found.gathered)

    def take(self, id_raw: bytes) -> Open | None:
        """The open request with this id. It is in flight no more."""
        key = id_raw if id_raw.isdigit() else id_key(id_raw)
        entry = self._pending.pop(key, None)
        if entry is None:
            self._given_up.answered(key)
        elif entry.batch is not None:
            entry.batch.waiting -= 1
        return entry

    # -- the end --------------------------------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """A breaker may have to be told how an open call ended, for which the run's state is needed."""
        records = (entry.record for entry in self._pending.values())
        return any(record is not None and record.verdict.watch is not None for record in records)

    def needs_state(self, message: bytes) -> bool:
        """`is_watched`, for a message that is at hand: one in which nothing can say of an error tells no breaker."""
        # Not `in`: for bytes it makes an error first, and drops it.
        may_have_failed = message.find(b"rror") >= 0 or message.find(b"\\u") >= 0
        gate = self.calls.gate
        for entry in self._pending.values():
            if entry.record is not None and gate.settling_needs_state(entry.record, may_have_failed):
                return True
        return False

    @property
    def is_waiting(self) -> bool:
        """For any reply at all."""
        return bool(self._pending)

    def waits_for(self, id_raw: bytes) -> bool:
        return _key(id_raw) in self._pending

    def waiting(self, id_raw: bytes) -> Open | None:
        """The open request with this id, which stays in flight."""
        return self._pending.get(_key(id_raw))

    def unanswerable(self, id_raw: bytes, status: str, error: dict[str, Any]) -> None:
        """No reply to this request can come any more."""
        entry = self.take(id_raw)
        if entry is not None and entry.record is not None:
            self.calls.end(entry, status, error=error)

    def give_up(self, id_raw: bytes, status: str, error: dict[str, Any]) -> None:
        """Nobody waits for its reply any more, which may come all the same."""
        entry = self.waiting(id_raw)
        if entry is not None:
            self._give_up(entry)
            if entry.record is not None:
                self.calls.end(entry, status, error=error)

    def not_executed(self, reading: Reading, now_ns: int) -> None:
        """The server says that it did nothing, and its client will ask again: the two are one call."""
        entry = None if reading.id_raw is None else self._pending.get(_key(reading.id_raw))
        if entry is not None and entry.record is not None and self.calls.legs.may_come_again(entry, reading, now_ns):
            self.take(entry.id_raw)

    @property
    def calls_under_way(self) -> int:
        return sum(entry.record is not None for entry in self._entries())

    @property
    def calls_open(self) -> int:
        return self.calls_under_way + len(self.calls.legs)

    def expire(self, now_ns: int) -> None:
        """Record a call as timed out once its configured time is over. A late reply still passes."""
        limit = now_ns - self.timeout_ms * 1_000_000
        due = []
        for entry in self._pending.values() if self.timeout_ms else ():
            if entry.sent_ns >= limit:
                break  # they stand in the order in which they were sent
            if entry.record is not None:
                due.append(entry)
        for entry in due:
            self._give_up(entry)
            error = fault("timeout", f"no reply within {self.timeout_ms} ms")
            self.calls.end(entry, "TIMEOUT", error=error)

    def abandon(self, status: str, error_class: str, message: str, *, with_legs: bool = True) -> None:
        """Nothing more will come: end every open call. `with_legs`: also those that wait for another leg, wherever it
        may come; not where other sessions go on."""
        for entry in self._entries():
            if entry.record is not None:
                self.calls.end(entry, status, error=fault(error_class, message))
        self._pending.clear()
        if with_legs:
            self.calls.legs.abandon()

    def unanswered(self, message: str) -> list[bytes]:
        """Error replies for every open request, when the server has gone."""
        replies = []
        for entry in self._entries():
            if entry.batch is not None and entry.batch.refusals:
                replies.append(entry.batch.answer())
            replies.append(server_gone(entry.id_raw, message))
        return replies

    # -- ids ------------------------------------------------------------------------------------------------------

    def _entries(self) -> list[Open]:
        return list(self._pending.values())

    def _is_taken(self, key: bytes) -> bool:
        return key in self._pending or key in self._given_up

    def _give_up(self, entry: Open) -> None:
        """No reply is awaited any more: refusals of its batch must not wait for it either."""
        key = _key(entry.id_raw)
        del self._pending[key]
        self._given_up.add(key)
        batch = entry.batch
        if batch is not None:
            batch.waiting -= 1
            if batch.refusals and not batch.waiting:
                self.calls.outputs.append(Answer(batch.answer()))


def _key(id_raw: bytes | None) -> bytes:
    return id_key(id_raw or b"")
