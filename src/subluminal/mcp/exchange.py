"""One client and one server: who asked what, matched by id, in both directions and in batches.

Readings of the client's messages and the server's messages go in; what must happen next comes out in `calls.outputs`.
Messages pass byte for byte; framing is the door's business.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import ALLOW
from subluminal.mcp.calls import UNANSWERABLE, Answer, Calls, Forward, Refused
from subluminal.mcp.faults import fault
from subluminal.mcp.legs import Batch, Open
from subluminal.mcp.message.reading import AMBIGUOUS, BATCH, CALL, CANCEL, PASS, REQUEST, Reply, id_key, read_value
from subluminal.mcp.message.wire import read_reply, read_reply_batch
from subluminal.mcp.refusal import server_gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.gate.record import CallRecord
    from subluminal.mcp.message.reading import Reading


_JUDGED = (CALL, AMBIGUOUS)


class Exchange:
    def __init__(self, calls: Calls, *, timeout_ms: int = 0) -> None:
        self.calls = calls
        self.timeout_ms = timeout_ms
        self._pending: dict[bytes, list[Open]] = {}

    # -- client to server -----------------------------------------------------------------------------------------

    def client_message(self, reading: Reading, message: bytes, wall_ms: int, now_ns: int) -> None:
        """`message` is what was read, byte for byte; it goes on as it is unless it is refused."""
        kind = reading.kind
        if kind in _JUDGED:
            self.client_call(reading, message, len(message), wall_ms, now_ns)
            return
        if kind == BATCH:
            self._batch(reading, message, wall_ms, now_ns)
            return
        if kind != PASS:
            self.note(reading, now_ns)
        self.calls.outputs.append(Forward(message))

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
        """A tool call, or what may be one. False: it is refused and answered."""
        calls = self.calls
        entry, record = calls.judge(reading, size, wall_ms, now_ns, args_stream_hash, too_large)
        if record.decision.action != ALLOW:
            self._refuse(record, reading, batch)
            return False
        calls.outputs.append(Forward(data, entry))
        if entry.id_raw:
            if batch is not None:
                batch.add(entry)
            id_raw = entry.id_raw
            self._pending.setdefault(id_raw if id_raw.isdigit() else id_key(id_raw), []).append(entry)
        else:  # a notification: no reply will ever say how it went
            calls.end(entry, "CANCELLED", error=fault("unknown", UNANSWERABLE))
        return True

    def _refuse(self, record: CallRecord, reading: Reading, batch: Batch | None) -> None:
        """Recorded, and answered if it has an id; in a batch the answer waits for the others."""
        reply = b""
        if reading.id_raw is not None:
            reply = self.calls.refusal(record, reading.era_2026).reply(reading.id_raw)
        self.calls.outputs.append(Refused(record, len(reply)))
        if reply and batch is not None:
            batch.refusals.append(reply)
        elif reply:
            self.calls.outputs.append(Answer(reply))

    def note(self, reading: Reading, now_ns: int) -> Open | None:
        """Remember what is not a tool call but will be answered; end what the client cancels."""
        if reading.id_raw is None:
            return None
        if reading.kind == REQUEST:
            entry = Open(reading.id_raw, None, now_ns, method=reading.method)
            self.calls.legs.note_task_request(entry, reading)
            self._pending.setdefault(id_key(entry.id_raw), []).append(entry)
            return entry
        if reading.kind == CANCEL:
            entries = self._pending.get(id_key(reading.id_raw))
            if entries:
                entry = entries[-1]
                self._give_up(entry)
                if entry.record is not None:
                    self.calls.cancelled(entry)
        return None

    def _batch(self, reading: Reading, message: bytes, wall_ms: int, now_ns: int) -> None:
        """Every element is judged on its own; the allowed ones go on as a batch."""
        calls, batch = self.calls, Batch()
        passed: list[bytes] = []
        for element in reading.elements:
            if element.kind in _JUDGED:
                if not self.client_call(element, None, len(element.raw), wall_ms, now_ns, batch=batch):
                    continue
            elif element.kind != PASS:
                entry = self.note(element, now_ns)
                if entry is not None:
                    batch.add(entry)
            passed.append(element.raw)
        if passed:
            whole = message if len(passed) == len(reading.elements) else b"[" + b",".join(passed) + b"]"
            calls.outputs.append(Forward(whole))
        if batch.refusals and not batch.waiting:
            calls.outputs.append(Answer(batch.answer()))  # nothing of it is under way: this is the whole answer

    # -- server to client -----------------------------------------------------------------------------------------

    def server_message(self, message: bytes, now_ns: int) -> None:
        outputs = self.calls.outputs
        if message[:1] == b"[":
            self._server_batch(message, now_ns)
            return
        outputs.append(Answer(message))
        reply = read_reply(message) if self._pending else None
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
        else:
            self._answered(entry, reply, len(message), now_ns)

    def _server_batch(self, message: bytes, now_ns: int) -> None:
        replies = read_reply_batch(message)
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
            body = message.rstrip(b" \t\r")[:-1].rstrip(b" \t")
            message = body + b"," + b",".join(merged) + b"]"
        self.calls.outputs.append(Answer(message))

    def _answered(self, entry: Open, reply: Reply, size: int, now_ns: int) -> None:
        if entry.record is not None:
            self.calls.answered(entry, reply, size, now_ns)
        elif reply.result is not None:
            if entry.method == "tools/list":
                self.calls.tools.learn(read_value(reply.result))
            elif entry.task_id:
                self.calls.legs.task_answer(entry, reply.result, size)

    def server_scanned(self, values: dict[str, bytes], size: int, stream_hash: str) -> None:
        """A message too large to hold has passed to the client; `values` are the small members that a scan found."""
        if "id" not in values or "method" in values:
            return
        entry = self.take(values["id"])
        if entry is not None and entry.record is not None:
            failed = "error" in values or values.get("result.isError") == b"true"
            self.calls.answered_unread(entry, failed, size, stream_hash)

    def take(self, id_raw: bytes) -> Open | None:
        """The oldest open request with this id: an id used again while in flight is answered in order."""
        key = id_raw if id_raw.isdigit() else id_key(id_raw)
        entries = self._pending.get(key)
        if not entries:
            return None
        entry = entries.pop(0)
        if not entries:
            del self._pending[key]
        if entry.batch is not None:
            entry.batch.waiting -= 1
        return entry

    # -- the end --------------------------------------------------------------------------------------------------

    @property
    def calls_open(self) -> int:
        return sum(entry.record is not None for entry in self._entries()) + len(self.calls.legs)

    def expire(self, now_ns: int) -> None:
        """Record a call as timed out once its configured time is over. A late reply still passes."""
        limit = now_ns - self.timeout_ms * 1_000_000
        for entry in self._entries() if self.timeout_ms else ():
            if entry.record is not None and entry.sent_ns < limit:
                self._give_up(entry)
                error = fault("timeout", f"no reply within {self.timeout_ms} ms")
                self.calls.end(entry, "TIMEOUT", error=error)

    def abandon(self, status: str, error_class: str, message: str) -> None:
        """Nothing more will come: end every open call."""
        for entry in self._entries():
            if entry.record is not None:
                self.calls.end(entry, status, error=fault(error_class, message))
        self._pending.clear()
        self.calls.legs.abandon()

    def unanswered(self, message: str) -> list[bytes]:
        """Error replies for every open request, when the server has gone."""
        replies = []
        for entry in self._entries():
            if entry.batch is not None and entry.batch.refusals:
                replies.append(entry.batch.answer())
            replies.append(server_gone(entry.id_raw, message))
        return replies

    # -- small things ---------------------------------------------------------------------------------------------

    def _entries(self) -> list[Open]:
        return [entry for entries in self._pending.values() for entry in entries]

    def _remove(self, entry: Open) -> None:
        key = id_key(entry.id_raw)
        entries = self._pending[key]
        entries.remove(entry)
        if not entries:
            del self._pending[key]
        if entry.batch is not None:
            entry.batch.waiting -= 1

    def _give_up(self, entry: Open) -> None:
        """No reply is awaited any more: refusals of its batch must not wait for it either."""
        self._remove(entry)
        if entry.batch is not None and entry.batch.refusals and not entry.batch.waiting:
            self.calls.outputs.append(Answer(entry.batch.answer()))
