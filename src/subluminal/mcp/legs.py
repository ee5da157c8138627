"""Calls that take more than one reply: each is one call in the record.

A task is acknowledged first and ends later. A multi-round-trip call asks for input and is repeated with it; only a
repetition of the same tool and arguments with the state that was given continues it, else the marker alone would be a
way round repeat detection. A server that has forgotten a session did nothing, and its client then repeats the call in
another: with its own id of the call, the same tool and the same arguments.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.digest import blake2b, sha256_hex
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import to_json
from subluminal.mcp.faults import fault
from subluminal.mcp.message.reading import call_context, read_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.core.gate.record import CallRecord
    from subluminal.mcp.message.reading import Reading

# Tasks under way, tasks whose end came before their acknowledgement, and calls that wait for input: bounded, oldest
# forgotten first. A server could name any number of them.
MAX_TASKS = 4096
MAX_EARLY_TASKS = 1024
MAX_WAITING_CALLS = 1024
MAX_NOT_EXECUTED = 256
_TASK_ENDS = {"completed": "OK", "failed": "ERROR", "cancelled": "CANCELLED"}
_TASK_METHODS = ("tasks/result", "tasks/get", "tasks/cancel")
NOT_TAKEN = "the server did not know the session, and the call was not repeated"
NEVER_ASKED = "its outcome was never asked for"


class Open(Struct, eq=False, gc=False):
    """A request of the client that waits for its reply. `record` is None unless it is a tool call."""

    id_raw: bytes
    record: CallRecord | None
    read_ns: int
    sent_ns: int
    spent_ms: int = 0  # earlier legs of a multi-round-trip call
    batch: Batch | None = None
    method: str = ""
    task_id: str = ""
    tool_name: str = ""  # of a call that may ask for input: what a continuation must repeat, with the same arguments


class Batch:
    """A batch some of whose calls were refused: the refusals wait for the server's array, to be merged into it."""

    __slots__ = ("refusals", "waiting")

    def __init__(self) -> None:
        self.refusals: list[bytes] = []
        self.waiting = 0

    def add(self, entry: Open) -> None:
        entry.batch = self
        self.waiting += 1

    def answer(self) -> bytes:
        """The refusals as an array of their own; they are said once."""
        array = b"[" + b",".join(self.refusals) + b"]"
        self.refusals = []
        return array


class Waiting:
    """A call that asked for input: open, but with no request under way."""

    __slots__ = ("entry", "since_ns")

    def __init__(self, entry: Open, since_ns: int) -> None:
        self.entry = entry
        self.since_ns = since_ns


