"""The calls of one client: what its hooks say becomes a judgement before and an end after.

    calls.hear(client, event, text)   ->  the answer; what was decided is on record by then

A call is open from the hook before it to the hook after it. Clients do not say how every call ended: those that are
left when a batch or a turn is over end as CANCELLED, which says that nobody knows. Two entries of a client's settings
may ask about one call: it is judged and charged once.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic_ns, time_ns

from msgspec import Struct

from subluminal.adapters.hook.answers import NOTHING, block_change, deny, stop
from subluminal.adapters.hook.payload import Payload, read_payload
from subluminal.adapters.tools.names import Tools, with_paths
from subluminal.contracts.decision import MAX_MESSAGE_CHARS
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import BUILTIN_SERVER
from subluminal.mcp.faults import fault, tool_error
from subluminal.mcp.message.reading import read_value
from subluminal.producer.asking import ask, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.adapters.hook.answers import Answer
    from subluminal.core.gate.record import CallRecord
    from subluminal.host.config import Config
    from subluminal.producer.producer import Producer

TRANSPORT = "hook"
BEFORE = "PreToolUse"
# Under which the client's id of a call stands where its shims find it too (`contracts.tool_use`).
_ID_OF = {"claude": "claudecode/toolUseId", "codex": "callId"}
# Calls that a client began and did not say the end of: the oldest are given up first.
MAX_OPEN = 4_096
# Answers to calls that were refused, for a second hook that asks about the same.
MAX_REFUSED = 256
MAX_ID_CHARS = 256
_NOT_TOLD = "the client did not say how the call ended"
_SETTINGS = frozenset(("user_settings", "project_settings", "local_settings"))
_SETTINGS_KEPT = (
    "A policy is enforced in this session, so settings that change while it is on are not taken over. "
    "They hold from the next session on."
)


class _Open(Struct, eq=False, gc=False):
    record: CallRecord
    agent_id: str
    began_ns: int


class Calls:
    """`reloaded` is called when policies have changed. `only_builtin`: in a replay, where whoever answers calls of
    servers judges them, at the recorded times."""

    def __init__(
        self,
        producer: Producer,
        config: Config,
        reloaded: Callable[[], None],
        clock: Callable[[], int] = monotonic_ns,
        *,
        only_builtin: bool = False,
    ) -> None:
        self._only_builtin = only_builtin
        self._producer = producer
        self._config = config
        self._reloaded = reloaded
        self._clock = clock
        self._tools = Tools(producer.gate.identity.run_id, config.server_names())
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._refused: OrderedDict[str, Answer] = OrderedDict()

    @property
    def pending(self) -> int:
        return len(self._open)

    def hear(self, client: str, event: str, text: bytes, size: int) -> Answer:
        """`event` is what the hook was set up for. `size` is larger than the text where that could not be held."""
        now_ns, wall_ms = self._clock(), time_ns() // 1_000_000
        if self._producer.check_policies(now_ns, wall_ms):
            self._reloaded()
        if size > len(text):
            payload = Payload(fault=f"{size:,} bytes, more than are read")
        else:
            payload = read_payload(text, self._config.max_inspect_bytes)
        if event == BEFORE:
            return self._before(client, payload, len(text), size, now_ns, wall_ms)
        if event == "ConfigChange":
            return self._settings_changed(payload, wall_ms)
        if payload.fault is None:
            self._after(event, payload, now_ns, wall_ms)
        self._producer.hand_over()
        terminated = self._producer.state.terminated
        if terminated is not None and event.startswith("PostTool"):
            return stop(client, f"The run was terminated ({terminated[0]}): {terminated[1]}"[:MAX_MESSAGE_CHARS])
        return NOTHING

    # -- before a call ----------------------------------------------------------------------------------------

    def _before(self, client: str, payload: Payload, held: int, size: int, now_ns: int, wall_ms: int) -> Answer:
        key = self._key(payload)
        if key in self._refused:
            return self._refused[key]
        if key in self._open:
            return NOTHING
        call = self._call(client, payload, size)
        if self._only_builtin and call.server_name != BUILTIN_SERVER:
            return NOTHING
        if size > held and self._producer.gate.may_refuse:
            call.too_large = f"too large to be held ({payload.fault})"
        if self._producer.places is not None:
            self._producer.places.start_from(payload.cwd if payload.cwd.startswith("/") else None)
        record, refused = ask(self._producer, call, wall_ms, now_ns // 1_000_000, _denied)
        if refused is None:
            self._keep(key or record.call_id, _Open(record, payload.agent_id, now_ns), now_ns, wall_ms)
            return NOTHING
        if key:
            self._refused[key] = refused
            if len(self._refused) > MAX_REFUSED:
                self._refused.popitem(last=False)
        return refused

    def _key(self, payload: Payload) -> str:
        """Of a call whose client has given it an id: with what was called, so that the id alone opens nothing."""
        if payload.fault is not None or not 0 < len(payload.tool_use_id) <= MAX_ID_CHARS:
            return ""
        return f"{payload.tool_use_id}\0{payload.tool_name}\0{sha256_hex(payload.tool_input)}"

    def _call(self, client: str, payload: Payload, size: int) -> ToolCall:
        server, tool = self._tools.called(payload.tool_name) if payload.tool_name else (BUILTIN_SERVER, "(unreadable)")
        context = {}
        if 0 < len(payload.tool_use_id) <= MAX_ID_CHARS:
            context[_ID_OF.get(client, _ID_OF["claude"])] = payload.tool_use_id
        if 0 < len(payload.agent_id) <= MAX_ID_CHARS:
            context["agent_id"] = payload.agent_id
        call = ToolCall(
            server,
            tool,
            None,
            size,
            TRANSPORT,
            context or None,
            ambiguous=None if payload.fault is None else f"hook: {payload.fault}",
            risk_classes=self._tools.risk_classes(server, tool),
        )
        if not payload.tool_name and call.ambiguous is None:
            call.ambiguous = "hook: no tool is named"
        if size > self._config.max_inspect_bytes:
            call.args_stream_hash = call.args_raw_hash = sha256_hex(payload.tool_input)
        elif payload.fault is None:
            call.args_raw = with_paths(client, tool, payload.tool_input or b"{}", payload.cwd)
        return call

    def _keep(self, key: str, opened: _Open, now_ns: int, wall_ms: int) -> None:
        self._open[key] = opened
        if len(self._open) > MAX_OPEN:
            self._give_up([next(iter(self._open))], now_ns, wall_ms)
            self._producer.hand_over()

    # -- after it ---------------------------------------------------------------------------------------------

    def _after(self, event: str, payload: Payload, now_ns: int, wall_ms: int) -> None:
        if event == "PostToolUse":
            self._returned(payload, now_ns, wall_ms)
        elif event == "PostToolUseFailure":
            self._failed(payload, now_ns, wall_ms)
        elif event == "PostToolBatch":
            told = set(payload.batch)
            self._give_up([key for key in self._open if key.partition("\0")[0] in told], now_ns, wall_ms)
        elif event in ("Stop", "SubagentStop"):
            agent = payload.agent_id
            self._give_up([key for key, open_ in self._open.items() if open_.agent_id == agent], now_ns, wall_ms)
        elif event == "SessionEnd":
            self._give_up(list(self._open), now_ns, wall_ms)

    def _returned(self, payload: Payload, now_ns: int, wall_ms: int) -> None:
        opened = self._take(payload)
        if opened is None:
            return
        raw = payload.tool_response
        value = read_value(raw) if b'"isError"' in raw else None
        if isinstance(value, dict) and value.get("isError") is True:
            self._settle(opened, "ERROR", payload, now_ns, wall_ms, error=tool_error(value))
        else:
            self._settle(opened, "OK", payload, now_ns, wall_ms)

    def _failed(self, payload: Payload, now_ns: int, wall_ms: int) -> None:
        opened = self._take(payload)
        if opened is None:
            return
        if payload.is_interrupt:
            self._settle(opened, "CANCELLED", payload, now_ns, wall_ms, error=fault("unknown", "cancelled by the user"))
            return
        message = payload.error if payload.error.strip() else "the tool reported an error"
        self._settle(opened, "ERROR", payload, now_ns, wall_ms, error=fault("upstream_error", message))

    def _take(self, payload: Payload) -> _Open | None:
        """The call that a payload tells the end of. Without an id of the client's: the oldest of that tool."""
        wanted = f"{payload.tool_use_id}\0"
        if len(wanted) > 1:
            key = next((key for key in self._open if key.startswith(wanted)), None)
        else:
            tool = self._tools.called(payload.tool_name)[1]
            key = next((key for key, open_ in self._open.items() if open_.record.call.tool_name == tool), None)
        return None if key is None else self._open.pop(key)

    def _settle(
        self,
        opened: _Open,
        status: str,
        payload: Payload,
        now_ns: int,
        wall_ms: int,
        error: dict[str, Any] | None = None,
    ) -> None:
        result = payload.tool_response
        elapsed_ms = max(0, now_ns - opened.began_ns) // 1_000_000
        settle(
            self._producer,
            opened.record,
            status,
            wall_ms,
            now_ns // 1_000_000,
            result,
            latency_ms=elapsed_ms if payload.duration_ms is None else payload.duration_ms,
            error=error,
            bytes_out=len(result or payload.error.encode("utf-8", "replace")),
            max_inspect_bytes=self._config.max_inspect_bytes,
        )

    def _give_up(self, keys: list[str], now_ns: int, wall_ms: int) -> None:
        for key in keys:
            nothing = Payload()
            self._settle(self._open.pop(key), "CANCELLED", nothing, now_ns, wall_ms, fault("unknown", _NOT_TOLD))

    def close(self, status: str) -> None:
        """The client has gone, or we have to."""
        self._give_up(list(self._open), self._clock(), time_ns() // 1_000_000)
        self._producer.close(status)

    # -- the guard itself -------------------------------------------------------------------------------------

    def _settings_changed(self, payload: Payload, wall_ms: int) -> Answer:
        """Of settings that a session has read: they could turn the hooks off."""
        if payload.source not in _SETTINGS:
            return NOTHING
        refused = self._producer.gate.may_refuse
        self._producer.gate.settings_note(payload.source, refused, payload.file_path, wall_ms)
        self._producer.hand_over()
        return block_change(_SETTINGS_KEPT) if refused else NOTHING


def _denied(code: int, message: str, data: dict[str, Any]) -> tuple[Answer, int]:
    answer = deny(message)
    return answer, len(answer.stdout)
