"""The bytes of a run's shared log: how operations of `core.engine.state` are written and read back.

An operation on one key is 41 bytes; a whole window and a termination have lengths of their own. Reading trusts
nothing: what does not decode raises `Corrupt`.
"""

from __future__ import annotations

import struct

from subluminal.core.engine.state import PUSH, TERMINATE, WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from subluminal.core.engine.state import Op

_OP = struct.Struct("<B16sqqq")
_WINDOW = struct.Struct("<B16sI")
_TEXTS = struct.Struct("<BHHHH")
pack_op = _OP.pack


class Corrupt(Exception):
    """The log cannot be read on from here."""


def encode(op: Op) -> bytes:
    kind = op[0]
    if kind <= PUSH:
        return pack_op(*op)
    if kind == WINDOW:
        return _WINDOW.pack(WINDOW, op[1], len(op[2])) + struct.pack(f"<{len(op[2])}q", *op[2])
    texts = [text.encode("utf-8", "replace") for text in op[1:5]]
    return _TEXTS.pack(TERMINATE, *map(len, texts)) + b"".join(texts)


def decode(raw: bytes) -> Iterator[Op]:
    at = 0
    try:
        while at < len(raw):
            kind = raw[at]
            if kind <= PUSH:
                yield _OP.unpack_from(raw, at)
                at += _OP.size
            elif kind == WINDOW:
                _, key, count = _WINDOW.unpack_from(raw, at)
                at += _WINDOW.size
                yield kind, key, struct.unpack_from(f"<{count}q", raw, at)
                at += 8 * count
            elif kind == TERMINATE:
                _, *lengths = _TEXTS.unpack_from(raw, at)
                at += _TEXTS.size
                texts = []
                for length in lengths:
                    texts.append(raw[at : at + length].decode())
                    at += length
                yield kind, *texts
            else:
                raise Corrupt
    except (struct.error, UnicodeDecodeError):
        raise Corrupt from None
