"""The bytes of a state file: where its parts lie, and entries as bytes.

    0       magic and format, boot id, the run's id            written once
    4032    words: calls without state, killed; each with its complement
    4096    the table, first copy      head, then entries; what does not fit a page goes on in EXTENTS
    8192    the table, second copy
    12288   why the run was terminated
    20480   EXTENTS, one for each copy
    ...     pages of cold entries, two copies of each: for each pool so many, a key belongs to one of them

A table's head has its checksum, its length, its version (the higher one that is whole stands), the calls it counts,
whether the run was terminated, the time of wide scopes, which cold pages were ever written, and which copy of each
stands. Entries stand least recently inserted first. A key is found by searching the bytes: keys are digests, and
nothing but integers stands between them.
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
COLD_AT = EXTENTS_AT + 2 * EXTENT_BYTES
# Pages of each pool, so many that MAX_KEYS entries fill less than half of them: that one page gets twice its share
# before the pool holds MAX_KEYS is a chance of less than one in a million.
COLD_PAGES = (96, 96, 80, 128, 112)
COLD_FIRST = tuple(sum(COLD_PAGES[:pool]) for pool in range(len(COLD_PAGES)))
FILE_BYTES = COLD_AT + 2 * sum(COLD_PAGES) * PAGE
MAX_TABLE_BYTES = PAGE + EXTENT_BYTES

# crc, length, version, calls, terminated, boot, mono_at, wide_at, cold pages that were written, their second copies
HEAD = struct.Struct("<IIQQQQqq64s64s")
HEAD_BYTES = HEAD.size
FRONT = struct.Struct("<IIQQ")  # what every call changes of a head
REST = struct.Struct("<QQqq64s64s")
REST_AT = FRONT.size
CRC = struct.Struct("<I")
ENTRY = struct.Struct("<16sBBxx")
ENTRY_BYTES = ENTRY.size
WORDS = struct.Struct("<QQQQ")
# Of a reading from WORDS_AT: the words, and the versions of both copies.
SIGHT = struct.Struct(f"<QQQQ{PAGE - WORDS_AT - 32}x8xQ{PAGE - 16}x8xQ")
COLD_HEAD = struct.Struct("<IHxx")
COLD_HEAD_BYTES = COLD_HEAD.size
ALL = 2**64 - 1

_PACKERS = [struct.Struct(f"<16sBBxx{count}q") for count in range(MAX_VALUES + 1)]
_VALUES = [struct.Struct(f"<{count}q") for count in range(MAX_VALUES + 1)]
READERS = [packer.unpack_from for packer in _VALUES]
WRITERS = [packer.pack_into for packer in _VALUES]
COUNT_AT = KEY_BYTES + 1
ENTRY_SIZES = [ENTRY_BYTES + 8 * count for count in range(MAX_VALUES + 1)]

assert MAX_KEYS * (KEY_BYTES + ENTRY_BYTES + 24) < 2 * MAX_TABLE_BYTES


def pack_entry(pool: int, key: bytes, values: tuple[int, ...]) -> bytes:
    count = len(values)
    return _PACKERS[count].pack(key, pool, count, *values)


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


def cold_page(pool: int, key: bytes, salt: int) -> int:
    """The number of the page. Salted for each file, so that nobody invents names that meet in one page."""
    return COLD_FIRST[pool] + crc32(key, salt) % COLD_PAGES[pool]


def cold_at(page: int, copy: int) -> int:
    return COLD_AT + (2 * page + copy) * PAGE
