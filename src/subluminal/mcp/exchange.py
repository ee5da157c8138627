"""Who asked what: matches replies to calls, in both directions, without I/O.

Lines go in; bytes for the server and for the client come out in `to_server` and `to_client`; decisions and events are
the gate's. The shim drains them in this order, which is the promise of the record: forward, `announce()`, hand the
events to the sink, and only then write to the client.

    session.client_line(line, wall_ms, now_ns)      ...   session.server_line(line, wall_ms, now_ns)
    session.announce(wall_ms)                             session.settle(wall_ms, now_ns, out_ns)

Calls that take more than one reply are in `legs`.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import quote, to_json
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW
from subluminal.mcp.legs import (
    Batch,
    Legs,
    Open,
    call_key,
    fault,
    tool_error_text,
    upstream_error,
)
from subluminal.mcp.message import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.gate.gate import CallRecord, Gate
    from subluminal.mcp.message.wire import Reading


class Session(Legs):
    def __init__(self, gate: Gate, server_name: str, *, refusal_style: str = "error", timeout_ms: int = 0) -> None:
        super().__init__()
        self.gate = gate
        self.server_name = server_name
        self.refusal_style = refusal_style
        self.timeout_ms = timeout_ms
        self.to_server: list[bytes] = []
        self.to_client: list[bytes] = []
        self.pending: dict[bytes, list[Open]] = {}
        self.risk_classes: dict[str, frozenset[str]] = {}
        self._judged: list[CallRecord] = []
        self._sent: list[Open] = []
        self._refused: list[tuple[Reading, CallRecord, Batch | None]] = []

    # -- client to server -----------------------------------------------------------------------------------------

    def client_line(self, line: bytes, wall_ms: int, now_ns: int) -> None:
        """One line, newline excluded. Whatever is not refused goes on byte for byte."""
        reading = wire.read_client_line(line)
        kind = reading.kind
        if kind == wire.CALL or kind == wire.AMBIGUOUS:
            if self.judge(reading, len(line), wall_ms, now_ns, None):
                self.to_server.append(line + b"\n")
            return
        if kind == wire.BATCH:
            self._batch(line, reading, wall_ms, now_ns)
            return
        if kind != wire.PASS:
            self.note(reading, wall_ms, now_ns)
        self.to_server.append(line + b"\n")

    def note(self, reading: Reading, wall_ms: int, now_ns: int) -> None:
        """Remember what is not a tool call but will be answered, cancelled or asked for later."""
        if reading.kind == wire.REQUEST and reading.id_raw is not None:
            entry = Open(reading.id_raw, None, now_ns)
            raw = reading.raw
            if b"tools/list" in raw:
                entry.method = "tools/list"
            elif b"tasks/" in raw and self._tasks:
                self._note_task_request(entry, raw)
            self._add(entry)
        elif reading.kind == wire.CANCEL and reading.id_raw is not None:
            entries = self.pending.get(wire.id_key(reading.id_raw))
            if entries:
                entry = entries[-1]
                self._give_up(entry)
                if entry.record is not None:
                    self._end(entry, "CANCELLED", 0, b"", None, fault("unknown", "cancelled by the client"))

    def judge(
        self,
        reading: Reading,
        bytes_in: int,
        wall_ms: int,
        now_ns: int,
        batch: Batch | None,
        args_stream_hash: str | None = None,
        too_large: str | None = None,
    ) -> bool:
        """Ask the gate about a call; True if it may be forwarded."""
        gate = self.gate
        call = ToolCall(
            self.server_name,
            reading.tool_name,
            reading.arguments,
            bytes_in,
            "mcp_stdio",
            None if reading.meta is None else wire.call_context(reading.meta),
            args_stream_hash=args_stream_hash,
            ambiguous=reading.ambiguous,
            too_large=too_large,
        )
        if self.risk_classes:
            call.risk_classes = self.risk_classes.get(reading.tool_name, call.risk_classes)
        waiting = None
        if reading.request_state is not None or reading.input_responses is not None:
            waiting = self._continued(reading)
        if waiting is None:
            record = gate.judge(call, wall_ms, now_ns // 1_000_000)
        else:
            record = waiting.entry.record  # type: ignore[assignment]  # only calls wait for input
            gate.judge_again(record, call, wall_ms, now_ns // 1_000_000)
        self._judged.append(record)
        if record.decision.action != ALLOW:
            self._refused.append((reading, record, batch))
            return False
        if reading.id_raw is None:
            # Sent as a notification: no reply will ever say how it went.
            entry = Open(b"", record, now_ns)
            self._sent.append(entry)
            self._end(
                entry,
                "CANCELLED",
                0,
                b"",
                None,
                fault("unknown", "sent without an id: its outcome is not known"),
            )
            return True
        entry = Open(reading.id_raw, record, now_ns)
        if reading.meta is not None and reading.era_2026 and reading.arguments is not None:
            entry.call_key = call_key(reading)
        if waiting is not None:
            entry.spent_ms = waiting.entry.spent_ms
            record.waited_ms += (now_ns - waiting.since_ns) // 1_000_000
        self._sent.append(entry)
        self._add(entry)
        if batch is not None:
            entry.batch = batch
            batch.waiting += 1
        return True

    def _batch(self, line: bytes, reading: Reading, wall_ms: int, now_ns: int) -> None:
        """Every element is judged on its own; the allowed ones go on as a batch."""
        batch = Batch()
        passed: list[bytes] = []
        for element in reading.elements:
            if element.kind in (wire.CALL, wire.AMBIGUOUS):
                if self.judge(element, len(element.raw), wall_ms, now_ns, batch):
                    passed.append(element.raw)
                continue
            if element.kind != wire.PASS:
                self.note(element, wall_ms, now_ns)
                if element.kind == wire.REQUEST and element.id_raw is not None:
                    entry = self.pending[wire.id_key(element.id_raw)][-1]
                    entry.batch = batch
                    batch.waiting += 1
            passed.append(element.raw)
        if len(passed) == len(reading.elements):
            self.to_server.append(line + b"\n")
        elif passed:
            self.to_server.append(b"[" + b",".join(passed) + b"]\n")

    def announce(self, wall_ms: int) -> None:
        """Start and decision events of what was judged; then the answers to what was refused."""
        gate = self.gate
        for record in self._judged:
            gate.announce(record, wall_ms)
        self._judged.clear()
        if self._refused:
            refused, self._refused = self._refused, []
            done: set[int] = set()
            for reading, record, batch in refused:
                reply = self.refusal(reading, record)
                gate.settle_refused(record, wall_ms, record.started_mono_ms, max(0, len(reply) - 1))
                if batch is None:
                    if reply:
                        self.to_client.append(reply)
                    continue
                if reply:
                    batch.refusals.append(reply.rstrip(b"\n"))
                done.add(id(batch))
            for _, _, batch in refused:
                # Nothing of this batch is under way: the refusals are the whole answer.
                if batch is not None and id(batch) in done and not batch.waiting:
                    done.discard(id(batch))
                    self._send_refusals(batch)

    def forwarded(self, read_ns: int, written_ns: int) -> None:
        """The lines are with the server: what we took of each call's time so far."""
        for entry in self._sent:
            entry.overhead_ns += written_ns - read_ns
            entry.sent_ns = written_ns
        self._sent.clear()

    def refusal(self, reading: Reading, record: CallRecord) -> bytes:
        if reading.id_raw is None:
            return b""
        code, message, data = self.gate.refusal(record)
        if self.refusal_style == "result":
            result_type = ',"resultType":"complete"' if reading.era_2026 else ""
            body = (
                f'"result":{{"content":[{{"type":"text","text":{quote(message)}}}],"isError":true{result_type},'
                f'"_meta":{to_json(data)}}}'
            )
        else:
            body = f'"error":{{"code":{code},"message":{quote(message)},"data":{to_json(data)}}}'
        return b'{"jsonrpc":"2.0","id":' + reading.id_raw + b"," + body.encode("utf-8", "replace") + b"}\n"

    # -- server to client -----------------------------------------------------------------------------------------

    def server_line(self, line: bytes, wall_ms: int, now_ns: int) -> None:
        self._now_ns = now_ns
        if line[:1] == b"[":
            self._server_batch(line)
            return
        self.to_client.append(line + b"\n")
        reply = wire.read_reply(line) if self.pending else None
        if reply is None:
            self._note_task_status(line)
            return
        entry = self.take(reply.id_raw)
        if entry is None:
            return
        batch = entry.batch
        if batch is not None and batch.refusals:
            # The server answers a batch one by one: so do we.
            self._send_refusals(batch)
        self.answered(entry, reply, len(line))

    def _server_batch(self, line: bytes) -> None:
        replies = wire.read_reply_batch(line)
        merged: list[bytes] = []
        for reply in replies:
            entry = self.take(reply.id_raw) if reply is not None else None
            if entry is None or reply is None:
                continue
            if entry.batch is not None and entry.batch.refusals:
                merged.extend(entry.batch.refusals)
                entry.batch.refusals = []
            self.answered(entry, reply, len(line) // max(1, len(replies)))
        if not merged:
            self.to_client.append(line + b"\n")
            return
        body = line.rstrip(b" \t\r")[:-1].rstrip(b" \t")
        self.to_client.append(body + b"," + b",".join(merged) + b"]\n")

    def _send_refusals(self, batch: Batch) -> None:
        if batch.refusals:
            self.to_client.append(b"[" + b",".join(batch.refusals) + b"]\n")
            batch.refusals = []

    def answered(self, entry: Open, reply: wire.Reply, size: int) -> None:
        """A reply for `entry` has come. `reply.result` and `.error` are raw."""
        if entry.record is None:
            if entry.method == "tools/list" and reply.result is not None:
                self._learn_tools(reply.result)
            elif entry.task_id and reply.result is not None:
                self._task_answer(entry, reply.result, size)
            return
        if reply.error is not None:
            self._end(entry, "ERROR", size, reply.error, None, upstream_error(reply.error))
            return
        result = reply.result or b""
        if not wire.is_plain_result(result):
            value = wire.read_value(result)
            if isinstance(value, dict):
                if self._asks_for_input(entry, value) or self._became_task(entry, value):
                    return
                if value.get("isError") is True:
                    self._end(entry, "ERROR", size, result, None, fault("upstream_error", tool_error_text(value)))
                    return
        self._end(entry, "OK", size, result, None, None)

    def answered_unread(self, entry: Open, values: dict[str, bytes], size: int, stream_hash: str) -> None:
        """A reply too large to hold: only its size, its hash and the small members that a scan found."""
        if entry.record is None:
            return
        if "error" in values or values.get("result.isError") == b"true":
            error = fault("upstream_error", "the server answered with an error too large to read")
            self._end(entry, "ERROR", size, None, stream_hash, error)
        else:
            self._end(entry, "OK", size, None, stream_hash, None)

    def take(self, id_raw: bytes) -> Open | None:
        """The oldest open request with this id: an id used again while in flight is answered in order."""
        key = wire.id_key(id_raw)
        entries = self.pending.get(key)
        if not entries:
            return None
        entry = entries.pop(0)
        if not entries:
            del self.pending[key]
        if entry.batch is not None:
            entry.batch.waiting -= 1
        return entry

    def settle(self, wall_ms: int, now_ns: int, read_ns: int) -> None:
        """End events of what has ended. `read_ns`: when the reply was read, for our own share of the time."""
        gate = self.gate
        for entry, status, size, result, stream_hash, error in self.ended:
            record = entry.record
            assert record is not None
            latency_ms = entry.spent_ms + max(0, read_ns - entry.sent_ns) // 1_000_000
            gate.settle(
                record,
                status,
                wall_ms,
                now_ns // 1_000_000,
                latency_ms=latency_ms,
                bytes_out=size,
                result_raw=result,
                result_stream_hash=stream_hash,
                error=error,
                overhead_us=(entry.overhead_ns + now_ns - read_ns) // 1000,
                waited_ms=record.waited_ms or None,
            )
        self.ended.clear()

    @property
    def calls_open(self) -> int:
        under_way = sum(entry.record is not None for entries in self.pending.values() for entry in entries)
        return under_way + len(self._tasks) + len(self._waiting)

    def _learn_tools(self, result: bytes) -> None:
        """Annotations are untrusted: an explicit one may raise the risk class of a tool, none lowers it."""
        value = wire.read_value(result)
        tools = value.get("tools") if isinstance(value, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            notes = tool.get("annotations") if isinstance(tool, dict) else None
            if not isinstance(notes, dict) or not isinstance(tool.get("name"), str):
                continue
            risks = set()
            if notes.get("readOnlyHint") is False or notes.get("destructiveHint") is True:
                risks.add("write_like")
            if notes.get("openWorldHint") is True:
                risks.add("network_like")
            if risks and len(self.risk_classes) < 4096:
                self.risk_classes[tool["name"]] = frozenset(risks)

    # -- the end --------------------------------------------------------------------------------------------------

    def expire(self, now_ns: int) -> None:
        """Record a call as timed out once its configured time is over. A late reply still passes."""
        if not self.timeout_ms:
            return
        limit = now_ns - self.timeout_ms * 1_000_000
        for entries in list(self.pending.values()):
            for entry in list(entries):
                if entry.record is not None and entry.sent_ns < limit:
                    self._give_up(entry)
                    error = fault("timeout", f"no reply within {self.timeout_ms} ms")
                    self._end(entry, "TIMEOUT", 0, b"", None, error)

    def abandon(self, status: str, error_class: str, message: str) -> None:
        """Nothing more will come: end every open call."""
        for entries in list(self.pending.values()):
            for entry in list(entries):
                if entry.record is not None:
                    self._end(entry, status, 0, b"", None, fault(error_class, message))
        self.pending.clear()
        for entry in [*self._tasks.values(), *(waiting.entry for waiting in self._waiting.values())]:
            self._end(entry, "CANCELLED", 0, b"", None, fault("unknown", "its outcome was never asked for"))
        self._tasks.clear()
        self._waiting.clear()

    def unanswered(self, message: str) -> list[bytes]:
        """Error replies for every open request, when the server has gone."""
        replies = []
        for entries in self.pending.values():
            for entry in entries:
                if entry.batch is not None and entry.batch.refusals:
                    replies.append(b"[" + b",".join(entry.batch.refusals) + b"]\n")
                    entry.batch.refusals = []
                if entry.id_raw:
                    replies.append(
                        b'{"jsonrpc":"2.0","id":'
                        + entry.id_raw
                        + b',"error":{"code":-32000,"message":'
                        + quote(message).encode()
                        + b"}}\n"
                    )
        return replies

    # -- small things ---------------------------------------------------------------------------------------------

    def _add(self, entry: Open) -> None:
        self.pending.setdefault(wire.id_key(entry.id_raw), []).append(entry)

    def _remove(self, entry: Open) -> None:
        key = wire.id_key(entry.id_raw)
        entries = self.pending[key]
        entries.remove(entry)
        if not entries:
            del self.pending[key]
        if entry.batch is not None:
            entry.batch.waiting -= 1

    def _give_up(self, entry: Open) -> None:
        """No reply is awaited any more: refusals of its batch must not wait for it either."""
        self._remove(entry)
        if entry.batch is not None and not entry.batch.waiting:
            self._send_refusals(entry.batch)
