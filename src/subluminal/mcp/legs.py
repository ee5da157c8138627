"""Calls that take more than one reply, without I/O: each is one call in the record.

A task is acknowledged first and ends later. A multi-round-trip call asks for input and is repeated with it; only a
repetition of the same tool and arguments with the state that was given continues it, else the marker alone would be a
way round repeat detection.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from subluminal.contracts.jsontext import to_json
from subluminal.mcp.message import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.gate.gate import CallRecord
    from subluminal.mcp.message.wire import Reading

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


class Legs:
    def __init__(self) -> None:
        # What has ended and is not yet settled: entry, status, size, result, stream hash, error.
        self.ended: list[tuple[Open, str, int, bytes | None, str | None, dict[str, Any] | None]] = []
        self._waiting: OrderedDict[bytes, Waiting] = OrderedDict()
        self._tasks: OrderedDict[str, Open] = OrderedDict()
        self._early_tasks: OrderedDict[str, str] = OrderedDict()
        self._now_ns = 0

    def _note_task_request(self, entry: Open, raw: bytes) -> None:
        value = wire.read_value(raw)
        if isinstance(value, dict) and value.get("method") in ("tasks/result", "tasks/get", "tasks/cancel"):
            params = value.get("params")
            if isinstance(params, dict) and isinstance(params.get("taskId"), str):
                entry.method = value["method"]
                entry.task_id = params["taskId"]

    def _continued(self, reading: Reading) -> Waiting | None:
        """A continuation repeats tool and arguments of a call that asked for input, with the state it was given.

        Anything else that carries the marker is a new call: the marker alone must not be a way round repeat detection.
        """
        if reading.arguments is None:
            return None
        state = None if reading.request_state is None else wire.read_value(reading.request_state)
        return self._waiting.pop(leg_key(call_key(reading), state), None)

    def _asks_for_input(self, entry: Open, value: dict[str, Any]) -> bool:
        if value.get("resultType") != "input_required" or not entry.call_key:
            return False
        key = leg_key(entry.call_key, value.get("requestState"))
        forgotten = self._waiting.pop(key, None)  # an identical call, with nothing to tell the two apart
        if forgotten is None and len(self._waiting) >= MAX_WAITING_CALLS:
            _, forgotten = self._waiting.popitem(last=False)
        if forgotten is not None:
            error = fault("unknown", "input was asked for and never came")
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
                self._end(forgotten, "CANCELLED", 0, b"", None, fault("unknown", "its outcome was never asked for"))
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
        error = None if status == "OK" else fault("upstream_error", f"the task was {task_status}")
        self._end(entry, status, size, result, None, error)

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


def call_key(reading: Reading) -> bytes:
    return reading.tool_name.encode("utf-8", "replace") + b"\x00" + (reading.arguments or b"")


def leg_key(call_key: bytes, state: Any) -> bytes:
    return call_key + b"\x00" + to_json(state).encode("utf-8", "replace")


def fault(error_class: str, message: str, code: int | str | None = None) -> dict[str, Any]:
    detail: dict[str, Any] = {"class": error_class, "message": message}
    if code is not None:
        detail["code"] = code
    return detail


def upstream_error(raw: bytes) -> dict[str, Any]:
    """The upstream's own error. The gate masks its message first and cuts it to one line afterwards."""
    value = wire.read_value(raw)
    if not isinstance(value, dict):
        return fault("upstream_error", "the server answered with an error")
    message = value.get("message")
    code = value.get("code")
    return fault(
        "upstream_error",
        message if isinstance(message, str) and message.strip() else "the server answered with an error",
        code if isinstance(code, (int, str)) and not isinstance(code, bool) else None,
    )


def tool_error_text(value: dict[str, Any]) -> str:
    content = value.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"].strip():
                return str(block["text"])
    return "the tool reported an error"
