"""A request: what it asks for, which results it brings, and its history as the provider knows it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from subluminal.contracts.members import MAX_PARTS, MAX_TOOLS, Edit, Span, elements_at, members, splice, text_of
from subluminal.model.refused import PREFIX
from subluminal.model.responses.items import Item, read_item
from subluminal.model.responses.offered import Tools, chosen_again, read_tools
from subluminal.model.responses.remembered import Remembered
from subluminal.model.responses.told import restored, restored_output
from subluminal.model.words import ModelFault, Offered, Request, Returned

_READ = frozenset(("stream", "model", "input", "tools", "tool_choice", "previous_response_id"))
_PREFIX = PREFIX.encode()
_BOOLEANS = {b"true": True, b"false": False, b"null": False, b"": False}
# What a server of the provider offered: a record, no definition.
_LISTED = "mcp_list_tools"
_BLANK = b" \t\r\n"


class ResponsesRequest(Request):
    """`read`: the request as it came. `edits` make `body` of it."""

    read: bytes = b""
    edits: Sequence[Edit] = ()
    tools: Sequence[Tools] = ()
    choice: Span | None = None

    def without(self, refused: list[Offered]) -> bytes:
        edits = [edit for tools in self.tools for edit in tools.without(refused)]
        if self.choice is not None:
            edits += chosen_again(self.read, self.choice, refused)
        return splice(self.read, [*self.edits, *edits]) if edits else self.body


class _Place(Struct, eq=False):
    span: Span
    item: Item


def read_request(body: bytes, remembered: Remembered) -> ResponsesRequest:
    if not body.strip(_BLANK):
        return ResponsesRequest(body, False)  # a request for something that is there
    at = members(body, _READ)
    streamed = _BOOLEANS.get(_raw(body, at, "stream"))
    if streamed is None:
        raise ModelFault("`stream` is neither true nor false")
    history = _History(body, remembered.of(text_of(_raw(body, at, "previous_response_id"))))
    if _raw(body, at, "input")[:1] == b"[":
        history.read(elements_at(body, at["input"], MAX_PARTS))
    tools = history.tools
    if _raw(body, at, "tools")[:1] == b"[":
        tools = [read_tools(body, at["tools"]), *tools]
    offered = [offered for found in tools for _, offered in found.offered]
    if len(offered) > MAX_TOOLS:
        raise ModelFault(f"more than {MAX_TOOLS:,} tools of the provider")
    return ResponsesRequest(
        body=splice(body, history.edits),
        streamed=streamed,
        model=text_of(_raw(body, at, "model")) or "",
        results=history.results,
        offered=offered,
        read=body,
        edits=history.edits,
        tools=tools,
        choice=at.get("tool_choice"),
    )


class _History:
    __slots__ = ("_body", "_refused", "edits", "results", "tools")

    def __init__(self, body: bytes, refused: dict[str, tuple[str, str]]) -> None:
        self._body = body
        self._refused = dict(refused)  # by call_id: kind of the call, and why
        self.edits: list[Edit] = []
        self.results: list[Returned] = []
        self.tools: list[Tools] = []

    def read(self, spans: list[Span]) -> None:
        items = [_Place(span, read_item(span.of(self._body))) for span in spans if self._body[span.start] == ord("{")]
        if _PREFIX in self._body:
            for place in items:
                self._put_back(place)
        for place in items:
            if place.item.type.endswith("_output"):
                self._result(place)
            elif place.item.type != _LISTED:
                self._definitions(place)

    def _put_back(self, place: _Place) -> None:
        found = restored(place.item)
        if found is not None:
            self._refused[place.item.call_id] = (found.kind, found.text)
            self._replace(place, found.item)

    def _result(self, place: _Place) -> None:
        item = place.item
        refused = self._refused.get(item.call_id)
        if refused is not None and item.raw("call_id"):
            self._replace(place, restored_output(item, *refused))
            return
        self._definitions(place)
        if item.call_id:
            content = item.raw("output") or item.raw("tools")
            self.results.append(Returned(item.call_id, content, _failure(item)))

    def _definitions(self, place: _Place) -> None:
        """Some items bring further tools."""
        span = place.item.at.get("tools")
        if span is not None and place.item.raw("tools")[:1] == b"[":
            by = place.span.start
            self.tools.append(read_tools(self._body, Span(span.start + by, span.end + by, span.key + by)))

    def _replace(self, place: _Place, item: bytes) -> None:
        self.edits.append(Edit(place.span.start, place.span.end, item))


def _failure(item: Item) -> str | None:
    if item.raw("success") == b"false":
        return "success: false"
    status = item.said("status")
    if status in ("failed", "incomplete"):
        return f"status: {status}"
    error = item.raw("error")
    return (text_of(error) or error.decode()) if error else None


def _raw(body: bytes, at: dict[str, Span], key: str) -> bytes:
    span = at.get(key)
    return span.of(body) if span else b""
