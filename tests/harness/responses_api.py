"""Answers of the Responses API as a provider streams them, and a door that judges and passes on what comes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from subluminal.model.responses.api import ResponsesApi
from subluminal.model.words import Answer, Emitted, Later, ModelFault, Observed, Piece, Usage

MAX_CALL_BYTES = 1 << 20
USAGE = {
    "input_tokens": 110,
    "input_tokens_details": {"cached_tokens": 90},
    "output_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 127,
}

Refuse = Callable[[Emitted], str | None]


def event(kind: str, **members: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), compact({"type": kind, **members}))


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def function_call(name: str, arguments: str, place: int = 0, **more: Any) -> dict[str, Any]:
    ids = {"id": f"fc_{place}", "type": "function_call", "status": "completed"}
    return {**ids, "arguments": arguments, "call_id": f"call_{place}", "name": name, **more}


def custom_call(name: str, text: str, place: int = 0) -> dict[str, Any]:
    ids = {"id": f"ctc_{place}", "type": "custom_tool_call", "status": "completed"}
    return {**ids, "call_id": f"call_{place}", "input": text, "name": name}


def shell_call(command: list[str], place: int = 0) -> dict[str, Any]:
    ids = {"id": f"lsh_{place}", "type": "local_shell_call", "status": "completed"}
    return {**ids, "call_id": f"call_{place}", "action": {"type": "exec", "command": command}}


def message(text: str, place: int = 0) -> dict[str, Any]:
    content = [{"type": "output_text", "annotations": [], "text": text}]
    return {"id": f"msg_{place}", "type": "message", "status": "completed", "role": "assistant", "content": content}


def response(output: list[dict[str, Any]], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "model": "gpt-5", "output": output, **more}


def stream(*items: dict[str, Any], end: str | None = "response.completed") -> bytes:
    """A whole stream with numbered events, as the API sends it: calls in pieces of three characters."""
    numbers = iter(range(1_000_000))
    events = [("response.created", {"response": response([], "in_progress")})]
    for index, item in enumerate(items):
        events += _item(item, index)
    if end is not None:
        events.append((end, {"response": response(list(items), end.partition(".")[2], usage=USAGE)}))
    return b"".join(event(kind, sequence_number=next(numbers), **members) for kind, members in events)


def _item(item: dict[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    told = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
    place = {"item_id": item.get("id"), "output_index": index}
    started = {**item, "status": "in_progress", **({told: ""} if told else {})}
    if item["type"] == "message":
        started["content"] = []
    yield "response.output_item.added", {"output_index": index, "item": started}
    if told:
        what = "function_call_arguments" if told == "arguments" else "custom_tool_call_input"
        for start in range(0, len(item[told]), 3):
            yield f"response.{what}.delta", {**place, "delta": item[told][start : start + 3]}
        yield f"response.{what}.done", {**place, told: item[told]}
    elif item["type"] == "message":
        part = item["content"][0]
        text = part["text"]
        yield "response.content_part.added", {**place, "content_index": 0, "part": {**part, "text": ""}}
        for start in range(0, len(text), 3):
            delta = text[start : start + 3]
            yield "response.output_text.delta", {**place, "content_index": 0, "delta": delta, "logprobs": []}
        yield "response.output_text.done", {**place, "content_index": 0, "text": text, "logprobs": []}
        yield "response.content_part.done", {**place, "content_index": 0, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}


@dataclass
class Passed:
    """What came of an answer: the bytes for the client, and what was judged and recorded, in order."""

    out: bytes = b""
    emitted: list[Emitted] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    broken: str | None = None  # the fault that ended it

    @property
    def events(self) -> list[dict[str, Any]]:
        datas = (line[6:] for line in self.out.split(b"\n") if line.startswith(b"data: "))
        return [json.loads(data) for data in datas if data != b"[DONE]"]

    def items_done(self) -> list[dict[str, Any]]:
        return [told["item"] for told in self.events if told["type"] == "response.output_item.done"]

    @property
    def faults(self) -> list[str | None]:
        return [emitted.fault for emitted in self.emitted]


def allow(_: Emitted) -> None:
    return None


def refuse_all(emitted: Emitted) -> str:
    return f"Refused: {emitted.name}."


def refuse(*names: str) -> Refuse:
    return lambda emitted: refuse_all(emitted) if emitted.name in names else None


def passed(
    data: bytes | list[bytes],
    judge: Refuse = allow,
    *,
    api: ResponsesApi | None = None,
    streamed: bool = True,
    max_call_bytes: int = MAX_CALL_BYTES,
) -> Passed:
    """All of an answer through one reader. ModelFault: it did not come to its end."""
    result = passed_until(data, judge, api=api, streamed=streamed, max_call_bytes=max_call_bytes)
    if result.broken is not None:
        raise ModelFault(result.broken)
    return result


def passed_until(
    data: bytes | list[bytes],
    judge: Refuse = allow,
    *,
    api: ResponsesApi | None = None,
    streamed: bool = True,
    max_call_bytes: int = MAX_CALL_BYTES,
) -> Passed:
    """All of an answer up to a fault, each piece judged or asked for when its turn has come."""
    answer = (api or ResponsesApi()).answer(streamed, max_call_bytes)
    result = Passed()
    parts = [data] if isinstance(data, bytes) else data
    out = []
    try:
        for piece in _pieces(answer, parts):
            result.order.append("bytes" if isinstance(piece, bytes) else type(piece).__name__)
            if isinstance(piece, bytes):
                out.append(piece)
            elif isinstance(piece, Emitted):
                result.emitted.append(piece)
                out.append(piece.decided(judge(piece)))
            elif isinstance(piece, Later):
                out.append(piece.render())
            elif isinstance(piece, Observed):
                result.observed.append(piece)
            else:
                result.usage.append(piece)
    except ModelFault as fault:
        result.broken = fault.why
    result.out = b"".join(out)
    return result


def _pieces(answer: Answer, parts: list[bytes]) -> Iterator[Piece]:
    for part in parts:
        yield from answer.feed(part)
    yield from answer.end()
