"""The bytes of a state file: where its parts lie, and entries as bytes.

    0       magic and format, boot id, the run's id            written once
    4096    words: calls without state, killed; each with its complement
    4160    the table, first copy      head, then entries; what does not fit goes on in EXTENTS
    6176    the table, second copy
    8192    why the run was terminated
    16384   EXTENTS, one for each copy
    ...     rings: pages of entries that were used once or not lately, for each pool
    ...     names for people, two copies of each page: a key's name belongs to one of them

A table's head has its checksum, its length, its version (the higher one that is whole stands), the calls it counts,
whether the run was terminated, the time of wide scopes, what it counts of the rings, and which copies of the names
stand.
Entries stand least recently inserted first. A key is found by searching the bytes: keys are digests, and nothing but
integers stands between them.
"""

from __future__ import annotations

import struct
from zlib import crc32

from subluminal.core.engine.state import KEY_BYTES, MAX_KEYS, MAX_VALUES

PAGE = 4_096
WORDS_AT = PAGE
TABLES_AT = WORDS_AT + 64
TABLE_ROOM = (PAGE - 64) // 2  # of one copy: all that a call reads is one page
FLAG_AT = 2 * PAGE
FLAG_BYTES = 2 * PAGE
EXTENTS_AT = FLAG_AT + FLAG_BYTES
EXTENT_BYTES = 65 * PAGE  # more than MAX_KEYS entries of the usual size
RINGS_AT = EXTENTS_AT + 2 * EXTENT_BYTES
# Pages of each pool: room for more than twice MAX_KEYS entries of the usual size, because entries that are used
# again leave an old copy behind.
RINGS = (160, 160, 136, 192)
_FIRST_PAGE = tuple(sum(RINGS[:pool]) for pool in range(len(RINGS)))
NAMES_AT = RINGS_AT + sum(RINGS) * PAGE
NAME_PAGES = 112
FILE_BYTES = NAMES_AT + 2 * NAME_PAGES * PAGE
MAX_TABLE_BYTES = TABLE_ROOM + EXTENT_BYTES

# crc, length, version, calls; terminated, boot, mono_at, wide_at, pages of names and their copies; then the rings
HEAD = struct.Struct("<IIQQQQqq14s14s16I")
HEAD_BYTES = HEAD.size
FRONT = struct.Struct("<IIQQ")  # what every call changes of a head
REST = struct.Struct("<QQqq14s14s")
REST_AT = FRONT.size
RING = struct.Struct("<4I")  # first, last, used, crc
RINGS_OF_HEAD_AT = REST_AT + REST.size
CRC = struct.Struct("<I")
ENTRY = struct.Struct("<16sBBxx")
ENTRY_BYTES = ENTRY.size
WORDS = struct.Struct("<QQQQ")
# Of a reading from WORDS_AT: the words, and the versions of both copies.
SIGHT = struct.Struct(f"<QQQQ{TABLES_AT - WORDS_AT - 32}x8xQ{TABLE_ROOM - 16}x8xQ")
PAGE_HEAD = struct.Struct("<IIHxx")  # crc, number, length
PAGE_HEAD_BYTES = PAGE_HEAD.size
PAGE_ROOM = PAGE - PAGE_HEAD_BYTES
ALL = 2**64 - 1

PACKERS = [struct.Struct(f"<16sBBxx{count}q").pack for count in range(MAX_VALUES + 1)]
_VALUES = [struct.Struct(f"<{count}q") for count in range(MAX_VALUES + 1)]
READERS = [packer.unpack_from for packer in _VALUES]
WRITERS = [packer.pack_into for packer in _VALUES]
COUNT_AT = KEY_BYTES + 1
ENTRY_SIZES = [ENTRY_BYTES + 8 * count for count in range(MAX_VALUES + 1)]

assert MAX_KEYS * (KEY_BYTES + ENTRY_BYTES + 24) < 2 * MAX_TABLE_BYTES


def pack_entry(pool: int, key: bytes, values: tuple[int, ...]) -> bytes:
    count = len(values)
    return PACKERS[count](key, pool, count, *values)


def entry_values(raw: bytes | bytearray, at: int) -> tuple[int, ...]:
    return READERS[raw[at + COUNT_AT]](raw, at + ENTRY_BYTES)


def entry_size(raw: bytes | bytearray, at: int) -> int:
    return ENTRY_SIZES[raw[at + COUNT_AT]]


def entries(raw: bytes | bytearray, at: int) -> list[tuple[bytes, int, tuple[int, ...]]]:
    """All of a body, in order."""
    found = []
    while at < len(raw):
        key, pool, _ = ENTRY.unpack_from(raw, at)
        found.append((key, pool, entry_values(raw, at)))
        at += entry_size(raw, at)
    return found


def page_head(number: int, length: int, crc: int) -> bytes:
    """Of a page that is full; `crc` is of its body."""
    tail = PAGE_HEAD.pack(0, number, length)[4:]
    return crc32(tail, crc).to_bytes(4, "little") + tail


def pack_page(number: int, body: bytes | bytearray, salt: int) -> bytes:
    return (page_head(number, len(body), crc32(body, salt)) + body).ljust(PAGE, b"\0")


def read_page(raw: bytes, number: int, salt: int) -> bytes | None:
    """What was packed; None if it is not the page of that number, or not whole."""
    if len(raw) < PAGE:
        return None
    crc, found, length = PAGE_HEAD.unpack_from(raw)
    if found != number or length > PAGE_ROOM:
        return None
    body = raw[PAGE_HEAD_BYTES : PAGE_HEAD_BYTES + length]
    return body if crc32(raw[4:PAGE_HEAD_BYTES], crc32(body, salt)) == crc else None


def page_at(pool: int, number: int) -> int:
    return RINGS_AT + (_FIRST_PAGE[pool] + number % RINGS[pool]) * PAGE


def names_page(key: bytes, salt: int) -> int:
    """Salted for each file, so that nobody invents names that meet in one page."""
    return crc32(key, salt) % NAME_PAGES


def names_at(page: int, copy: int) -> int:
    return NAMES_AT + (2 * page + copy) * PAGE
