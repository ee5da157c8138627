"""The writer's view of the tables: rows in memory while they change, written together.

Caches are bounded and may forget anything that is stored: it is read again when needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from subluminal.contracts import events as ev
from subluminal.contracts.moments import epoch_ms, normal_ts
from subluminal.ledger.fold import whole
from subluminal.ledger.fold.call import CALL_COLUMNS, FILLED_COLUMNS
from subluminal.ledger.fold.ownership import owner_of
from subluminal.ledger.fold.reading import AnyEvent
from subluminal.ledger.fold.run import RUN_COLUMNS, RUN_PLACES, Producer, Run, TypedCall, json_text, run_values
from subluminal.ledger.store.encoding import pack_text
from subluminal.ledger.store.join_rows import join_rows
from subluminal.ledger.store.lines import TIE_BITS
from subluminal.ledger.store.policies import find_snapshot

CALLS_KEPT = 4096
RUNS_KEPT = 1024
_TICKS_KEPT = 4096


def _places(count: int) -> str:
    return ", ".join("?" * count)


def _insert_call(columns: list[str]) -> str:
    return f"INSERT INTO tool_calls ({', '.join(columns)}, id) VALUES ({_places(len(columns) + 1)})"


def _update_call(columns: list[str]) -> str:
    return f"UPDATE tool_calls SET {', '.join(c + ' = ?' for c in columns)} WHERE id = ?"


_SELECT_CALL = (
    f"SELECT {', '.join('c.' + c for c in CALL_COLUMNS)}, c.id, p.redaction_flags, h.created_at,"
    " (SELECT s.first_seq + c.decision_event - s.first_n FROM spans s WHERE s.run_no = ?"
    " AND s.first_n <= c.decision_event ORDER BY s.first_n DESC LIMIT 1)"
    " FROM tool_calls c LEFT JOIN previews p ON p.id = c.id LEFT JOIN hints h ON h.id = c.id"
    " WHERE c.call_id = ? AND c.producer_no = ?"
)


def _insert_preview(columns: list[str]) -> str:
    return f"INSERT INTO previews ({', '.join(columns)}, id) VALUES ({_places(len(columns) + 1)})"


def _upsert_preview(columns: list[str]) -> str:
    return _insert_preview(columns) + (
        " ON CONFLICT (id) DO UPDATE SET args_preview = coalesce(args_preview, excluded.args_preview),"
        " result_preview = coalesce(result_preview, excluded.result_preview),"
        " redaction_flags = coalesce(excluded.redaction_flags, redaction_flags)"
    )


_PUT_HINT = (
    "INSERT OR REPLACE INTO hints (id, call_id, hint_text, suggested_args_json, created_at, hint_kind, retry_advice)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_RUN = f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES ({_places(len(RUN_COLUMNS))})"
_UPDATE_RUN = f"UPDATE runs SET {', '.join(c + ' = ?' for c in RUN_COLUMNS[2:])} WHERE run_no = ?"
_SELECT_RUN = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs WHERE run_id = ?"
# In the order of the fields of `Producer`.
_PRODUCER = "producer_no, shim_id, run_id, started_at, journal, last_seq, ended_at, status, host_id, proc_id"
_UPSERT_PRODUCER = (
    f"INSERT INTO producers ({_PRODUCER}) VALUES ({_places(10)}) ON CONFLICT (producer_no) DO UPDATE SET"
    " last_seq = excluded.last_seq, started_at = excluded.started_at, ended_at = excluded.ended_at,"
    " status = excluded.status, journal = excluded.journal"
)


class _Rows:
    """Rows of one table, written by their ids whatever columns they name. One that is put between others afterwards has
    SQLite cut a full page in two: with 4 % of such rows the ledger is a sixteenth larger."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, Any]] = []

    def add(self, number: int, statement: str, row: Any) -> None:
        self._rows.append((number, statement, row))

    def write(self, connection: sqlite3.Connection) -> None:
        self._rows.sort(key=itemgetter(0))
        for statement, rows in groupby(self._rows, itemgetter(1)):
            connection.executemany(statement, [row for _, _, row in rows])
        self._rows.clear()


