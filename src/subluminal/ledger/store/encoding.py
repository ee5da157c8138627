"""How texts are kept in the database. No imports but zlib: `sub query` reads previews through this.

A segment is always deflated. A preview is TEXT, or a deflated BLOB where that pays; the type says which.
"""

from __future__ import annotations

import zlib

# Below this the header and the time cost more than the bytes saved; measured on typical previews.
DEFLATE_ABOVE_BYTES = 1024
# Written once, at ingest speed, of which deflating is a fifth. Higher levels gain under a tenth: level 2 makes segments
# a fortieth smaller for a tenth more time.
_LEVEL = 1
# No segment or preview of ours is larger when inflated; a blob that claims more was not written by us.
INFLATE_LIMIT = 64 << 20


def pack_lines(lines: list[bytes]) -> bytes:
    """The lines of a segment; none of them holds a newline."""
    return zlib.compress(b"\n".join(lines), _LEVEL)


def unpack_lines(stored: bytes) -> list[bytes]:
    return _inflate(stored).split(b"\n")


def pack_text(text: str | None) -> str | bytes | None:
    if text is None or len(text) < DEFLATE_ABOVE_BYTES:
        return text
    raw = text.encode()
    packed = zlib.compress(raw, _LEVEL)
    return packed if len(packed) * 4 < len(raw) * 3 else text


def unpack_text(stored: str | bytes | None) -> str | None:
    if isinstance(stored, bytes):
        return _inflate(stored).decode("utf-8", "replace")
    return stored


def _inflate(stored: bytes) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(stored, INFLATE_LIMIT)
    if not inflater.eof:
        raise ValueError("a deflated text in the ledger is damaged")
    return data
