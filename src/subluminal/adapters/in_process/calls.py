"""The calls of one server: what is judged, what its caller is told, and how it ended. Knows no host.

    call = await calls.begin(name, arguments, id)    refused?  ->  call.refusal  (already on record)
    await calls.returned(call, result)               await calls.failed(call, error)   calls.cancelled(call)

A host has parsed the message already, so the record is of the message as it would be written compactly: sizes,
previews and hashes are those of a shim in front of the same server, for every client that writes compact JSON. Numbers
are what the tool receives: a double has forgotten digits beyond its precision.
"""

from __future__ import annotations

import sys
from json import JSONEncoder
from time import monotonic_ns, time_ns

import anyio
import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.jsontext import quote
from subluminal.contracts.vocabulary import ALLOW
from subluminal.host.run.tool_notes import RunToolNotes
from subluminal.mcp.calls import Calls as Judged
from subluminal.mcp.calls import Forward, Refused
from subluminal.mcp.faults import fault
from subluminal.mcp.message.reading import CALL, TOOLS_LIST, Reading, Reply
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.runtime import TRANSPORT, Runtime
from subluminal.producer.surfaces import SurfaceOnDemand
from subluminal.producer.turn import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from subluminal.mcp.legs import Open
    from subluminal.mcp.refusal import Refusal
    from subluminal.producer.producer import Producer

_ENVELOPE = len('{"jsonrpc":"2.0","id":,"method":"tools/call","params":}')
_PARAMS = len('{"name":}')
_ARGUMENTS = len(',"arguments":')
_REPLY = len('{"jsonrpc":"2.0","id":,"result":}')
_ERROR_REPLY = len('{"jsonrpc":"2.0","id":,"error":}')
_encode_fast = msgspec.json.Encoder().encode
# Where msgspec would not do: it writes infinity as null. Here it becomes `Infinity`, which the gate finds ambiguous.
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_escaped = JSONEncoder(separators=(",", ":")).encode


