"""A model's API for bench/model_api.py: answers that are written event by event, each with the time of its writing.

    python bench/model_upstream.py          prints its port

POST /v1/messages?events=N&us=PAUSE&tool=BYTES: a message of N text deltas, one write each, PAUSE microseconds apart (0:
as fast as they are taken), then a tool call with so many bytes of arguments, if any. The text of a delta is the
monotonic clock in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
from time import monotonic_ns
from urllib.parse import parse_qs, urlsplit


def event(kind: str, **members: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members}, separators=(',', ':'))}\n\n".encode()


def block(index: int, **members: object) -> bytes:
    return event("content_block_start", index=index, content_block=members)


def delta(index: int, **members: object) -> bytes:
    return event("content_block_delta", index=index, delta=members)


USAGE = {"input_tokens": 10, "output_tokens": 1}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench", "content": [], "usage": USAGE}
START = event("message_start", message=MESSAGE) + block(0, type="text", text="")
# Filled in at the marks: only what changes is made for each event.
DELTA = delta(0, type="text_delta", text="%d")
STOP = event("content_block_stop", index=0)
TOOL = block(1, type="tool_use", id="toolu_%d", name="Read", input={})
INPUT = delta(1, type="input_json_delta", partial_json="%b")
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}) + event("message_stop")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = 1000


async def answer(writer: asyncio.StreamWriter, events: int, pause_us: int, tool_bytes: int) -> None:
    def write(data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    writer.write(HEAD)
    write(START)
    for _ in range(events):
        write(DELTA % monotonic_ns())
        if pause_us:
            await asyncio.sleep(pause_us / 1e6)
        else:
            await writer.drain()
    write(STOP)
    if tool_bytes:
        write(TOOL % monotonic_ns())
        write(INPUT % b'{\\"file_path\\":\\"')
        for _ in range(tool_bytes // PIECE):
            write(INPUT % (b"x" * PIECE))
            await writer.drain()
        write(INPUT % b'\\"}')
        write(event("content_block_stop", index=1))
    write(END)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            asked = parse_qs(urlsplit(head.split(b" ")[1].decode()).query)
            await answer(writer, *(int(asked.get(name, ["0"])[0]) for name in ("events", "us", "tool")))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