class Legs:
    """`end(entry, status, size, result, error)` is told of each call that ends here."""

    __slots__ = ("_early_tasks", "_end", "_tasks", "_waiting", "not_executed")

    def __init__(self, end: Callable[..., None]) -> None:
        self._end = end
        self._waiting: OrderedDict[bytes, Waiting] = OrderedDict()
        self._tasks: OrderedDict[str, Open] = OrderedDict()
        self._early_tasks: OrderedDict[str, str] = OrderedDict()
        self.not_executed: OrderedDict[bytes, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks) + len(self._waiting) + len(self.not_executed)

    # -- calls that a server did not take ------------------------------------------------------------------------------

    def may_come_again(self, entry: Open, reading: Reading, now_ns: int) -> bool:
        key = _repeat_key(reading)
        if key is None or key in self.not_executed:
            return False
        if len(self.not_executed) >= MAX_NOT_EXECUTED:
            _, forgotten = self.not_executed.popitem(last=False)
            self._end(forgotten.entry, "ERROR", error=fault("transport", NOT_TAKEN))
        entry.spent_ms += max(0, now_ns - entry.sent_ns) // 1_000_000
        self.not_executed[key] = Waiting(entry, now_ns)
        return True

    def came_again(self, reading: Reading) -> Waiting | None:
        key = _repeat_key(reading)
        return None if key is None else self.not_executed.pop(key, None)

    # -- input that is asked for --------------------------------------------------------------------------------------

    def continued(self, reading: Reading) -> Waiting | None:
        """The call that this one continues. Anything else that carries the marker is a new call."""
        if not self._waiting or reading.arguments is None:
            return None
        try:
            args_hash = sha256_hex(canonical_bytes(reading.arguments))
        except CanonicalError:
            return None
        state = None if reading.request_state is None else read_value(reading.request_state)
        return self._waiting.pop(_leg_key(reading.tool_name, args_hash, state), None)

    def asks_for_input(self, entry: Open, value: dict[str, Any], now_ns: int) -> bool:
        args_hash = "" if entry.record is None else entry.record.args_hash
        if value.get("resultType") != "input_required" or not entry.tool_name or not args_hash:
            return False
        key = _leg_key(entry.tool_name, args_hash, value.get("requestState"))
        forgotten = self._waiting.pop(key, None)  # an identical call, with nothing to tell the two apart
        if forgotten is None and len(self._waiting) >= MAX_WAITING_CALLS:
            _, forgotten = self._waiting.popitem(last=False)
        if forgotten is not None:
            self._end(forgotten.entry, "CANCELLED", error=fault("unknown", "input was asked for and never came"))
        entry.spent_ms += max(0, now_ns - entry.sent_ns) // 1_000_000
        self._waiting[key] = Waiting(entry, now_ns)
        return True

    # -- tasks --------------------------------------------------------------------------------------------------------

    def note_task_request(self, entry: Open, reading: Reading) -> None:
        if not self._tasks or reading.method not in _TASK_METHODS:
            return
        text = reading.raw.lower()
        if text.count(b"taskid") != 1 or b"\\u" in text:
            return  # the server may read another task than we do, and its answer would end the wrong call
        value = read_value(reading.raw)
        params = value.get("params") if isinstance(value, dict) else None
        if isinstance(params, dict) and isinstance(params.get("taskId"), str):
            entry.task_id = params["taskId"]

    def became_task(self, entry: Open, value: dict[str, Any]) -> bool:
        task_id = task_of(value)
        if task_id is None:
            return False
        early = self._early_tasks.pop(task_id, None)
        if early is not None:
            self._end_task(entry, early)
            return True
        forgotten = self._tasks.pop(task_id, None)
        if forgotten is None and len(self._tasks) >= MAX_TASKS:
            _, forgotten = self._tasks.popitem(last=False)
        if forgotten is not None:
            self._end(forgotten, "CANCELLED", error=fault("unknown", NEVER_ASKED))
        self._tasks[task_id] = entry
        return True

    def task_answer(self, request: Open, result: bytes, size: int) -> None:
        entry = self._tasks.get(request.task_id)
        value = read_value(result)
        if entry is None or not isinstance(value, dict):
            return
        if request.method == "tasks/result":
            status = "failed" if value.get("isError") is True else "completed"
        else:
            status = str(value.get("status"))
        if status in _TASK_ENDS:
            del self._tasks[request.task_id]
            self._end_task(entry, status, result if request.method == "tasks/result" else b"", size)

    def note_task_status(self, message: bytes) -> None:
        if b"notifications/tasks/status" not in message:
            return
        value = read_value(message)
        params = value.get("params") if isinstance(value, dict) else None
        if not isinstance(params, dict) or params.get("status") not in _TASK_ENDS:
            return
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            return
        entry = self._tasks.pop(task_id, None)
        if entry is not None:
            self._end_task(entry, params["status"])
            return
        self._early_tasks[task_id] = params["status"]
        if len(self._early_tasks) > MAX_EARLY_TASKS:
            self._early_tasks.popitem(last=False)

    def _end_task(self, entry: Open, task_status: str, result: bytes = b"", size: int = 0) -> None:
        status = _TASK_ENDS[task_status]
        error = None if status == "OK" else fault("upstream_error", f"the task was {task_status}")
        self._end(entry, status, size, result, error=error)

    # -- the end ------------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        for entry in [*self._tasks.values(), *(waiting.entry for waiting in self._waiting.values())]:
            self._end(entry, "CANCELLED", error=fault("unknown", NEVER_ASKED))
        for waiting in self.not_executed.values():
            self._end(waiting.entry, "ERROR", error=fault("transport", NOT_TAKEN))
        self._tasks.clear()
        self._waiting.clear()
        self.not_executed.clear()


def task_of(result: dict[str, Any]) -> str | None:
    """The id of the task that a result announces instead of an outcome."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    if task_id is None and result.get("resultType") == "task":
        task_id = result.get("taskId")
    return task_id if isinstance(task_id, str) else None


def _repeat_key(reading: Reading) -> bytes | None:
    """None: the client gives its calls no id of their own."""
    context = None if reading.meta is None else call_context(reading.meta)
    if context is None or reading.arguments is None:
        return None
    digest = blake2b(to_json(context).encode("utf-8", "replace"), digest_size=32)
    digest.update(b"\0%s\0" % reading.tool_name.encode("utf-8", "replace") + reading.arguments)
    key: bytes = digest.digest()
    return key


def _leg_key(tool_name: str, args_hash: str, state: Any) -> bytes:
    """A digest: a server may give any amount of state, and a call any amount of arguments."""
    digest = blake2b(to_json(state).encode("utf-8", "replace"), digest_size=32)
    digest.update(b"\0%s\0" % args_hash.encode() + tool_name.encode("utf-8", "replace"))
    key: bytes = digest.digest()
    return key