class Call:
    """One call between its judgement and its end."""

    __slots__ = ("entry", "refusal", "tool_name")

    def __init__(self, entry: Open, tool_name: str) -> None:
        self.entry = entry
        self.tool_name = tool_name
        self.refusal: Refusal | None = None


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
        self.runtime = Runtime(policy, server_name=server_name or "in-process", events=events, client=client)
        self.tools = ToolNotes()
        self._surface: SurfaceOnDemand | None = None
        self._judged: Judged | None = None
        self._turn: Turn | None = None

    def name_server(self, server_name: str | None) -> None:
        """The server's own name counts unless another was given; the first time it is heard."""
        if self._given_name is None and server_name:
            self._given_name = self.runtime.server_name = server_name

    def close(self) -> None:
        self.runtime.close()

    def _of(self, producer: Producer) -> tuple[Judged, Turn]:
        """A process that has forked, or closed its run, has another producer. What was learned of tools stays."""
        judged, turn = self._judged, self._turn
        if judged is None or turn is None or judged.gate is not producer.gate:
            name = self.runtime.server_name
            style = self.runtime.config.server(name).refusal_style
            self.tools.keep_in(RunToolNotes(producer.gate.identity.run_id, name))
            if self._surface is None:
                self._surface = SurfaceOnDemand(producer, name, (), self.tools)
            else:
                self._surface.take_up(producer)
            judged = Judged(producer.gate, name, TRANSPORT, self.tools, refusal_style=style, follows_tasks=False)
            turn = Turn(producer, judged, _nowhere, _nowhere)
            self._judged, self._turn = judged, turn
        return judged, turn

    # -- the beginning ----------------------------------------------------------------------------------------

    async def begin(
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
        id_raw = b"%d" % request_id if type(request_id) is int else args_text(request_id) or b"null"
        reading = Reading(CALL, b"", id_raw, tool_name)
        reading.arguments = b"{}" if arguments is None else args_text(arguments)
        size = _ENVELOPE + _PARAMS + len(id_raw) + len(quote(tool_name).encode("utf-8", "replace"))
        if arguments is not None:
            size += _ARGUMENTS + len(reading.arguments or b"")
        if rest:
            size += len(args_text(dict(rest)) or b"{}") - 1
            reading.request_state = _member(rest, "requestState")
            reading.input_responses = _member(rest, "inputResponses")
        if meta:
            reading.meta = args_text(dict(meta))
        call = self._judge(reading, size, began_ns, at_once=True)
        if call is None:
            await self.runtime.turn(_told)
            call = self._judge(reading, size, began_ns)
            assert call is not None
        return call

    def _judge(self, reading: Reading, size: int, began_ns: int, at_once: bool = False) -> Call | None:
        """None, `at_once`: another process holds the run's state."""
        with self.runtime as producer:
            if at_once and not producer.try_state():
                return None
            judged, turn = self._of(producer)
            stream_hash = None
            if size > self.runtime.config.max_inspect_bytes and reading.arguments is not None:
                stream_hash = reading.args_raw_hash = sha256_hex(reading.arguments)
                reading.arguments = None
            wall_ms = time_ns() // 1_000_000
            entry, record = judged.judge(reading, size, wall_ms, began_ns, stream_hash)
            call = Call(entry, reading.tool_name)
            if record.decision.action == ALLOW:
                judged.outputs.append(Forward(None, entry))
            else:
                call.refusal = judged.refusal(record, reading.era_2026)
                judged.outputs.append(Refused(record, len(call.refusal.reply(entry.id_raw))))
            turn.carry_out(wall_ms, began_ns)
            return call

    # -- lists ------------------------------------------------------------------------------------------------

    def listed(self, result: Any) -> Callable[[str], bool]:
        """The result of `tools/list`, as it would go on the wire; tells which tools are left out of it."""
        raw = args_text(result)
        with self.runtime as producer:
            self._of(producer)
            if raw is None:
                self.tools.learn(result)
            else:
                self.tools.heard(TOOLS_LIST, raw)
            producer.hand_over()
        return self.tools.hides if self.tools.edits else _nothing

    # -- the end ----------------------------------------------------------------------------------------------

    async def returned(self, call: Call, result: Any) -> None:
        """`result` as it goes to the client: a mapping of plain values."""
        stopped = await self._state() if _is_watched(call) else None
        entry, value = call.entry, result if isinstance(result, dict) else {}
        if value.get("resultType") == "input_required":
            entry.tool_name = call.tool_name
        raw = b"{}" if result is None else args_text(result)
        if raw is None:
            self._end(call, "OK", result=None)
        elif not self._is_large(call, raw, _REPLY, value.get("isError") is True):
            size = len(raw) + _REPLY + len(entry.id_raw)
            self._carry_out(call, lambda judged, now_ns: judged.returned(entry, value, raw, size, now_ns))
        if stopped is not None:
            raise stopped

    async def failed(self, call: Call, message: str, code: int | None = None, data: Any = None) -> None:
        """The server answered with an error of its own, or an exception passed."""
        stopped = await self._state() if _is_watched(call) else None
        if code is None:
            text = message if message.strip() else "the server answered with an error"
            self._end(call, "ERROR", error=fault("upstream_error", text))
        else:
            entry, raw = call.entry, _error_body(message, code, data)
            if not self._is_large(call, raw, _ERROR_REPLY, True):
                size, reply = len(raw) + _ERROR_REPLY + len(entry.id_raw), Reply(entry.id_raw, None, raw)
                self._carry_out(call, lambda judged, now_ns: judged.answered(entry, reply, size, now_ns))
        if stopped is not None:
            raise stopped

    def cancelled(self, call: Call) -> None:
        """Whoever is cancelled cannot wait: where the run's state is not to be had, no breaker hears of it."""
        self.runtime.take_no_turn()
        self._end(call, "CANCELLED", error=fault("unknown", "cancelled by the client"))

    async def _state(self) -> BaseException | None:
        """Returns what has stopped the wait: the end is recorded all the same, and then it goes on its way."""
        try:
            await self.runtime.turn(_told)
        except BaseException as stopped:
            self.runtime.take_no_turn()
            return stopped
        return None

    def _is_large(self, call: Call, raw: bytes, envelope: int, failed: bool) -> bool:
        """A reply that a shim would not hold either: of it only size, hash and outcome are recorded."""
        size = len(raw) + envelope + len(call.entry.id_raw)
        if size <= self.runtime.config.max_inspect_bytes:
            return False
        self._carry_out(call, lambda judged, _: judged.answered_unread(call.entry, failed, size, sha256_hex(raw)))
        return True

    def _end(self, call: Call, status: str, **how: Any) -> None:
        self._carry_out(call, lambda judged, _: judged.end(call.entry, status, **how))

    def _carry_out(self, call: Call, work: Any) -> None:
        read_ns = monotonic_ns()
        record = call.entry.record
        if record is None or not self.runtime.owns(record):
            return
        try:
            with self.runtime as producer:
                judged, turn = self._of(producer)
                work(judged, read_ns)
                turn.carry_out(time_ns() // 1_000_000, read_ns)
        except Exception as error:  # the tool has run: its caller gets the answer whatever becomes of the record
            print(
                f"sub: the end of a call was not recorded ({type(error).__name__}); please report it", file=sys.stderr
            )


async def _told(start: Callable[[Callable[[], None]], None], seconds: float) -> None:
    """Wait on the loop until what is given to `start` was called, from a thread that knows no loop."""
    import asyncio

    came = anyio.Event()
    try:
        soon: Callable[..., Any] = asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:  # the other loop that anyio knows
        import trio  # type: ignore[import-not-found]  # there where a host runs it, and only there

        soon = trio.lowlevel.current_trio_token().run_sync_soon
    with anyio.move_on_after(seconds):
        start(lambda: soon(came.set))
        await came.wait()


def _is_watched(call: Call) -> bool:
    """A breaker may have to be told how the call ended, for which the run's state is needed."""
    return call.entry.record is not None and call.entry.record.verdict.watch is not None


def _error_body(message: str, code: int, data: Any) -> bytes:
    """Data that is no JSON is left out, as the host will have to."""
    body: dict[str, Any] = {"code": code, "message": message}
    return (args_text({**body, "data": data}) if data is not None else None) or args_text(body) or b""


def _nothing(tool_name: str) -> bool:
    return False


def _nowhere(messages: list[Any]) -> None:
    """The host itself carries messages on."""


def _member(rest: Mapping[str, Any], name: str) -> bytes | None:
    return args_text(rest[name]) if rest.get(name) is not None else None


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