class _Shapes:
    """Calls by the columns that they tell of. Most columns of most calls are empty, and `sqlite3` takes longer to bind
    one None than ten texts (it looks for an adapter each time), so what was never set is not mentioned at all."""

    __slots__ = ("_columns", "_make", "_rows", "_shapes")

    def __init__(self, columns: tuple[str, ...], make: Callable[[list[str]], str], rows: _Rows) -> None:
        self._columns = frozenset(columns)
        self._make = make
        self._rows = rows
        self._shapes: dict[tuple[str, ...], tuple[str, Callable[[Any], Any]]] = {}

    def add(self, call: StoredCall) -> None:
        values = vars(call)
        told = tuple(values)
        shape = self._shapes.get(told)
        if shape is None:
            names = [name for name in told if name in self._columns]
            shape = self._shapes[told] = (self._make(names), itemgetter(*map(told.index, [*names, "id"])))
        self._rows.add(call.id, shape[0], shape[1](tuple(values.values())))


_WHOLE_PREVIEW = ("call_id", "args_preview", "result_preview")


def _add_preview(rows: _Rows, make: Callable[[list[str]], str], call: StoredCall) -> None:
    flags = call.redaction_flags
    told = dict(
        zip(_WHOLE_PREVIEW, (call.call_id, pack_text(call.args_preview), pack_text(call.result_preview)), strict=True)
    )
    told["redaction_flags"] = json_text(flags) if flags else None
    names = [name for name, value in told.items() if value is not None]
    rows.add(call.id, make(names), (*(told[name] for name in names), call.id))


_NUMBERED = ("run_id", "producer_no", *whole.COLUMNS)
_CREATED_AT = whole.COLUMNS.index("created_at")
_PUT_WHOLE_PREVIEW = _insert_preview(list(_WHOLE_PREVIEW))


@cache
def _insert_whole(no_rule: bool, no_overhead: bool) -> str:
    left_out = {_NUMBERED[-2]: no_rule, _NUMBERED[-1]: no_overhead}
    return _insert_call([name for name in _NUMBERED if not left_out.get(name)])


class StoredCall(TypedCall):
    """A call being folded, and what the store must write of it."""

    id = 0
    stored = False
    restarted = False  # the start came after the row was stored: its fixed columns must be written again


