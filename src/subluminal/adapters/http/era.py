"""What the headers of a request say of its message (revision 2026-07-28), and whether the message says the same.

Older servers ignore these headers and newer ones refuse a mismatch; a gateway in between may go by them. So a request
whose headers and body disagree has two readings.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from typing import TYPE_CHECKING

from subluminal.http.heads import RequestHead
from subluminal.mcp.headers import METHOD, NAME, NAMED_BY, PROTOCOL_VERSION
from subluminal.mcp.message.reading import BATCH, CALL, read_value

if TYPE_CHECKING:
    from subluminal.mcp.message.reading import Reading

STATELESS = b"2026-07-28"
# Revisions in which a session begins with a handshake.
HANDSHAKE = frozenset((b"2024-11-05", b"2025-03-26", b"2025-06-18", b"2025-11-25"))


def is_stateless(head: RequestHead, reading: Reading | None = None) -> bool:
    return head.said(PROTOCOL_VERSION) == STATELESS or (reading is not None and reading.era_2026)


def is_later(head: RequestHead) -> bool:
    """It names a revision that we do not know: whether there is such a one, a server says to whoever asks."""
    version = head.said(PROTOCOL_VERSION)
    return version is not None and version not in HANDSHAKE


def mismatch(head: RequestHead, reading: Reading) -> str | None:
    """Why headers and message cannot both be right; None if they can."""
    index = head.index
    if index is not None and METHOD not in index and NAME not in index:
        return None
    method, name = head.said(METHOD), head.said(NAME)
    if method is None and name is None:
        return None
    if reading.kind == BATCH:
        return "a header names one method, and the message is a batch"
    if method is not None and decoded(method) != reading.method:
        return "the header Mcp-Method names another method"
    if name is not None and decoded(name) != _name_in(reading):
        return "the header Mcp-Name names another tool or resource"
    return None


def _name_in(reading: Reading) -> str | None:
    if reading.kind == CALL:
        return reading.tool_name
    member = NAMED_BY.get(reading.method)
    value = read_value(reading.raw) if member is not None else None
    params = value.get("params") if isinstance(value, dict) else None
    found = params.get(member) if isinstance(params, dict) else None
    return found if isinstance(found, str) else None


def decoded(value: bytes) -> str | None:
    """A header's value, or what it encodes; None if it encodes nothing."""
    if value[:9].lower() == b"=?base64?" and value[-2:] == b"?=":
        try:
            return b64decode(value[9:-2], validate=True).decode()
        except (Error, UnicodeDecodeError, ValueError):
            return None
    return value.decode("latin-1")
