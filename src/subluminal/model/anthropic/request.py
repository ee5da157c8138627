"""What a request says: results of calls, and tools that the provider would run itself.

Tools without a `type` (or `custom`) are the client's, and so are those whose type names a program of the client's own
machine. Every other type, known or not, is run by the provider. A connector is an entry of `mcp_servers`; entries
`mcp_toolset` among the tools belong to theirs.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from subluminal.contracts.members import (
    MAX_PARTS,
    MAX_TOOLS,
    Edit,
    Span,
    elements_at,
    members,
    members_at,
    splice,
    taken_out,
    text_of,
)
from subluminal.model.anthropic.restoring import restored
from subluminal.model.anthropic.watched import shown_text
from subluminal.model.texts import texts_in
from subluminal.model.words import ModelFault, Offered, Request, Returned

_READ = frozenset(("model", "stream", "messages", "tools", "mcp_servers"))
_READ_OF_TOOL = frozenset(("type", "name", "mcp_server_name"))
_READ_OF_CONNECTOR = frozenset(("type", "name", "url", "authorization_token"))
_CLIENT_RUN = ("bash_", "text_editor_", "computer_", "memory_")
_TOOLSET = "mcp_toolset"
CONNECTOR = "mcp_server"
_OPEN_WORDS = frozenset(("type", "name", "url", "tool_configuration"))
_RESULT = b"tool_result"
_ABSENT = Raw(b"null")


class _Message(Struct, gc=False):
    role: Raw = _ABSENT
    content: Raw = _ABSENT


class _Block(Struct, gc=False):
    type: Raw = _ABSENT
    tool_use_id: Raw = _ABSENT
    content: Raw = _ABSENT
    is_error: Raw = _ABSENT


_messages = msgspec.json.Decoder(list[_Message]).decode
_blocks = msgspec.json.Decoder(list[_Block]).decode
_value = msgspec.json.Decoder(Any).decode


class MessagesRequest(Request):
    def without(self, refused: list[Offered]) -> bytes:
        body = self.body
        top = members(body, _READ)
        servers = {offered.server for offered in refused if offered.kind == CONNECTOR}
        definitions = {offered.definition for offered in refused}
        edits: list[Edit] = []
        for key in ("tools", "mcp_servers"):
            spans = _entries(body, top, key)
            taken = {
                i
                for i, span in enumerate(spans)
                if span.of(body) in definitions or (key == "tools" and _toolset_of(body, span) in servers)
            }
            edits += taken_out(spans, taken)
        return splice(body, edits)


def read_request(body: bytes) -> MessagesRequest:
    top = members(body, _READ)
    if "messages" in top:
        whole = restored(body, top["messages"])
        if whole is not body:
            body, top = whole, members(whole, _READ)
    model = text_of(top["model"].of(body)) if "model" in top else None
    request = MessagesRequest(body, _streamed(body, top), model or "")
    request.results = _results(top["messages"].of(body)) if "messages" in top else []
    request.offered = [
        *(tool for span in _entries(body, top, "tools") if (tool := _tool(body, span)) is not None),
        *(_connector(body, span) for span in _entries(body, top, "mcp_servers")),
    ]
    return request


def _streamed(body: bytes, top: dict[str, Span]) -> bool:
    stated = top["stream"].of(body) if "stream" in top else b"false"
    if stated not in (b"true", b"false", b"null"):
        raise ModelFault("`stream` is neither true nor false")
    return stated == b"true"


# -- results ------------------------------------------------------------------------------------------------------


def _results(messages: bytes) -> list[Returned]:
    """As far as they are told in the known form: the provider refuses all other."""
    found: list[Returned] = []
    try:
        for message in _messages(messages):
            content = bytes(message.content)
            if _RESULT in content and content[:1] == b"[" and bytes(message.role) == b'"user"':
                found += _results_in(content)
            if len(found) > MAX_PARTS:
                raise ModelFault(f"more than {MAX_PARTS:,} results")
    except (ValueError, RecursionError):
        pass
    return found


def _results_in(content: bytes) -> list[Returned]:
    found: list[Returned] = []
    for block in _blocks(content):
        if bytes(block.type) != b'"tool_result"':
            continue
        call_id = text_of(bytes(block.tool_use_id))
        if call_id is None:
            continue
        result = bytes(block.content)
        failed = shown_text(_value(result)) if bytes(block.is_error) == b"true" else None
        found.append(Returned(call_id, result, failed))
    return found


# -- tools of the provider ----------------------------------------------------------------------------------------


def _entries(body: bytes, top: dict[str, Span], key: str) -> list[Span]:
    if key not in top or top[key].of(body) == b"null":
        return []
    return elements_at(body, top[key], MAX_TOOLS)


def _tool(body: bytes, span: Span) -> Offered | None:
    definition = span.of(body)
    found = members(definition, _READ_OF_TOOL)
    if "type" not in found or found["type"].of(definition) == b"null":
        return None
    kind = text_of(found["type"].of(definition))
    if kind is None:
        raise ModelFault("a tool whose type is no text")
    if kind in ("custom", _TOOLSET) or kind.startswith(_CLIENT_RUN):
        return None
    return Offered(kind, _text(definition, found, "name") or kind, definition)


def _connector(body: bytes, span: Span) -> Offered:
    definition = span.of(body)
    found = members(definition, _READ_OF_CONNECTOR)
    name = _text(definition, found, "name")
    if not name or not _text(definition, found, "url"):
        raise ModelFault("a connector without name or url")
    secrets = [text for key, inner in found.items() if key not in _OPEN_WORDS for text in _hidden(inner.of(definition))]
    return Offered(CONNECTOR, "", definition, name, secrets)


def _toolset_of(body: bytes, span: Span) -> str | None:
    """The connector that an entry of the tools belongs to."""
    found = members_at(body, span, _READ_OF_TOOL)
    if _text(body, found, "type") != _TOOLSET:
        return None
    return _text(body, found, "mcp_server_name")


def _text(text: bytes, found: dict[str, Span], key: str) -> str | None:
    return text_of(found[key].of(text)) if key in found else None


def _hidden(raw: bytes) -> list[str]:
    try:
        return texts_in(_value(raw))
    except (ValueError, RecursionError):
        raise ModelFault("a connector's definition that is not read") from None
