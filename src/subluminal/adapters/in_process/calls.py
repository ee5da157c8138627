"""The calls of one server: what is judged, what its caller is told, and how it ended. Knows no host.

    call = calls.begin(name, arguments, id)      refused?  ->  call.refusal  (already on record)
    calls.returned(call, result)                 calls.failed(call, error)   calls.cancelled(call)

A host has parsed the message already, so the record is of the message as it would be written compactly: sizes,
previews and hashes are those of a shim in front of the same server, for every client that writes compact JSON. Numbers
are what the tool receives: a double has forgotten digits beyond its precision.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from json import JSONEncoder
from time import monotonic_ns

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.jsontext import quote, to_json
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import ALLOW
from subluminal.producer.in_process import TRANSPORT, Door

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Any

    from subluminal.core.gate.gate import CallRecord

# Calls that asked for input and tools with risk classes: bounded, the oldest forgotten first.
MAX_WAITING_CALLS = 1024
MAX_TOOLS = 4096
MAX_CONTEXT_CHARS = 256
CONTEXT_KEYS = ("claudecode/toolUseId", "callId", "itemId", "threadId", "traceparent")
_ENVELOPE = len('{"jsonrpc":"2.0","id":,"method":"tools/call","params":}')
_PARAMS = len('{"name":}')
_ARGUMENTS = len(',"arguments":')
_REPLY = len('{"jsonrpc":"2.0","id":,"result":}')
_ERROR_REPLY = len('{"jsonrpc":"2.0","id":,"error":}')
_encode_fast = msgspec.json.Encoder().encode
# Where msgspec would not do: it writes infinity as null. Here it becomes `Infinity`, which the gate finds ambiguous.
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_escaped = JSONEncoder(separators=(",", ":")).encode


class Refusal:
    """What a refused caller receives (contract C)."""

    __slots__ = ("as_result", "code", "data", "message")

    def __init__(self, code: int, message: str, data: dict[str, Any], as_result: bool) -> None:
        self.code = code
        self.message = message
        self.data = data
        self.as_result = as_result


class Call:
    """One call between its judgement and its end."""

    __slots__ = ("id_length", "key", "overhead_ns", "record", "refusal", "spent_ms", "started_ns")

    def __init__(self, record: CallRecord, key: tuple[str, bytes | None], id_length: int) -> None:
        self.record = record
        self.key = key
        self.id_length = id_length
        self.refusal: Refusal | None = None
        self.overhead_ns = 0
        self.started_ns = 0
        self.spent_ms = 0  # earlier legs of a multi-round-trip call


class Calls:
    def __init__(
        self,
        policy: str | os.PathLike[str] | dict[str, Any] | None = None,
        *,
        server_name: str | None = None,
        events: str | None = None,
        client: str | None = None,
    ) -> None:
        self._given_name = server_name
        self.door = Door(policy, server_name=server_name or "in-process", events=events, client=client)
        self._risk_classes: dict[str, frozenset[str]] = {}
        self._waiting: OrderedDict[tuple[Any, ...], tuple[Call, int]] = OrderedDict()

    def name_server(self, server_name: str | None) -> None:
        """The server's own name counts unless another was given; the first time it is heard."""
        if self._given_name is None and server_name:
            self._given_name = self.door.server_name = server_name

    def close(self) -> None:
        self.door.close()

    # -- the beginning ----------------------------------------------------------------------------------------

    def begin(
        self,
        tool_name: str,
        arguments: Any,
        request_id: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        rest: Mapping[str, Any] | None = None,
    ) -> Call:
        """Judge a call. `rest` are the members of its params beside name and arguments."""
        began_ns = monotonic_ns()
        self.door.open_once()
        args_raw = b"{}" if arguments is None else args_text(arguments)
        id_length = len(str(request_id)) if type(request_id) is int else len(args_text(request_id) or b"")
        size = _ENVELOPE + _PARAMS + id_length + len(quote(tool_name).encode("utf-8", "replace"))
        if rest:
            size += _rest_length(rest)
        if arguments is not None:
            size += _ARGUMENTS + len(args_raw or b"")
        call = ToolCall(self.door.server_name, tool_name, args_raw, size, TRANSPORT, _call_context(meta))
        if size > self.door.config.max_inspect_bytes and args_raw is not None:
            call.args_raw = None
            call.args_stream_hash = sha256_hex(args_raw)
        if self._risk_classes:
            call.risk_classes = self._risk_classes.get(tool_name, call.risk_classes)
        key = (tool_name, args_raw)
        judged = self._continued(key, call, rest) or Call(self.door.judge(call), key, id_length)
        if judged.record.decision.action != ALLOW:
            self._refuse(judged)
        judged.started_ns = monotonic_ns()
        judged.overhead_ns = judged.started_ns - began_ns
        return judged

    def _continued(self, key: tuple[str, bytes | None], call: ToolCall, rest: Mapping[str, Any] | None) -> Call | None:
        """A call that asked for input is repeated with it: one call, judged again but not charged again."""
        if not rest or not self._waiting or not ("requestState" in rest or "inputResponses" in rest):
            return None
        found = self._waiting.pop((*key, rest.get("requestState")), None)
        if found is None:
            return None
        earlier, since_ns = found
        self.door.judge_again(earlier.record, call)
        earlier.record.waited_ms += (monotonic_ns() - since_ns) // 1_000_000
        return earlier

    def _refuse(self, call: Call) -> None:
        code, message, data = self.door.refusal(call.record)
        style = self.door.config.server(self.door.server_name).refusal_style
        call.refusal = Refusal(code, message, data, style == "result")
        body = f'{{"code":{code},"message":{quote(message)},"data":{to_json(data)}}}'
        size = _ERROR_REPLY + call.id_length + len(body.encode("utf-8", "replace"))
        self.door.refuse(call.record, size)

    # -- the end ----------------------------------------------------------------------------------------------

    def returned(self, call: Call, result: Any) -> None:
        """`result` as it goes to the client: a mapping of plain values."""
        read_ns = monotonic_ns()
        if isinstance(result, dict):
            if result.get("resultType") == "input_required":
                self._wait_for_input(call, result, read_ns)
                return
            if "taskId" in result or "task" in result:
                self._end(
                    call, "CANCELLED", read_ns, error=_error("unknown", "it goes on as a task, not followed here")
                )
                return
        raw = args_text(result) if result is not None else b"{}"
        if raw is None:
            self._end(call, "OK", read_ns, result_raw=None)
            return
        size = len(raw) + _REPLY + call.id_length
        failed = isinstance(result, dict) and result.get("isError") is True
        error = _error("upstream_error", _error_text(result)) if failed else None
        status = "ERROR" if failed else "OK"
        if size > self.door.config.max_inspect_bytes:
            self._end(call, status, read_ns, size, None, sha256_hex(raw), error)
        else:
            self._end(call, status, read_ns, size, raw, None, error)

    def failed(self, call: Call, message: str, code: int | None = None, data: Any = None) -> None:
        """The server answered with an error of its own, or an exception passed."""
        read_ns = monotonic_ns()
        error = _error("upstream_error", message if message.strip() else "the server answered with an error")
        if code is None:
            self._end(call, "ERROR", read_ns, error=error)
            return
        error["code"] = code
        body: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            body["data"] = data
        raw = args_text(body) or b""
        self._end(call, "ERROR", read_ns, len(raw) + _ERROR_REPLY + call.id_length, raw, None, error)

    def cancelled(self, call: Call) -> None:
        self._end(call, "CANCELLED", monotonic_ns(), error=_error("unknown", "cancelled by the client"))

    def _end(
        self,
        call: Call,
        status: str,
        read_ns: int,
        size: int = 0,
        result_raw: bytes | None = b"",
        stream_hash: str | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        try:
            self.door.settle(
                call.record,
                status,
                latency_ms=call.spent_ms + (read_ns - call.started_ns) // 1_000_000,
                bytes_out=size,
                result_raw=result_raw,
                result_stream_hash=stream_hash,
                error=error,
                overhead_us=(call.overhead_ns + monotonic_ns() - read_ns) // 1000,
            )
        except Exception as fault:  # the tool has run: its caller gets the answer whatever becomes of the record
            print(
                f"sub: the end of a call was not recorded ({type(fault).__name__}); please report it", file=sys.stderr
            )

    def _wait_for_input(self, call: Call, result: dict[str, Any], now_ns: int) -> None:
        key = (*call.key, result.get("requestState"))
        forgotten = self._waiting.pop(key, None)
        if forgotten is None and len(self._waiting) >= MAX_WAITING_CALLS:
            _, forgotten = self._waiting.popitem(last=False)
        if forgotten is not None:
            self._end(forgotten[0], "CANCELLED", now_ns, error=_error("unknown", "input was asked for and never came"))
        call.spent_ms += (now_ns - call.started_ns) // 1_000_000
        self._waiting[key] = (call, now_ns)

    # -- tools ------------------------------------------------------------------------------------------------

    def learn_tools(self, tools: Iterable[tuple[str, Any, Any, Any]]) -> None:
        """Names with readOnlyHint, destructiveHint, openWorldHint. A hint may raise a risk class, none lowers one."""
        for name, read_only, destructive, open_world in tools:
            risks = set()
            if read_only is False or destructive is True:
                risks.add("write_like")
            if open_world is True:
                risks.add("network_like")
            if risks and len(self._risk_classes) < MAX_TOOLS:
                self._risk_classes[name] = frozenset(risks)


def args_text(value: Any) -> bytes | None:
    """The JSON text of parsed values; None if they have none, so that rules on them cannot be evaluated."""
    try:
        text = _encode_fast(value)
        if b"null" not in text:
            return text
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return _encode_escaped(value).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _rest_length(rest: Mapping[str, Any]) -> int:
    """Of the other members of params, each with its comma."""
    return len(args_text(dict(rest)) or b"{}") - 1


def _call_context(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The client's own ids for this call, so that its narrative can be matched with the record."""
    if not meta:
        return None
    return {
        key: meta[key] for key in CONTEXT_KEYS if isinstance(meta.get(key), str) and len(meta[key]) <= MAX_CONTEXT_CHARS
    } or None


def _error(error_class: str, message: str) -> dict[str, Any]:
    return {"class": error_class, "message": message}


def _error_text(result: dict[str, Any]) -> str:
    content = result.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str) and block["text"].strip():
            return str(block["text"])
    return "the tool reported an error"
