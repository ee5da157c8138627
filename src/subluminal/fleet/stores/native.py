"""Rows as one block of ClickHouse's format Native: columns as they lie in memory. No I/O.

A line goes from its segment to the engine as it came: nothing is escaped here and parsed there. Types are those that
can be written plainly; the engine makes its own of them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from subluminal.contracts.moments import DAY_MS, epoch_ms
from subluminal.fleet.stores.base import Lines
from subluminal.fleet.stores.tables import CONTESTED, DAY, EVENTS, FILL, KEY, NUMBER, Column, Table

# Written where there is none: the engine does not look at it.
_NO_DAY = "1970-01-01"
# Lengths that are looked up.
_SHORT = 1 << 14


def block(table: Table, rows: Sequence[Any]) -> bytes:
    if table in (EVENTS, CONTESTED):
        return _events(rows)
    columns = [_column(column, values) for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)]
    return _block(table, columns, len(rows))


def _events(segments: Sequence[Lines]) -> bytes:
    """What all events of a segment have in common is written once and repeated. In the order of the table's key, which
    saves the engine sorting them."""
    segments = sorted(segments, key=lambda each: (each.tenant, each.run_id, each.shim_id, each.first_seq))
    numbers = (range(each.first_seq, each.first_seq + len(each.lines)) for each in segments)
    lines = list(chain.from_iterable(each.lines for each in segments))
    columns = [
        _same(segments, "tenant"),
        _same(segments, "run_id"),
        _same(segments, "shim_id"),
        ("Int64", _numbers(chain.from_iterable(numbers))),
        ("Date", _days(list(chain.from_iterable(each.days for each in segments)))),
        ("Int64", _numbers(chain.from_iterable(each.ts_ms for each in segments))),
        ("Int64", b"".join(_numbers([each.received_ms]) * len(each.lines) for each in segments)),
        _same(segments, "machine"),
        ("String", _texts(list(chain.from_iterable(each.types for each in segments)))),
        ("String", b"".join(chain.from_iterable(zip(map(_size, map(len, lines)), lines, strict=True)))),
    ]
    return _block(EVENTS, columns, len(lines))


def _same(segments: Sequence[Lines], name: str) -> tuple[str, bytes]:
    return "String", b"".join(_text(getattr(each, name)) * len(each.lines) for each in segments)


def _column(column: Column, values: Sequence[Any]) -> tuple[str, bytes]:
    if column.kind == DAY:
        kind, data = "Date", _days([value or _NO_DAY for value in values])
    elif column.kind == NUMBER:
        kind, data = "Int64", _numbers(value or 0 for value in values)
    else:
        kind, data = "String", _texts(values)
    if column.merge == KEY or (column.kind == DAY and column.merge == FILL):
        return kind, data
    return f"Nullable({kind})", bytes(value is None for value in values) + data


def _block(table: Table, columns: Sequence[tuple[str, bytes]], rows: int) -> bytes:
    pieces = [_size(len(columns)), _size(rows)]
    for name, (kind, data) in zip(table.names, columns, strict=True):
        pieces += [_text(name), _text(kind), data]
    return b"".join(pieces)


def _numbers(values: Iterable[int]) -> bytes:
    found = array("q", values)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def _days(days: Sequence[str]) -> bytes:
    known = {day: (epoch_ms(f"{day}T00:00:00.000Z") // DAY_MS).to_bytes(2, "little") for day in set(days)}
    return b"".join(map(known.__getitem__, days))


def _texts(texts: Sequence[str | None]) -> bytes:
    """None is written as the empty text."""
    known = {text: _text(text or "") for text in set(texts)}
    return b"".join(map(known.__getitem__, texts))


def _text(text: str) -> bytes:
    data = text.encode()
    return _size(len(data)) + data


def _long_size(number: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


_SIZES = [_long_size(number) for number in range(_SHORT)]


def _size(number: int) -> bytes:
    return _SIZES[number] if number < _SHORT else _long_size(number)
