"""The agent event envelope: one shape for what any agent program reports, with every bound enforced here.

Pure functions, no I/O. Order of enforcement: channel, message, data, then text. Traps:

* Bounds are bytes of UTF-8, not characters. The size of `data` is that of compact JSON that is not ASCII-escaped.
* A Python string can hold lone surrogates, which no UTF-8 encoder accepts. They become U+FFFD here, before any
  measuring, so that a bounded event can always be written.
* Only `TextOutput` may become several events; any other kind that carries too much text has it truncated.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

MAX_CHANNEL_BYTES = 128
MAX_TEXT_BYTES = 65_536
MAX_MESSAGE_BYTES = 4_096
MAX_DATA_BYTES = 65_536
TRUNCATION_SUFFIX = "…(truncated)"
ELLIPSIS = "…"

AgentKind = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]  # `$` would let a final newline pass
CompletionStatus = Literal["SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT"]

_SUFFIX_BYTES = len(TRUNCATION_SUFFIX.encode())
_encode_json = msgspec.json.Encoder().encode


class AgentEventKind(enum.StrEnum):
    TextOutput = "TextOutput"
    ToolCall = "ToolCall"
    ToolResult = "ToolResult"
    Status = "Status"
    Error = "Error"
    Unknown = "Unknown"


class AgentEvent(Struct, frozen=True, omit_defaults=True):
    """Something an agent reported. `text` is stable for TextOutput, `message` for Status and Error."""

    agent_kind: AgentKind
    kind: AgentEventKind
    channel: str | None = None
    text: str | None = None
    message: str | None = None
    data: Any = None


class AgentCompletion(Struct, frozen=True, omit_defaults=True):
    """How a run ended. `exit_code` is negative for a signal and absent when no process was started."""

    agent_kind: AgentKind
    status: CompletionStatus
    exit_code: int | None = None
    final_text: str | None = None
    message: str | None = None
    data: Any = None


def bound_event(event: AgentEvent) -> list[AgentEvent]:
    """The event within every bound: one event, or several of kind TextOutput whose texts join to the original."""
    channel = _bound_channel(event.channel)
    message = None if event.message is None else truncate_utf8(event.message, MAX_MESSAGE_BYTES)
    data = _bound_data(event.data)
    chunks = _bound_text(event)
    if (
        channel is event.channel
        and message is event.message
        and data is event.data
        and len(chunks) == 1
        and chunks[0] is event.text
    ):
        return [event]
    return [AgentEvent(event.agent_kind, event.kind, channel, chunk, message, data) for chunk in chunks]


def bound_completion(completion: AgentCompletion) -> AgentCompletion:
    """The completion within the same bounds; its final text is truncated, since a completion cannot be split."""
    text, message = completion.final_text, completion.message
    return replace(
        completion,
        final_text=None if text is None else truncate_utf8(text, MAX_TEXT_BYTES),
        message=None if message is None else truncate_utf8(message, MAX_MESSAGE_BYTES),
        data=_bound_data(completion.data),
    )


def truncate_utf8(text: str, bound_bytes: int) -> str:
    """`text` if it fits, else its beginning and the suffix, never more than `bound_bytes` bytes of valid UTF-8."""
    text = well_formed(text)
    if _fits(text, bound_bytes):
        return text
    if bound_bytes > _SUFFIX_BYTES:
        return _head(text, bound_bytes - _SUFFIX_BYTES) + TRUNCATION_SUFFIX
    return _head(ELLIPSIS, bound_bytes)


def split_utf8(text: str, bound_bytes: int) -> list[str]:
    """Pieces of at most `bound_bytes` bytes that join to `text`, cut between characters, in one pass.

    A bound smaller than one character takes that character whole.
    """
    text = well_formed(text)
    if _fits(text, bound_bytes):
        return [text]
    raw = text.encode()
    pieces = []
    start = 0
    while start < len(raw):
        end = _character_start(raw, start + bound_bytes)
        if end <= start:
            end = _character_end(raw, start)
        pieces.append(raw[start:end].decode())
        start = end
    return pieces


def well_formed(text: str) -> str:
    """The same text when it can be UTF-8; else with surrogate pairs joined and lone surrogates as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _bound_channel(channel: str | None) -> str | None:
    if channel is None:
        return None
    channel = well_formed(channel)
    return channel if _fits(channel, MAX_CHANNEL_BYTES) else None


def _bound_text(event: AgentEvent) -> list[str] | list[None]:
    if event.text is None:
        return [None]
    if event.kind is AgentEventKind.TextOutput:
        return split_utf8(event.text, MAX_TEXT_BYTES)
    return [truncate_utf8(event.text, MAX_TEXT_BYTES)]


def _bound_data(data: Any) -> Any:
    if data is None:
        return None
    try:
        size = len(_encode_json(data))
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, ValueError):
        return _bound_odd_data(data)
    return data if size <= MAX_DATA_BYTES else _dropped("oversize")


def _bound_odd_data(data: Any) -> Any:
    """Values the fast encoder refuses: lone surrogates are mended; what is no JSON value at all is dropped as such."""
    try:
        mended = _mend(data)
        size = len(_encode_json(mended))
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, ValueError):
        return _dropped("not_json")
    return mended if size <= MAX_DATA_BYTES else _dropped("oversize")


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mend(item) for item in value]
    return value


def _dropped(reason: str) -> dict[str, dict[str, str]]:
    return {"dropped": {"reason": reason}}


def _fits(text: str, bound_bytes: int) -> bool:
    # A character takes one to four bytes, so most texts are settled without encoding them.
    if len(text) > bound_bytes:
        return False
    return text.isascii() or len(text) * 4 <= bound_bytes or len(text.encode()) <= bound_bytes


def _head(text: str, bound_bytes: int) -> str:
    raw = text[:bound_bytes].encode()
    return raw[: _character_start(raw, bound_bytes)].decode()


def _character_start(raw: bytes, position: int) -> int:
    """The nearest character boundary at or before `position`."""
    if position >= len(raw):
        return len(raw)
    while position > 0 and raw[position] & 0xC0 == 0x80:
        position -= 1
    return position


def _character_end(raw: bytes, start: int) -> int:
    end = start + 1
    while end < len(raw) and raw[end] & 0xC0 == 0x80:
        end += 1
    return end
