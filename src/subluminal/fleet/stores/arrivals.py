"""What has arrived since a moment, whoever brought it: the calls that it is about, as they are now, and the runs.

Moments are those of the collectors' clocks when a segment came, before its commit: whoever follows asks again for a few
seconds that it has asked for already. What is told twice does no harm.
"""

from __future__ import annotations

from typing import Any

from subluminal.contracts.filters import Filters
from subluminal.fleet.stores.base import chunks
from subluminal.fleet.stores.cursors import cursor_text
from subluminal.fleet.stores.reading import Key, Reader, call_row
from subluminal.ledger.read.changed import may_leave, spoken_of
from subluminal.ledger.read.ledger import Row

# Events looked at for one answer. Whoever has missed more reads the newest page instead.
LOOK_EVENTS = 2_000
_AT_ONCE = 1_000


def changes(reader: Reader, filters: Filters, since_ms: int) -> Row:
    """`rows` with their cursors; `gone`: cursors of calls that are not asked for any more, or for which another door
    stands; `runs`: when each was heard of last; `more`: too much has arrived, and nothing is told of it."""
    arrived = _arrived(reader, filters, since_ms)
    if len(arrived) > LOOK_EVENTS:
        return {"rows": [], "gone": [], "runs": {}, "more": True}
    runs: dict[str, int] = {}
    names: dict[tuple[str, str, str], None] = {}
    for received_ms, line in arrived:
        run_id, shim_id, call_id = spoken_of(line)
        runs[run_id] = max(received_ms, runs.get(run_id, 0))
        if call_id is not None:
            names[run_id, shim_id, call_id] = None
    rows, gone = _told(reader, filters, _keys(reader, list(names)))
    return {"rows": rows, "gone": gone, "runs": runs, "more": False}


def _arrived(reader: Reader, filters: Filters, since_ms: int) -> list[tuple[Any, ...]]:
    """From the table itself: what was sent twice does not matter here, and merging it away takes time."""
    run_ids = filters.asked.get("run_id")
    where = "tenant = :tenant AND received_ms >= :since" + (" AND run_id IN :runs" if run_ids else "")
    sql = f"SELECT received_ms, line FROM events WHERE {where} ORDER BY received_ms DESC LIMIT {LOOK_EVENTS + 1}"
    return reader.select(sql, since=since_ms, runs=run_ids)


def _keys(reader: Reader, names: list[tuple[str, str, str]]) -> list[Key]:
    """With their other doors: which of them stands may have changed."""
    found: dict[tuple[Any, ...], Key] = {}
    for some in chunks(names, _AT_ONCE):
        found.update(
            (key[1:4], key) for key in reader.keys_in("(run_id, shim_id, call_id) IN :names", names=list(some))
        )
    used = list(dict.fromkeys((key[1], key[-1]) for key in found.values() if key[-1] is not None))
    for some in chunks(used, _AT_ONCE):
        found.update((key[1:4], key) for key in reader.keys_in("(run_id, tool_use_id) IN :used", used=list(some)))
    return list(found.values())


def _told(reader: Reader, filters: Filters, keys: list[Key]) -> tuple[list[Row], list[str]]:
    left_out = {name for some in chunks(keys, _AT_ONCE) for name in reader.passed_over(list(some))}
    wanted = reader.keys_among(filters, [key[1:4] for key in keys])
    rows, gone, leaves = [], [], may_leave(filters)
    for key, call in zip(keys, reader.folded(keys), strict=True):
        cursor = cursor_text(key)
        if key[1:4] in left_out or call is None:
            gone.append(cursor)
        elif key[1:4] in wanted and reader.matches(filters, call):
            rows.append({**call_row(call, previews=False), "cursor": cursor})
        elif leaves:
            gone.append(cursor)
    return rows, gone