class CallTable:
    """`tool_calls`, `previews` and `hints`. A call is its producer's: no other can find it."""

    def __init__(self, connection: sqlite3.Connection, trusting: bool) -> None:
        self._connection = connection
        self._trusting = trusting
        self._kept: dict[tuple[int, str], StoredCall] = {}
        self._changed: dict[int, StoredCall] = {}
        self._last: StoredCall | None = None  # decision and end mostly follow their start
        self._ticks: dict[int, int] = {}
        self._calls = _Rows()  # that are new, and their previews
        self._previews = _Rows()

    def add_whole(self, columns: tuple[Any, ...], told: Any, result: Any, producer_no: int, run: Run) -> bool:
        """A call by `whole.COLUMNS`, with what its events told of arguments and result. False: it may not be new."""
        if not self._trusting or (producer_no, told.call_id) in self._kept:
            return False
        number = self._next_id(epoch_ms(columns[_CREATED_AT]), producer_no)
        rule_id, overhead_us = columns[-2:]
        row = (run.run_id, producer_no, *columns, number)
        if rule_id is None or overhead_us is None:
            row = tuple([value for value in row if value is not None])
        self._calls.add(number, _insert_whole(rule_id is None, overhead_us is None), row)
        preview = (told.call_id, pack_text(told.preview.args_preview), pack_text(result.result_preview), number)
        self._previews.add(number, _PUT_WHOLE_PREVIEW, preview)
        return True

    def at_hand(self, producer_no: int, call_id: str) -> StoredCall | None:
        """One that was heard of lately: whose it is has been looked at."""
        last = self._last
        if last is not None and last.call_id == call_id and last.producer_no == producer_no:
            return last
        return self._kept.get((producer_no, call_id))

    def find(self, run: Run, producer_no: int, call_id: str) -> StoredCall | None:
        key = (producer_no, call_id)
        call = self._kept.get(key)
        if call is not None:
            return call
        self._calls.write(self._connection)
        self._previews.write(self._connection)
        found = self._connection.execute(_SELECT_CALL, (run.run_no, call_id, producer_no)).fetchone()
        if found is None:
            return None
        *columns, number, flags, hint_at, seq = found
        call = StoredCall("", "", "", "", "", "")
        call.fill(columns)
        call.id, call.hint_at, call.stored = number, hint_at, True
        if flags is not None:
            call.redaction_flags = msgspec.json.decode(flags, type=list[str])
        if seq is not None and seq >= 0:
            call.decision_seq = seq
        self._kept[key] = call
        return call

    def starting(self, event: ev.ToolCallStart, producer_no: int, run: Run) -> StoredCall:
        """The call that a start event opens. Trusting: one that is not at hand is new, without a look at the table."""
        call_id = event.call.call_id
        call = self._kept.get((producer_no, call_id)) if self._trusting else self.find(run, producer_no, call_id)
        return call or self._new(event, producer_no, run)

    def referred(self, event: ev.ToolCallDecision | ev.ToolCallEnd, producer_no: int, run: Run) -> StoredCall:
        """The call that an event speaks of; its start may be missing or still to come."""
        return self.find(run, producer_no, event.call.call_id) or self._new(event, producer_no, run)

    def changed(self, call: StoredCall) -> None:
        self._changed[call.id] = call
        self._last = call

    def flush(self) -> None:
        later_calls, later_previews = _Rows(), _Rows()
        fresh = _Shapes(CALL_COLUMNS, _insert_call, self._calls)
        filled = _Shapes(FILLED_COLUMNS, _update_call, later_calls)
        rewritten = _Shapes(CALL_COLUMNS, _update_call, later_calls)
        hints: list[tuple[Any, ...]] = []
        by_use: dict[tuple[str, str], None] = {}
        for call in self._changed.values():
            if call.tool_use_id is not None:
                by_use[call.run_id, call.tool_use_id] = None
            was_stored = call.stored
            if not was_stored:
                fresh.add(call)
                call.stored = True
            elif call.restarted:
                rewritten.add(call)
                call.restarted = False
            else:
                filled.add(call)
            if call.args_preview is not None or call.result_preview is not None or call.redaction_flags:
                if was_stored:
                    _add_preview(later_previews, _upsert_preview, call)
                else:
                    _add_preview(self._previews, _insert_preview, call)
                call.args_preview = call.result_preview = None
            if call.hint is not None:
                hint = call.hint
                args = json_text(hint.suggested_args)
                hints.append(
                    (call.id, call.call_id, hint.hint_text, args, call.hint_at, hint.hint_kind, hint.retry_advice)
                )
                call.hint = None
        self._changed.clear()
        for rows in (self._calls, later_calls, self._previews, later_previews):
            rows.write(self._connection)
        self._connection.executemany(_PUT_HINT, hints)
        join_rows(self._connection, by_use)
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Keep the calls that still wait for an event; all of them are stored."""
        if len(self._kept) > CALLS_KEPT:
            waiting = {key: call for key, call in self._kept.items() if call.end_event is None}
            self._kept = waiting if len(waiting) <= CALLS_KEPT // 2 else {}
        if len(self._ticks) > _TICKS_KEPT:
            self._ticks.clear()

    def _new(self, event: Any, producer_no: int, run: Run) -> StoredCall:
        told = event.call
        at = normal_ts(event.ts)
        call = StoredCall(told.call_id, run.run_id, told.server_name, told.tool_name, told.args_hash, at)
        call.producer_no = producer_no
        call.preview_truncated = 0
        call.id = self._next_id(epoch_ms(call.created_at), producer_no)
        run.counts.total += 1
        self._kept[(producer_no, call.call_id)] = call
        return call

    def _next_id(self, ms: int, producer_no: int) -> int:
        """The call's time and a tie-break. Trusting: a tick that is not at hand is free, without a look."""
        tick = (ms << TIE_BITS) + ((producer_no & 0xFF) << 8)
        used = self._ticks.get(tick)
        if used is None:
            used = tick - 1 if self._trusting else self._highest(tick)
        used += 1
        if used > tick + 0xFF:
            return self._next_id(ms + 1, producer_no)
        self._ticks[tick] = used
        return used

    def _highest(self, tick: int) -> int:
        sql = "SELECT max(id) FROM tool_calls WHERE id >= ? AND id <= ?"
        found = self._connection.execute(sql, (tick, tick + 0xFF)).fetchone()[0]
        return tick - 1 if found is None else int(found)


