"""Event lines to events, of every 0.x version of the interface pack. The contract's types do the checking.

A later MINOR only adds (§0.1): unknown fields are ignored, unknown event types and words are kept whole. A MAJOR may
have given the old names another meaning: its events are refused, with the sentence of `OTHER_MAJOR`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from subluminal.contracts import events as ev
from subluminal.contracts.moments import is_moment
from subluminal.contracts.terms import Timestamp
from subluminal.contracts.vocabulary import EVENT_TYPES, INTERFACE_VERSION

# No event of ours comes near: two previews of 16 KiB, escaped, and their envelope.
MAX_LINE_BYTES = 1 << 20
MAX_SEQ = (1 << 63) - 1
_MAJOR = INTERFACE_VERSION.partition(".")[0]
_MINOR = int(INTERFACE_VERSION.split(".")[1])
OTHER_MAJOR = (
    "it is written by version {} of the interface pack; this Subluminal reads "
    + f"{_MAJOR}.x ({INTERFACE_VERSION}): upgrade what reads it"
)


class BadEvent(ValueError):
    """A line that cannot be stored. The text says why and never repeats the line."""


class NewerEvent(Struct, kw_only=True):
    """Of a later version, with a type or a word that is not known here: its envelope, and nothing more is read."""

    type: str
    v: str
    ts: Timestamp
    run_id: str
    agent_id: str
    client: str
    env: str
    source: ev.Source
    principal: str | UnsetType = UNSET
    workload: dict[str, Any] | UnsetType = UNSET


# The types that make up nearly all of a ledger, with `ts` left to `is_moment`.
class Start(ev.ToolCallStart, tag="tool_call_start", kw_only=True):
    ts: str


class Decision(ev.ToolCallDecision, tag="tool_call_decision", kw_only=True):
    ts: str


class End(ev.ToolCallEnd, tag="tool_call_end", kw_only=True):
    ts: str


_decode = msgspec.json.Decoder(
    Start
    | Decision
    | End
    | ev.RunStart
    | ev.RunEnd
    | ev.HintIssued
    | ev.PolicyLoaded
    | ev.SecretInjection
    | ev.ShimHealth
    | ev.BreakerTrip
    | ev.AgentEventRecorded
    | ev.SettingsChange
    | ev.ModelMessage
    | ev.ToolsSeen
    | ev.Promote
).decode
_decode_newer = msgspec.json.Decoder(NewerEvent).decode

AnyEvent = ev.Event | NewerEvent


def read_event(line: bytes) -> AnyEvent:
    try:
        event: AnyEvent = _decode(line)
    except msgspec.ValidationError as error:
        event = _read_newer(line, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadEvent(f"not one JSON object: {error}") from None
    if event.v != INTERFACE_VERSION and _is_other_major(event.v):
        raise BadEvent(OTHER_MAJOR.format(event.v[:20]))
    if not event.run_id or not event.source.shim_id:
        raise BadEvent("run_id and source.shim_id must not be empty")
    if event.source.seq is not UNSET and event.source.seq > MAX_SEQ:
        raise BadEvent("source.seq is beyond 64 bits")
    if not is_moment(event.ts):
        raise BadEvent("ts is no date")
    return event


def _read_newer(line: bytes, fault: str) -> NewerEvent:
    try:
        event = _decode_newer(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadEvent(fault) from None
    if event.type in EVENT_TYPES and not _is_later_minor(event.v) and not _is_other_major(event.v):
        raise BadEvent(fault)
    return event


def _is_other_major(version: str) -> bool:
    """What is no version at all is taken for one of ours: the event's own fields tell what it is."""
    major = version.partition(".")[0]
    return major != _MAJOR and major.isascii() and major.isdecimal()


def _is_later_minor(version: str) -> bool:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return major == _MAJOR and minor.isascii() and minor.isdecimal() and len(minor) < 10 and int(minor) > _MINOR
