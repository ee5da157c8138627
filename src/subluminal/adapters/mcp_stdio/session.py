"""Who asked what: matches replies to calls, in both directions, without I/O.

Lines go in; bytes for the server and for the client come out in `to_server` and `to_client`; decisions and events are
the gate's. The shim drains them in this order, which is the promise of the record: forward, `announce()`, hand the
events to the sink, and only then write to the client.

    session.client_line(line, wall_ms, now_ns)      ...   session.server_line(line, wall_ms, now_ns)
    session.announce(wall_ms)                             session.settle(wall_ms, now_ns, out_ns)

Some calls take more than one reply: a task is acknowledged first and ends later; a multi-round-trip call asks for
input and is repeated with it. Each is one call in the record.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from subluminal.adapters.mcp_stdio import wire
from subluminal.contracts.jsontext import quote, to_json
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.adapters.mcp_stdio.wire import Reading
    from subluminal.core.gate import CallRecord, Gate

# Tasks under way, tasks whose end came before their acknowledgement, and calls that wait for input: bounded, oldest
# forgotten first. A server could name any number of them.
MAX_TASKS = 4096
MAX_EARLY_TASKS = 1024
MAX_WAITING_CALLS = 1024
_TASK_ENDS = {"completed": "OK", "failed": "ERROR", "cancelled": "CANCELLED"}


class Open(Struct, eq=False, gc=False):
    """A request of the client that waits for its reply. `record` is None unless it is a tool call."""

    id_raw: bytes
    record: CallRecord | None
    sent_ns: int
    overhead_ns: int = 0
    spent_ms: int = 0  # earlier legs of a multi-round-trip call
    batch: Batch | None = None
    method: str = ""
    task_id: str = ""
    call_key: bytes = b""  # what a continuation must repeat: tool and arguments


class Batch:
    """A batch some of whose calls were refused: the refusals wait for the server's array, to be merged into it."""

    __slots__ = ("refusals", "waiting")

    def __init__(self) -> None:
        self.refusals: list[bytes] = []
        self.waiting = 0


class Waiting:
    """A call that asked for input: open, but with no request under way."""

    __slots__ = ("entry", "since_ns")

    def __init__(self, entry: Open, since_ns: int) -> None:
        self.entry = entry
        self.since_ns = since_ns


