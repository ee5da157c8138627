"""The bytes of a state file: where its parts lie, and entries as bytes.

    0       magic and format, boot id, the run's id            written once
    4096    words: calls without state, killed; each with its complement
    4160    the table, first copy      checksum, what seldom changes, front, entries, tail; the rest goes on in EXTENTS
    6176    the table, second copy
    8192    why the run was terminated
    16384   EXTENTS, one for each copy
    ...     rings: pages of entries that were used once or not lately, for each pool
    ...     names for people, two copies of each page: a key's name belongs to one of them

What seldom changes: whether the run was terminated, the time of wide scopes, which copies of the names stand, what is
counted of the rings. The front has the lengths, the version (the higher one that is whole stands) and the calls. The
checksum is of what seldom changes, then of the tail, then of front and entries: of a tail that grows, only what is new
needs to be gone over.
Entries stand least recently inserted first. The tail has those that are new, on their way to a ring. A key is found by
searching the bytes: keys are digests, and nothing but integers stands between them.
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

CRC = struct.Struct("<I")
SELDOM = struct.Struct("<QQqq14s14s")  # terminated, boot, mono_at, wide_at, pages of names and their copies
RING = struct.Struct("<4I")  # first, last, used, crc
SELDOM_BYTES = SELDOM.size + len(RINGS) * RING.size
FRONT = struct.Struct("<IIQQ")  # length with the entries, of the tail, version, calls
FRONT_BYTES = FRONT.size
FRONT_AT = CRC.size + SELDOM_BYTES  # of a copy
VERSION = struct.Struct("<Q")
VERSION_AT = FRONT_AT + 8
ENTRY = struct.Struct("<16sBBxx")
ENTRY_BYTES = ENTRY.size
WORDS = struct.Struct("<QQQQ")
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


def split(body: bytes) -> list[bytes]:
    """Its entries, in order."""
    raws, at = [], 0
    while at < len(body):
        end = at + entry_size(body, at)
        raws.append(body[at:end])
        at = end
    return raws


def common_size(body: bytes) -> int:
    """Of all its entries; 0: they differ. Most bodies are of one size, and need no look at each entry."""
    size = entry_size(body, 0)
    counts = body[COUNT_AT::size]
    return 0 if len(body) % size or counts.count(counts[:1]) != len(counts) else size


def keys_of(body: bytes) -> list[bytes]:
    """In order."""
    if not body:
        return []
    size = common_size(body)
    if size:
        return [body[at : at + KEY_BYTES] for at in range(0, len(body), size)]
    return [raw[:KEY_BYTES] for raw in split(body)]


def fitting(body: bytes, room: int) -> int:
    """How many of its bytes: whole entries."""
    if len(body) <= room:
        return len(body)
    at = end = 0
    while end <= room:
        at, end = end, end + entry_size(body, end)
    return at


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
