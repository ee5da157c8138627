"""The bytes of a state file: where its parts lie, and entries as bytes.

    0       magic and format, boot id, the run's id            written once
    4032    words: calls without state, killed; each with its complement
    4096    the table, first copy      head, then entries; what does not fit a page goes on in EXTENTS
    8192    the table, second copy
    12288   why the run was terminated
    20480   EXTENTS, one for each copy
    ...     segments: pages of entries that were not used lately, a ring of them for each pool
    ...     names for people, two copies of each page: a key's name belongs to one of them

A table's head has its checksum, its length, its version (the higher one that is whole stands), the calls it counts,
whether the run was terminated, the time of wide scopes, the ends of the rings, and which copies of the names stand.
Entries stand least recently inserted first. A key is found by searching the bytes: keys are digests, and nothing but
integers stands between them.
"""

from __future__ import annotations

import struct
from zlib import crc32

from subluminal.core.engine.state import KEY_BYTES, MAX_KEYS, MAX_VALUES

PAGE = 4_096
WORDS_AT = PAGE - 64
TABLES_AT = PAGE
FLAG_AT = 3 * PAGE
FLAG_BYTES = 2 * PAGE
EXTENTS_AT = FLAG_AT + FLAG_BYTES
EXTENT_BYTES = 65 * PAGE  # beyond the first page: more than MAX_KEYS entries of the usual size
SEGMENTS_AT = EXTENTS_AT + 2 * EXTENT_BYTES
# Segments of each pool: room for more than twice MAX_KEYS entries of the usual size, because entries that are used
# again leave an old copy behind.
SEGMENTS = (256, 256, 208, 320)
_FIRST_SEGMENT = tuple(sum(SEGMENTS[:pool]) for pool in range(len(SEGMENTS)))
NAMES_AT = SEGMENTS_AT + sum(SEGMENTS) * PAGE
NAME_PAGES = 112
FILE_BYTES = NAMES_AT + 2 * NAME_PAGES * PAGE
MAX_TABLE_BYTES = PAGE + EXTENT_BYTES

# crc, length, version, calls, terminated, boot, mono_at, wide_at, ends of the rings, pages of names and their copies
HEAD = struct.Struct("<IIQQQQqq8I14s14s")
HEAD_BYTES = HEAD.size
FRONT = struct.Struct("<IIQQ")  # what every call changes of a head
REST = struct.Struct("<QQqq8I14s14s")
REST_AT = FRONT.size
CRC = struct.Struct("<I")
ENTRY = struct.Struct("<16sBBxx")
ENTRY_BYTES = ENTRY.size
WORDS = struct.Struct("<QQQQ")
# Of a reading from WORDS_AT: the words, and the versions of both copies.
SIGHT = struct.Struct(f"<QQQQ{PAGE - WORDS_AT - 32}x8xQ{PAGE - 16}x8xQ")
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


def pack_page(number: int, body: bytes | bytearray, salt: int) -> bytes:
    tail = PAGE_HEAD.pack(0, number, PAGE_HEAD_BYTES + len(body))[4:] + body
    return (crc32(tail, salt).to_bytes(4, "little") + tail).ljust(PAGE, b"\0")


def read_page(raw: bytes, number: int, salt: int) -> bytes | None:
    """What was packed; None if it is not the page of that number, or not whole."""
    if len(raw) < PAGE:
        return None
    crc, found, length = PAGE_HEAD.unpack_from(raw)
    if found != number or not PAGE_HEAD_BYTES <= length <= PAGE or crc32(raw[4:length], salt) != crc:
        return None
    return raw[PAGE_HEAD_BYTES:length]


def segment_at(pool: int, number: int) -> int:
    return SEGMENTS_AT + (_FIRST_SEGMENT[pool] + number % SEGMENTS[pool]) * PAGE


def names_page(key: bytes, salt: int) -> int:
    """Salted for each file, so that nobody invents names that meet in one page."""
    return crc32(key, salt) % NAME_PAGES


def names_at(page: int, copy: int) -> int:
    return NAMES_AT + (2 * page + copy) * PAGE