class Session:
    def __init__(self, gate: Gate, server_name: str, *, refusal_style: str = "error", timeout_ms: int = 0) -> None:
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
        self.ended: list[tuple[Open, str, int, bytes | None, str | None, dict[str, Any] | None]] = []
        self._waiting: OrderedDict[bytes, Waiting] = OrderedDict()
        self._tasks: OrderedDict[str, Open] = OrderedDict()
        self._early_tasks: OrderedDict[str, str] = OrderedDict()
        self._now_ns = 0

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
                    self._end(entry, "CANCELLED", 0, b"", None, _error("unknown", "cancelled by the client"))

    def _note_task_request(self, entry: Open, raw: bytes) -> None:
        value = wire.read_value(raw)
        if isinstance(value, dict) and value.get("method") in ("tasks/result", "tasks/get", "tasks/cancel"):
            params = value.get("params")
            if isinstance(params, dict) and isinstance(params.get("taskId"), str):
                entry.method = value["method"]
                entry.task_id = params["taskId"]

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
                entry, "CANCELLED", 0, b"", None, _error("unknown", "sent without an id: its outcome is not known")
            )
            return True
        entry = Open(reading.id_raw, record, now_ns)
        if reading.meta is not None and reading.era_2026 and reading.arguments is not None:
            entry.call_key = _call_key(reading)
        if waiting is not None:
            entry.spent_ms = waiting.entry.spent_ms
            record.waited_ms += (now_ns - waiting.since_ns) // 1_000_000
        self._sent.append(entry)
        self._add(entry)
        if batch is not None:
            entry.batch = batch
            batch.waiting += 1
        return True

    def _continued(self, reading: Reading) -> Waiting | None:
        """A continuation repeats tool and arguments of a call that asked for input, with the state it was given.

        Anything else that carries the marker is a new call: the marker alone must not be a way round repeat detection.
        """
        if reading.arguments is None:
            return None
        state = None if reading.request_state is None else wire.read_value(reading.request_state)
        return self._waiting.pop(_leg_key(_call_key(reading), state), None)

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
            self._end(entry, "ERROR", size, reply.error, None, _upstream_error(reply.error))
            return
        result = reply.result or b""
        if not wire.is_plain_result(result):
            value = wire.read_value(result)
            if isinstance(value, dict):
                if self._asks_for_input(entry, value) or self._became_task(entry, value):
                    return
                if value.get("isError") is True:
                    self._end(entry, "ERROR", size, result, None, _error("upstream_error", _tool_error_text(value)))
                    return
        self._end(entry, "OK", size, result, None, None)

    def answered_unread(self, entry: Open, values: dict[str, bytes], size: int, stream_hash: str) -> None:
        """A reply too large to hold: only its size, its hash and the small members that a scan found."""
        if entry.record is None:
            return
        if "error" in values or values.get("result.isError") == b"true":
            error = _error("upstream_error", "the server answered with an error too large to read")
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

    # -- several replies, one call --------------------------------------------------------------------------------

    def _asks_for_input(self, entry: Open, value: dict[str, Any]) -> bool:
        if value.get("resultType") != "input_required" or not entry.call_key:
            return False
        key = _leg_key(entry.call_key, value.get("requestState"))
        forgotten = self._waiting.pop(key, None)  # an identical call, with nothing to tell the two apart
        if forgotten is None and len(self._waiting) >= MAX_WAITING_CALLS:
            _, forgotten = self._waiting.popitem(last=False)
        if forgotten is not None:
            error = _error("unknown", "input was asked for and never came")
            self._end(forgotten.entry, "CANCELLED", 0, b"", None, error)
        entry.spent_ms += max(0, self._now_ns - entry.sent_ns) // 1_000_000
        self._waiting[key] = Waiting(entry, self._now_ns)
        return True

    def _became_task(self, entry: Open, value: dict[str, Any]) -> bool:
        task = value.get("task")
        task_id = task.get("taskId") if isinstance(task, dict) else None
        if task_id is None and value.get("resultType") == "task":
            task_id = value.get("taskId")
        if not isinstance(task_id, str):
            return False
        early = self._early_tasks.pop(task_id, None)
        if early is not None:
            self._end_task(entry, early, b"", 0)
        else:
            forgotten = self._tasks.pop(task_id, None)
            if forgotten is None and len(self._tasks) >= MAX_TASKS:
                _, forgotten = self._tasks.popitem(last=False)
            if forgotten is not None:
                self._end(forgotten, "CANCELLED", 0, b"", None, _error("unknown", "its outcome was never asked for"))
            self._tasks[task_id] = entry
        return True

    def _task_answer(self, request: Open, result: bytes, size: int) -> None:
        entry = self._tasks.get(request.task_id)
        value = wire.read_value(result)
        if entry is None or not isinstance(value, dict):
            return
        if request.method == "tasks/result":
            status = "failed" if value.get("isError") is True else "completed"
        else:
            status = str(value.get("status"))
        if status in _TASK_ENDS:
            del self._tasks[request.task_id]
            self._end_task(entry, status, result if request.method == "tasks/result" else b"", size)

    def _note_task_status(self, line: bytes) -> None:
        if b"notifications/tasks/status" not in line:
            return
        value = wire.read_value(line)
        params = value.get("params") if isinstance(value, dict) else None
        if not isinstance(params, dict) or params.get("status") not in _TASK_ENDS:
            return
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            return
        entry = self._tasks.pop(task_id, None)
        if entry is not None:
            self._end_task(entry, params["status"], b"", 0)
        else:
            self._early_tasks[task_id] = params["status"]
            if len(self._early_tasks) > MAX_EARLY_TASKS:
                self._early_tasks.popitem(last=False)

    def _end_task(self, entry: Open, task_status: str, result: bytes, size: int) -> None:
        status = _TASK_ENDS[task_status]
        error = None if status == "OK" else _error("upstream_error", f"the task was {task_status}")
        self._end(entry, status, size, result, None, error)

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
                    error = _error("timeout", f"no reply within {self.timeout_ms} ms")
                    self._end(entry, "TIMEOUT", 0, b"", None, error)

    def abandon(self, status: str, error_class: str, message: str) -> None:
        """Nothing more will come: end every open call."""
        for entries in list(self.pending.values()):
            for entry in list(entries):
                if entry.record is not None:
                    self._end(entry, status, 0, b"", None, _error(error_class, message))
        self.pending.clear()
        for entry in [*self._tasks.values(), *(waiting.entry for waiting in self._waiting.values())]:
            self._end(entry, "CANCELLED", 0, b"", None, _error("unknown", "its outcome was never asked for"))
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

    def _end(
        self,
        entry: Open,
        status: str,
        size: int,
        result: bytes | None,
        stream_hash: str | None,
        error: dict[str, Any] | None,
    ) -> None:
        self.ended.append((entry, status, size, result, stream_hash, error))


def _call_key(reading: Reading) -> bytes:
    return reading.tool_name.encode("utf-8", "replace") + b"\x00" + (reading.arguments or b"")


def _leg_key(call_key: bytes, state: Any) -> bytes:
    return call_key + b"\x00" + to_json(state).encode("utf-8", "replace")


def _error(error_class: str, message: str, code: int | str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"class": error_class, "message": message}
    if code is not None:
        error["code"] = code
    return error


def _upstream_error(raw: bytes) -> dict[str, Any]:
    """The upstream's own error. The gate masks its message first and cuts it to one line afterwards."""
    value = wire.read_value(raw)
    if not isinstance(value, dict):
        return _error("upstream_error", "the server answered with an error")
    message = value.get("message")
    code = value.get("code")
    return _error(
        "upstream_error",
        message if isinstance(message, str) and message.strip() else "the server answered with an error",
        code if isinstance(code, (int, str)) and not isinstance(code, bool) else None,
    )


def _tool_error_text(value: dict[str, Any]) -> str:
    content = value.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"].strip():
                return str(block["text"])
    return "the tool reported an error"
