"""Anthropic Messages for tests: streams as the provider writes them, what passes of them, and clients that read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from subluminal.model.anthropic.api import API
from subluminal.model.words import Answer, Emitted, Later, ModelFault, Observed, Piece, Usage

MAX_CALL_BYTES = 4096
Judge = Callable[[Emitted], str | None]
Call = tuple[str, str]  # name, and arguments as canonical text


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def event(kind: str, **members: object) -> bytes:
    return f"event: {kind}\ndata: {compact({'type': kind, **members})}\n\n".encode()


def message_start(**usage: int) -> bytes:
    stated = usage or {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "some-model", "content": []}
    return event("message_start", message={**message, "stop_reason": None, "usage": stated})


def start(index: int, **block: object) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, kind: str, **members: object) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **members})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def text(index: int, *said: str) -> bytes:
    pieces = [delta(index, "text_delta", text=piece) for piece in said]
    return b"".join([start(index, type="text", text=""), *pieces, stop(index)])


def pieces_of(index: int, *pieces: str) -> bytes:
    return b"".join(delta(index, "input_json_delta", partial_json=piece) for piece in pieces)


def tool_use(index: int, call_id: str, name: str, *pieces: str, **more: object) -> bytes:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}
    return start(index, **block) + pieces_of(index, *pieces) + stop(index)


def message_end(stop_reason: str = "tool_use", **usage: object) -> bytes:
    stated = usage or {"output_tokens": 42}
    return event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage=stated) + event(
        "message_stop"
    )


class Passed:
    """What passed the client, and what was told on the way."""

    def __init__(self) -> None:
        self._passed: list[bytes] = []
        self.calls: list[Emitted] = []
        self.observed: list[Observed] = []
        self.usages: list[Usage] = []
        self.fault: str | None = None

    @property
    def bytes(self) -> bytes:
        return b"".join(self._passed)

    def take(self, pieces: Iterable[Piece], judge: Judge) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                self._passed.append(piece)
            elif isinstance(piece, Emitted):
                self.calls.append(piece)
                self._passed.append(piece.decided(judge(piece)))
            elif isinstance(piece, Later):
                self._passed.append(piece.render())
            else:
                (self.observed if isinstance(piece, Observed) else self.usages).append(piece)  # type: ignore[arg-type]


def allow(call: Emitted) -> str | None:
    return None


def refuse(call: Emitted) -> str | None:
    return "DENYLIST_MATCH: not here"


def refuse_faults(call: Emitted) -> str | None:
    return call.fault or call.too_large


def passed(
    data: bytes | Iterable[bytes], judge: Judge = allow, streamed: bool = True, answer: Answer | None = None
) -> Passed:
    answer = answer or API.answer(streamed, MAX_CALL_BYTES)
    through = Passed()
    try:
        for piece in [data] if isinstance(data, bytes) else data:
            through.take(answer.feed(piece), judge)
        through.take(answer.end(), judge)
    except ModelFault as fault:
        through.fault = fault.why
    return through


# -- clients: each reads as some real one does ----------------------------------------------------------------------


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _without_case(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key.lower(): value for key, value in pairs}


class Client:
    """`named`: goes by the name of an event. `by_index`: keeps blocks by index, else in order of arrival."""

    def __init__(self, named: bool, by_index: bool, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> None:
        self._named = named
        self._by_index = by_index
        self._pairs = pairs
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, str] = {}
        self._arrived = 0
        self.calls: list[Call] = []

    def read(self, stream: bytes) -> list[Call]:
        """The calls that it would carry out: at a block's stop, and at the end for those without one."""
        for name, data in told(stream):
            try:
                value = json.loads(data, object_pairs_hook=self._pairs)
                if isinstance(value, dict) and (not self._named or name in _NAMES):
                    self._take(value)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        for at in list(self._blocks):
            self._carry_out(at)
        return self.calls

    def _take(self, value: dict[str, Any]) -> None:
        kind = value["type"]
        if kind == "message_start":
            for at, block in enumerate(value["message"].get("content") or []):
                self._blocks[at] = block
        elif kind == "content_block_start":
            at = value["index"] if self._by_index else self._arrived
            self._arrived += 1
            self._blocks[at] = value["content_block"]
            self._json[at] = ""
        elif kind == "content_block_delta" and "partial_json" in value["delta"]:
            self._json[value["index"]] += value["delta"]["partial_json"]
        elif kind == "content_block_stop":
            self._carry_out(value["index"])

    def _carry_out(self, at: int) -> None:
        block = self._blocks.get(at)
        if not isinstance(block, dict) or not isinstance(block.get("name"), str) or "input" not in block:
            return
        if block.get("type") in ("server_tool_use", "mcp_tool_use", "text"):
            return
        try:
            given = json.loads(self._json[at], object_pairs_hook=self._pairs) if self._json.get(at) else block["input"]
        except ValueError:
            return
        self.calls.append((block["name"], json.dumps(given, sort_keys=True)))


_NAMES = ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta")


def clients() -> list[Client]:
    return [
        Client(named, by_index, pairs)
        for named in (True, False)
        for by_index in (True, False)
        for pairs in (dict, _first_wins, _without_case)
    ]


def told(stream: bytes) -> list[tuple[str, str]]:
    """Name and data of each event, by the standard's algorithm."""
    found: list[tuple[str, str]] = []
    name, data = "", []
    for line in re.split(r"\r\n|\n|\r", stream.decode("utf-8", "replace").removeprefix("\ufeff")):
        if not line:
            if data:
                found.append((name or "message", "\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        if field == "data":
            data.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ")
    return found
