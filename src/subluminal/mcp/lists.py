"""The list of tools that a client gets: the server's, byte for byte, but for tools that are left out of it.

One editor, whatever the reason. A list that two parsers could read differently cannot be edited, and neither can one
that is too large to be held: it is not passed on, and its client is told why. Only where a policy leaves tools out.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import quote
from subluminal.contracts.members import (
    Edit,
    Misread,
    Span,
    elements_at,
    members,
    members_at,
    splice,
    taken_out,
    text_of,
)
from subluminal.contracts.vocabulary import BLOCK, ERROR_CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A list that may have to be edited is held up to this size; a hundred times that of large real ones.
MAX_EDITED_BYTES = 8 * 1024 * 1024
MAX_LISTED = 100_000
TOO_LARGE = f"it is larger than {MAX_EDITED_BYTES >> 20} MiB"


def edited(message: bytes, hides: Callable[[str], bool]) -> bytes:
    """The reply without the tools that `hides` names; the same object where none is. Misread: it cannot be done."""
    whole = Span(0, len(message), 0)
    edits = _edits(message, whole, hides)
    return splice(message, edits)


def edited_batch(message: bytes, hides: Callable[[str], bool], lists: Callable[[bytes], bool]) -> bytes:
    """The same for an array of replies, of which `lists` tells those that are lists."""
    edits: list[Edit] = []
    for span in elements_at(message, Span(0, len(message), 0)):
        if lists(span.of(message)):
            edits += _edits(message, span, hides)
    return splice(message, edits)


def _edits(message: bytes, span: Span, hides: Callable[[str], bool]) -> list[Edit]:
    reply = members_at(message, span, ("id", "result")) if span.start else members(message, ("id", "result"))
    if "result" not in reply or message[reply["result"].start : reply["result"].start + 1] != b"{":
        return []
    result = members_at(message, reply["result"], ("tools",))
    if "tools" not in result:
        return []
    tools = elements_at(message, result["tools"], MAX_LISTED)
    taken = set()
    for number, tool in enumerate(tools):
        named = (
            members_at(message, tool, ("name",)).get("name") if message[tool.start : tool.start + 1] == b"{" else None
        )
        name = None if named is None else text_of(named.of(message))
        if name is not None and hides(name):
            taken.add(number)
    return taken_out(tools, taken)


def withheld(id_raw: bytes, server_name: str, why: str) -> bytes:
    """In place of a list that cannot be edited."""
    text = f"The list of tools of {server_name} was not passed on: {why}, so that policy cannot be applied to it."
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}' % (
        id_raw, ERROR_CODES[BLOCK], quote(text).encode("utf-8", "replace"),
    )  # fmt: skip


__all__ = ["MAX_EDITED_BYTES", "TOO_LARGE", "Misread", "edited", "edited_batch", "withheld"]
