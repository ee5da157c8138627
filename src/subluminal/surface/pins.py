"""Pins: what a person has approved, in a lock that can be read, reviewed and committed.

One JSON file, sorted, one member a line: a change in it is a change of what the server says, line by line. A lock holds
the definitions themselves, so that a reviewer sees the text and not a hash; characters that show nothing stand in it as
escapes. A fingerprint that does not belong to its definition means that somebody has edited one of them.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from subluminal.contracts.errors import ToolsError
from subluminal.surface.differences import Version
from subluminal.surface.items import KINDS, item_key, read_item
from subluminal.surface.texts import SHOWS_NOTHING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "subluminal-tools-lock"
FORMAT_VERSION = 1
MAX_LOCK_BYTES = 16 * 1024 * 1024


class Pin(Version, eq=False):
    kind: str = ""
    name: str = ""


# By server, then by `item_key`.
Lock = dict[str, dict[str, Pin]]


class _Pinned(Struct, forbid_unknown_fields=True):
    kind: str
    name: str
    fingerprint: str
    fields: dict[str, str] | UnsetType = UNSET
    definition: Raw | UnsetType = UNSET


class _File(Struct, forbid_unknown_fields=True):
    format: str
    format_version: int
    servers: dict[str, list[_Pinned]]


_decode = msgspec.json.Decoder(_File).decode


def parse(text: bytes) -> Lock:
    """ToolsError: a clause that goes on behind the path of the file."""
    try:
        file = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ToolsError(f"is no lock of tools: {fault}") from None
    if file.format != FORMAT or file.format_version != FORMAT_VERSION:
        raise ToolsError(f"is of another format ({file.format!r} {file.format_version}); this Subluminal reads 1")
    return {server: {pin.key: pin.pin for pin in map(_Read, pinned)} for server, pinned in file.servers.items()}


class _Read:
    """One entry, checked."""

    __slots__ = ("key", "pin")

    def __init__(self, entry: _Pinned) -> None:
        if entry.kind not in KINDS:
            raise ToolsError(f"pins a {entry.kind!r}, which is none of {', '.join(KINDS)}")
        self.key = item_key(entry.kind, entry.name)
        definition = b"" if entry.definition is UNSET else bytes(entry.definition)
        fields = entry.fields
        if fields is UNSET:
            item = read_item(entry.kind, entry.name, definition)
            if item.fingerprint != entry.fingerprint:
                raise ToolsError(f"pins {self.key} with a fingerprint that is not that of its definition")
            fields, definition = item.fields, item.definition or b""
        self.pin = Pin(entry.fingerprint, fields, definition.decode(), entry.kind, entry.name)


def render(lock: Mapping[str, Mapping[str, Pin]]) -> bytes:
    servers = []
    for server in sorted(lock):
        pins = [_entry(pin) for _, pin in sorted(lock[server].items())]
        if pins:
            servers.append(b"%s:[%s]" % (_quoted(server), b",".join(pins)))
    head = b'{"format":%s,"format_version":%d,"servers":{%s}}' % (_quoted(FORMAT), FORMAT_VERSION, b",".join(servers))
    return _escaped(msgspec.json.format(head, indent=2)) + b"\n"


def _entry(pin: Pin) -> bytes:
    members = [b'"kind":' + _quoted(pin.kind), b'"name":' + _quoted(pin.name)]
    members.append(b'"fingerprint":' + _quoted(pin.fingerprint))
    definition = pin.definition.encode()
    if not definition or read_item(pin.kind, pin.name, definition).fingerprint != pin.fingerprint:
        # Too large to keep, masked, or listed twice: then the digests of its members stand for it.
        members.append(b'"fields":' + msgspec.json.encode(dict(sorted(pin.fields.items()))))
    if definition:
        members.append(b'"definition":' + definition)
    return b"{" + b",".join(members) + b"}"


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def _escaped(text: bytes) -> bytes:
    """JSON in which every character shows: these stand in strings only."""
    if text.isascii():
        return text
    return re.sub(SHOWS_NOTHING, _escape, text.decode()).encode()


def _escape(found: re.Match[str]) -> str:
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in _halves(found[0].encode("utf-16-be")))


def _halves(encoded: bytes) -> list[bytes]:
    return [encoded[at : at + 2] for at in range(0, len(encoded), 2)]