class RunTable:
    """`runs` and `producers`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._kept: dict[str, Run] = {}
        self._changed: dict[str, Run] = {}
        self._changed_producers: dict[int, Producer] = {}
        self._next_run_no, self._next_producer_no = connection.execute(
            "SELECT (SELECT coalesce(max(run_no), 0) + 1 FROM runs),"
            " (SELECT coalesce(max(producer_no), 0) + 1 FROM producers)"
        ).fetchone()

    def get(self, run_id: str) -> Run | None:
        run = self._kept.get(run_id)
        if run is not None:
            return run
        found = self._connection.execute(_SELECT_RUN, (run_id,)).fetchone()
        if found is None:
            return None
        run = Run(run_id, "")
        for name, value in zip(RUN_COLUMNS, found, strict=True):
            place, _, part = RUN_PLACES[name].rpartition(".")
            setattr(run.counts if place else run, part, value)
        run.stored = True
        sql = f"SELECT {_PRODUCER} FROM producers WHERE run_id = ? ORDER BY producer_no"
        for row in self._connection.execute(sql, (run_id,)):
            producer = Producer(*row)
            run.producers[producer.shim_id] = producer
        self._kept[run_id] = run
        return run

    def create(self, event: AnyEvent) -> Run:
        run = Run(event.run_id, normal_ts(event.ts))
        run.run_no = self._next_run_no
        self._next_run_no += 1
        self._kept[event.run_id] = run
        return run

    def create_producer(self, run: Run, event: AnyEvent) -> Producer:
        producer = run.join(event, self._next_producer_no)
        self._next_producer_no += 1
        return producer

    def touch(self, run: Run, producer: Producer) -> None:
        self._changed[run.run_id] = run
        self._changed_producers[producer.no] = producer

    def flush(self) -> list[Run]:
        """Write what changed and say which runs did."""
        runs = list(self._changed.values())
        fresh = [run for run in runs if not run.stored]
        execute = self._connection.executemany
        if fresh:
            execute(_INSERT_RUN, [run_values(run) for run in fresh])
        execute(_UPDATE_RUN, [(*run_values(run)[2:], run.run_no) for run in runs if run.stored])
        for run in fresh:
            run.stored = True
        execute(_UPSERT_PRODUCER, [astuple(producer) for producer in self._changed_producers.values()])
        self._changed.clear()
        self._changed_producers.clear()
        if len(self._kept) > RUNS_KEPT:
            self._kept = {run.run_id: run for run in runs[-RUNS_KEPT // 2 :]}
        return runs


class Catalogue:
    """`server_tools` and `policy_versions`: what exists, for listings, for globs and for bundles."""

    def __init__(self, connection: sqlite3.Connection, snapshots: str) -> None:
        self._connection = connection
        self._snapshots = snapshots
        self._tools: set[tuple[str, str]] = set()
        self._policies: set[tuple[str, str, str]] = set()
        self._new_tools: list[tuple[str, str]] = []
        self._new_policies: list[tuple[str, str, str | None, str, str | None, str]] = []

    def saw_tool(self, server_name: str, tool_name: str) -> None:
        tool = (server_name, tool_name)
        if tool not in self._tools:
            if len(self._tools) > CALLS_KEPT:
                self._tools.clear()
            self._tools.add(tool)
            self._new_tools.append(tool)

    def saw_policy(self, policy: ev.PolicyRef, mode: str | None, ts: str) -> None:
        key = (policy.policy_id, policy.policy_version, policy.policy_hash)
        if key not in self._policies:
            if len(self._policies) > RUNS_KEPT:
                self._policies.clear()
            self._policies.add(key)
            snapshot = find_snapshot(self._snapshots, policy.policy_hash)
            text = snapshot.decode() if snapshot is not None else None
            self._new_policies.append((key[0], key[1], mode, key[2], text, normal_ts(ts)))

    def flush(self) -> None:
        if self._new_tools:
            self._connection.executemany("INSERT OR IGNORE INTO server_tools VALUES (?, ?)", self._new_tools)
            self._new_tools.clear()
        if self._new_policies:
            self._connection.executemany(
                "INSERT INTO policy_versions (policy_id, version, mode, rules_hash, rules_json, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET mode = coalesce(mode, excluded.mode),"
                " rules_json = coalesce(rules_json, excluded.rules_json)",
                self._new_policies,
            )
            self._new_policies.clear()


class ConflictTable:
    """`conflicts`: the first event of each producer about each call that is another's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[str, str, str | None, str, int]] = []

    def claimed(self, producer: Producer, call_id: str, n: int) -> None:
        self._rows.append((producer.run_id, call_id, owner_of(call_id), producer.shim_id, n))

    def flush(self) -> None:
        if self._rows:
            self._connection.executemany("INSERT OR IGNORE INTO conflicts VALUES (?, ?, ?, ?, ?)", self._rows)
            self._rows.clear()
