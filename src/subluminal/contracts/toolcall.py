"""Section 7.1: what an adapter gives the core for each tool call. Nothing of the protocol leaks in."""

from __future__ import annotations

from msgspec import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ToolCall(Struct, eq=False, gc=False):
    """One call, as the adapter read it.

    `args_raw` is the arguments' JSON text, byte for byte, or None when it was too large to hold; then
    `args_stream_hash` is the SHA-256 of the raw message bytes observed, and `args_raw_hash` that of the arguments'
    own bytes, if there were any. `ambiguous` names the reason when two sane
    parsers could read the message differently. `continues` is the call_id of the call that this one continues
    (a multi-round-trip leg), else None; `leg` is which of its legs this is. `risk_classes` is what the server said of
    the tool (annotations), None where it has not been heard: the server has not listed the tool.
    `timeout_ms` is after how long without a reply the call is recorded as timed out, where that is known.
    `too_large` says why the message could not be held for judgement; such a call cannot be forwarded.
    `observed`: it has been carried out already, elsewhere. It is judged and charged like any other, and never refused.
    `definition`: not a call yet, but a tool that could be called unseen: access is judged, and nothing is charged.
    """

    server_name: str
    tool_name: str
    args_raw: bytes | None
    bytes_in: int
    transport: str = "unknown"
    call_context: dict[str, Any] | None = None
    args_stream_hash: str | None = None
    ambiguous: str | None = None
    continues: str | None = None
    risk_classes: frozenset[str] | None = frozenset()
    too_large: str | None = None
    leg: int = 1
    args_raw_hash: str | None = None
    timeout_ms: int | None = None
    observed: bool = False
    definition: bool = False
