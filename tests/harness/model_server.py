"""A model on loopback that says what a test wants, in Anthropic's form, and whatever else a test sends by hand.

    with scripted_model(says(calls("Bash", {"command": "ls"})), says(text("Done."))) as model:
        model.url, model.requests             what it was asked, in order

A turn is a handler of `http_servers`: `says` answers as it was asked (streamed or not), `Cut` in the middle, and any
function of the request and the wire does as it likes. When the turns are used up it says "Done.".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.http_servers import Handler, Heard, RawServer, Wire

Block = dict[str, Any]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def calls(name: str, arguments: dict[str, Any] | str | None = None, call_id: str = "toolu_1") -> Block:
    """`arguments` as a text are spelled exactly so."""
    spelled = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "tool_use", "id": call_id, "name": name, "spelled": spelled}


def message_events(*blocks: Block, piece: int = 16) -> list[bytes]:
    """The events of one streamed message, each as its bytes."""
    events = [_event("message_start", message=_head([], None))]
    for index, block in enumerate(blocks):
        events += block_events(index, block, piece)
    stop = _stop_reason(blocks)
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append(_event("message_delta", delta=delta, usage={"output_tokens": 7}))
    events.append(_event("message_stop"))
    return events


def block_events(index: int, block: Block, piece: int = 16) -> list[bytes]:
    if block["type"] == "text":
        begun, key, kind, whole = {"type": "text", "text": ""}, "text", "text_delta", block["text"]
    else:
        begun = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
        key, kind, whole = "partial_json", "input_json_delta", block["spelled"]
    events = [_event("content_block_start", index=index, content_block=begun)]
    for at in range(0, len(whole), piece):
        events.append(_event("content_block_delta", index=index, delta={"type": kind, key: whole[at : at + piece]}))
    return [*events, _event("content_block_stop", index=index)]


def whole_message(*blocks: Block) -> bytes:
    """The same in one JSON text. Arguments are spelled as they were given."""
    said = []
    for block in blocks:
        if block["type"] == "text":
            said.append(json.dumps(block))
        else:
            head = json.dumps({"type": "tool_use", "id": block["id"], "name": block["name"]})
            said.append(head[:-1] + f', "input": {block["spelled"]}}}')
    message = json.dumps({**_head(None, _stop_reason(blocks)), "usage": {"input_tokens": 11, "output_tokens": 7}})
    return message.replace('"content": null', f'"content": [{", ".join(said)}]').encode()


def says(*blocks: Block, piece: int = 16) -> Handler:
    def turn(heard: Heard, wire: Wire) -> None:
        if not heard.message.get("stream"):
            wire.body(whole_message(*blocks), Content_Type="application/json")
            return
        wire.stream(Request_Id="req_1")
        for event in message_events(*blocks, piece=piece):
            wire.send(event)

    return turn


def breaks_off(*events: bytes) -> Handler:
    """A stream that ends behind these."""

    def turn(heard: Heard, wire: Wire) -> None:
        wire.stay = False
        wire.head(200, None, Content_Type="text/event-stream", Transfer_Encoding="chunked")
        for event in events:
            wire.send(b"%x\r\n%b\r\n" % (len(event), event))

    return turn


class Model(RawServer):
    """`url` is the base that clients are given. Requests that are no POST get an empty list of models."""

    def __init__(self, turns: list[Handler], path: str) -> None:
        self._turns = turns
        super().__init__({"*": self._answer, "response": self._answer, "GET": _models, "HEAD": _nothing}, path)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [heard.message for heard in list(self.heard) if heard.method == "POST"]

    def _answer(self, heard: Heard, wire: Wire) -> None:
        turn = self._turns.pop(0) if self._turns else says(text("Done."))
        turn(heard, wire)

    def add(self, *turns: Handler) -> None:
        self._turns += turns

    def script(self, *turns: Handler) -> None:
        """These and no others: whatever was left is dropped."""
        self._turns[:] = turns


def _models(heard: Heard, wire: Wire) -> None:
    wire.json({"data": [], "object": "list"})


def _nothing(heard: Heard, wire: Wire) -> None:
    wire.head(200)


@contextmanager
def scripted_model(*turns: Handler, path: str = "") -> Iterator[Model]:
    model = Model(list(turns), path)
    try:
        yield model
    finally:
        model.close()


def _stop_reason(blocks: tuple[Block, ...]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _head(content: list[Any] | None, stop_reason: str | None) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()
