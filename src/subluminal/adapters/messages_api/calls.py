"""A tool call of a model as rules and the record know it: the same at a hook, at a shim and here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.adapters.tools.codex import hook_input, hook_name
from subluminal.adapters.tools.names import Tools, with_paths
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.tool_use import MAX_ID_CHARS
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import CONNECTOR_TOOL, PROVIDER_SERVER

if TYPE_CHECKING:
    from subluminal.host.config import Config
    from subluminal.model.words import Api, Emitted, Observed, Offered

TRANSPORT = "messages_api"
UNREADABLE = "(unreadable)"
# Under which the client's own id of a call stands at its other doors (`contracts.tool_use`).
_ID_OF = {"anthropic": "claudecode/toolUseId", "responses": "callId"}
_CODEX = "responses"


class CallReading:
    """Of one run. `directory`: where its client works, as far as that is known."""

    def __init__(self, run_id: str, config: Config, directory: str | None) -> None:
        self._tools = Tools(run_id, config.server_names())
        self._max_inspect_bytes = config.max_inspect_bytes
        self._directory = directory or ""

    def emitted(self, api: Api, emitted: Emitted) -> ToolCall:
        name, arguments, start = emitted.name, emitted.arguments, self._directory
        is_codex = api.name == _CODEX
        if is_codex:
            name = hook_name(name, emitted.namespace)
        server, tool = self._tools.called(name or UNREADABLE)
        call = self._call(server, tool, arguments, api, emitted.id)
        call.risk_classes = self._tools.risk_classes(server, tool)
        if emitted.fault is not None:
            call.ambiguous = f"model: {emitted.fault}"
        elif not emitted.name:
            call.ambiguous = "model: no tool is named"
        if emitted.too_large is not None:
            call.args_raw, call.args_raw_hash = None, None
            call.too_large = emitted.too_large
        if is_codex and call.args_raw is not None:
            arguments, start = hook_input(emitted.name, emitted.namespace, call.args_raw, start)
            call.args_raw = with_paths("codex", tool, arguments, start)
        return call

    def observed(self, api: Api, observed: Observed) -> ToolCall:
        """What the provider has carried out already."""
        server = observed.server or PROVIDER_SERVER
        call = self._call(server, observed.name or UNREADABLE, observed.arguments, api, observed.id)
        call.risk_classes = None if observed.server else frozenset()
        return call

    def offered(self, offered: Offered) -> ToolCall:
        """The definition of a tool that the provider would run: its members are the arguments."""
        server, tool = (offered.server, CONNECTOR_TOOL) if offered.server else (PROVIDER_SERVER, offered.name)
        call = self._call(server, tool or offered.kind or UNREADABLE, offered.definition)
        call.definition = True
        return call

    def unreadable(self, why: str, size: int) -> ToolCall:
        """An answer of which nobody can say what it means."""
        return ToolCall(PROVIDER_SERVER, UNREADABLE, None, size, TRANSPORT, ambiguous=f"model: {why}")

    def _call(self, server: str, tool: str, arguments: bytes, api: Api | None = None, call_id: str = "") -> ToolCall:
        context: dict[str, Any] | None = None
        if api is not None and 0 < len(call_id) <= MAX_ID_CHARS:
            context = {_ID_OF.get(api.name, _ID_OF["anthropic"]): call_id}
        call = ToolCall(server, tool, None, len(arguments), TRANSPORT, context)
        if len(arguments) > self._max_inspect_bytes:
            call.args_stream_hash = call.args_raw_hash = sha256_hex(arguments)
        else:
            call.args_raw = arguments or b"{}"
        return call
