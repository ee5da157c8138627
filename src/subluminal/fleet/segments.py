"""A segment: exact lines of one shim of one run, numbered in a row, on their way to a collector. No I/O, no clock.

As bytes it is one zstd frame of text lines: a header (JSON), then the events, each ended by a newline.

    {"v":1,"run_id":…,"shim_id":…,"first_seq":…,"last_seq":…,"sha256":…,"spans":[[n,count],…],"head":[count,hash]}

`sha256` is of the events as they follow. `spans` say where they stand in the chain of their run on their machine: the
first `count` of them from event `n` on, and so forth. `head`, where it is known, is that chain's hash after `count`
events: it vouches for lines that are still on their way.

`decode` takes bytes of anybody. What it returns keeps to every bound and its lines are those that were hashed; whether
each is an event of this run, shim and number is checked by whoever reads them as events (`collector.rows`).
"""

from __future__ import annotations

from hashlib import sha256

import msgspec
import zstandard
from msgspec import Struct

from subluminal.contracts.errors import SubluminalError
from subluminal.ledger.fold.reading import MAX_LINE_BYTES, MAX_SEQ

VERSION = 1
CONTENT_TYPE = "application/vnd.subluminal.segment"
# What a shipper aims at; a single line may be as large as the ledger takes one.
TARGET_BYTES = 1 << 20
MAX_LINES = 8192
# Uncompressed: a segment that was full to the brim, one line more, and its header.
MAX_BYTES = TARGET_BYTES + MAX_LINE_BYTES + (256 << 10)
# As sent: text that does not compress at all.
MAX_BODY_BYTES = MAX_BYTES + 1024
# Of a run_id and of a shim_id. With the names of tenant, machine and call they make keys, of which Postgres takes 2,704
# bytes.
MAX_ID_BYTES = 512
_HASH_CHARS = 64
# Level 3 makes 35 bytes of an event of 790; higher ones cost more time than they save bytes.
_LEVEL = 3


class BadSegment(SubluminalError):
    """`word` is a stable word for programs and metrics; the text never repeats what was sent."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


class Header(Struct):
    v: int
    run_id: str
    shim_id: str
    first_seq: int
    last_seq: int
    sha256: str
    spans: list[tuple[int, int]]
    head: tuple[int, str] | None = None


class Segment(Struct):
    """`spans`: (n, count) in the run's chain; `head`: (count, hash) of that chain."""

    run_id: str
    shim_id: str
    first_seq: int
    lines: list[bytes]
    spans: list[tuple[int, int]]
    head: tuple[int, str] | None = None

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.lines) - 1


def encode(segment: Segment) -> bytes:
    text = b"\n".join([*segment.lines, b""])
    header = Header(
        VERSION,
        segment.run_id,
        segment.shim_id,
        segment.first_seq,
        segment.last_seq,
        sha256(text).hexdigest(),
        segment.spans,
        segment.head,
    )
    return zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.json.encode(header) + b"\n" + text)


def decode(body: bytes) -> Segment:
    """BadSegment: it is none of ours."""
    data = _inflated(body)
    first, newline, text = data.partition(b"\n")
    if not newline:
        raise BadSegment("header", "There is no header.")
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSegment("header", f"The header cannot be read: {str(error)[:120]}.") from None
    _check_header(header)
    if sha256(text).hexdigest() != header.sha256:
        raise BadSegment("hash", "The events are not those that were hashed.")
    if not _is_text(text):
        raise BadSegment("lines", "The events are not UTF-8.")
    lines = text.split(b"\n")
    if lines.pop():
        raise BadSegment("lines", "The last event is not ended by a newline.")
    if len(lines) != header.last_seq - header.first_seq + 1:
        raise BadSegment("range", f"There are {len(lines)} events for {header.first_seq} to {header.last_seq}.")
    if any(len(line) > MAX_LINE_BYTES or not line for line in lines):
        raise BadSegment("lines", "An event is empty, or larger than any event is.")
    if sum(count for _, count in header.spans) != len(lines):
        raise BadSegment("spans", "The spans do not add up to the events.")
    return Segment(header.run_id, header.shim_id, header.first_seq, lines, header.spans, header.head)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _inflated(body: bytes) -> bytes:
    """One frame that says how large it is: nothing is allocated on the word of somebody else beyond the bound."""
    if len(body) > MAX_BODY_BYTES:
        raise BadSegment("size", f"It is larger than {MAX_BODY_BYTES:,} bytes.")
    try:
        frame = zstandard.get_frame_parameters(body)
        if frame.content_size in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
            raise BadSegment("zstd", "The frame does not say how large its content is.")
        if frame.content_size > MAX_BYTES:
            raise BadSegment("size", f"Its content is larger than {MAX_BYTES:,} bytes.")
        return zstandard.ZstdDecompressor(max_window_size=8 << 20).decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadSegment("zstd", f"It is no zstd frame of ours: {str(error)[:120]}.") from None


def _check_header(header: Header) -> None:
    if header.v != VERSION:
        raise BadSegment("version", f"It is of version {header.v}; this collector reads version {VERSION}.")
    for name in (header.run_id, header.shim_id):
        if not name or not is_id(name, MAX_ID_BYTES):
            raise BadSegment(
                "header", f"run_id or shim_id is empty, has more than {MAX_ID_BYTES} bytes or holds a NUL."
            )
    # A producer that numbers nothing is numbered below zero by the hash of each line.
    if not -MAX_SEQ - 1 <= header.first_seq <= header.last_seq <= MAX_SEQ:
        raise BadSegment("range", "first_seq and last_seq are no range.")
    if header.last_seq - header.first_seq >= MAX_LINES:
        raise BadSegment("size", f"It has more than {MAX_LINES:,} events.")
    after = 0
    for n, count in header.spans:
        if n <= after or count < 1 or n + count > MAX_SEQ:
            raise BadSegment("spans", "The spans overlap, go back or are empty.")
        after = n + count - 1
    if header.head is not None and (header.head[0] < 1 or header.head[0] > MAX_SEQ or not _is_hash(header.head[1])):
        raise BadSegment("header", "head is no number of events and hash.")


def is_id(text: str, most_bytes: int) -> bool:
    """Whether it can stand in a key of every store: Postgres has no NUL in a text."""
    return "\0" not in text and (len(text) * 4 <= most_bytes or len(text.encode()) <= most_bytes)


def _is_hash(text: str) -> bool:
    return len(text) == _HASH_CHARS and all(char in "0123456789abcdef" for char in text)
