r"""Results that are kept whole beside the record (`record.results`), as bytes: one file for each producer of a run.

    {"format":"subluminal-results","format_version":1,"run_id":…,"shim_id":…}\n
    {…,"bytes":N,"deflated":M}\n<M bytes: the result, masked, deflated>\n          one frame for each result

A frame is of a call (`call_id`, `status`) or of what a server says of itself (`method`). Each is linked to all before
it by a hash that is not in the file: the event that ends the call has it (`result_kept.hash`), so that whoever changes
the file would have to change the record.
"""

from __future__ import annotations

from subluminal.contracts.digest import sha256
from subluminal.contracts.jsontext import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

FORMAT = "subluminal-results"
FORMAT_VERSION = 1
SUFFIX = ".results"
# Of one header: names are bounded by the message they came in, and those are held up to a mebibyte.
MAX_HEADER_BYTES = 1 << 22
# What is read at once: a header may claim any size, and only what is there takes memory.
_PIECE_BYTES = 1 << 20


class Damaged(Exception):
    """What stands in the file is not what was written: its place and what is wrong with it."""


def opening(run_id: str, shim_id: str) -> bytes:
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "run_id": run_id, "shim_id": shim_id}
    return _line(head)


def frame(header: dict[str, Any], deflated: bytes) -> bytes:
    return _line({**header, "deflated": len(deflated)}) + deflated + b"\n"


def link(head: bytes, piece: bytes) -> bytes:
    """The hash after an opening or a frame. Before the first piece it is empty."""
    return bytes(sha256(head + piece).digest())


def _line(header: dict[str, Any]) -> bytes:
    return to_json(header).encode("utf-8", "replace") + b"\n"


def frames(file: IO[bytes], run_id: str) -> Iterator[tuple[dict[str, Any], bytes, bytes]]:
    """Header, deflated bytes, and the hash after each frame. A last frame that was not written to its end is left out.

    Raises `Damaged` for what nobody wrote.
    """
    first = file.readline(MAX_HEADER_BYTES)
    head = _header(first, 0)
    if head.get("format") != FORMAT or head.get("format_version") != FORMAT_VERSION:
        raise Damaged("it does not begin as a file of results does")
    if head.get("run_id") != run_id:
        raise Damaged("it is of another run")
    chain, at = link(b"", first), len(first)
    while line := file.readline(MAX_HEADER_BYTES):
        if not line.endswith(b"\n"):
            return
        header = _header(line, at)
        size = header.get("deflated")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Damaged(f"at byte {at} stands no result")
        deflated = _read(file, size + 1)
        if len(deflated) <= size:
            return
        if deflated[-1:] != b"\n":
            raise Damaged(f"the result at byte {at} does not end where it says")
        chain = link(chain, line + deflated)
        at += len(line) + len(deflated)
        yield header, deflated[:-1], chain


def _read(file: IO[bytes], size: int) -> bytes:
    pieces: list[bytes] = []
    while size and (piece := file.read(min(size, _PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _header(line: bytes, at: int) -> dict[str, Any]:
    from msgspec import DecodeError
    from msgspec.json import decode

    try:
        header = decode(line)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise Damaged(f"at byte {at} stands no result")
    return header
