"""ClickHouse: ReplacingMergeTree and its kin, read through views with FINAL.

What comes twice is merged away, sooner or later; a view with FINAL does it while reading, so that nothing is ever seen
twice. Lines that contradict each other have different hashes, which stand in the sorting key: both stay.

Traps:
- Rows go in as columns (`native`): text that the engine has to parse costs it twice as much.
- A deduplication token would drop another block of the same token silently, and forgets after an hour: none is used.
- There is no transaction over tables. Each insert alone is harmless to repeat, and what a cursor vouches by comes last.
- `calls` needs CoalescingMergeTree (25.6 and later).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from subluminal.contracts.moments import DAY_MS
from subluminal.fleet.stores.asked import QUICK, READ, WRITE, Slots
from subluminal.fleet.stores.base import Claim, Dialect, Producer, StoreError, TooLong, Unstorable, Written, chunks
from subluminal.fleet.stores.native import block
from subluminal.fleet.stores.tables import (
    ADDED,
    ADDED_SINCE,
    CALLS,
    CONTESTED,
    DAY,
    DOORS,
    DOORS_KNOWN,
    EVENTS,
    FILED,
    FILL,
    GREATEST,
    LEAST,
    LINE_HASH,
    NUMBER,
    PRODUCERS,
    RUNS,
    TABLES,
    TEXT,
    WORD,
    Column,
    Table,
)

_TYPES = {TEXT: "String", "word": "LowCardinality(String)", NUMBER: "Int64", DAY: "Date"}
_CODECS = {"line": " CODEC(ZSTD(3))"}
# Of rows that were written without it.
_RUN_DAY = " DEFAULT toDate(fromUnixTimestamp64Milli(last_ms))"
_ENGINES = {
    "events": "ReplacingMergeTree(received_ms)",
    "calls": "CoalescingMergeTree",
    "runs": "AggregatingMergeTree",
    "spans": "ReplacingMergeTree",
    "heads": "ReplacingMergeTree",
    "producers": "AggregatingMergeTree",
    "contested": "ReplacingMergeTree",
}
# Rows of different partitions never become one, and those of a run are of several days.
_OF_MANY_DAYS = (RUNS, PRODUCERS)
_KEYS_AT_ONCE = 500
_PARAMETER = re.compile(r":([a-z_0-9]+)")
_CODE = re.compile(r"[Cc]ode:? (\d+)")
# Text that cannot be parsed; data that ends early, is incorrect, too large or out of bounds; NULL where there is none.
_OF_ROWS = (6, 27, 32, 33, 69, 117, 131, 349)
_TIMEOUT_EXCEEDED = 159
# For one statement of an engine in this process: commits and cursors wait as long.
_EMBEDDED_S = 10.0
# Weeks, so that a machine that was away for a year makes fewer parts of one insert than the engine takes (100).
_PARTITION = "toMonday(day)"
DIALECT = Dialect(
    calls="calls_once",
    runs="runs_once",
    events="events_once",
    spans="spans_once",
    heads="heads_once",
    nulls_last="NULLS LAST",
    contains="positionCaseInsensitive({}, {}) > 0",
    few="{} IN ({})",
    day_of="formatDateTime(fromUnixTimestamp64Milli({}, 'UTC'), '{}')",
    divided="intDiv({}, {})",
)


def _column(table: Table, column: Column) -> str:
    kind = _TYPES[column.kind]
    if column.merge in (LEAST, GREATEST):
        function, plain = "min" if column.merge == LEAST else "max", _TYPES[TEXT] if column.kind == WORD else kind
        kind = f"SimpleAggregateFunction({function}, Nullable({plain}))"
    elif column.merge == FILL and column.kind != DAY and table is CALLS:
        kind = "LowCardinality(Nullable(String))" if column.kind == "word" else f"Nullable({kind})"
    more = _RUN_DAY if table is RUNS and column.kind == DAY else _CODECS.get(column.name, "")
    return f"{column.name} {kind}{more}"


def _create(table: Table) -> str:
    columns = [_column(table, column) for column in table.columns]
    key = [*table.key]
    if table in (EVENTS, CONTESTED):
        columns.append(f"{LINE_HASH} FixedString(32) DEFAULT SHA256(line)")
        key.append(LINE_HASH)
    partition = "" if table in _OF_MANY_DAYS else f" PARTITION BY {_PARTITION}"
    return (
        f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}) ENGINE = {_ENGINES[table.name]}"
        f"{partition} ORDER BY ({', '.join(key)})"
    )


def _view(table: Table) -> str:
    names = [*table.names, *([LINE_HASH] if table is EVENTS else [])]
    return f"CREATE VIEW IF NOT EXISTS {table.name}_once AS SELECT {', '.join(names)} FROM {table.name} FINAL"


def _added(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    columns = [_column(table, column) for column in table.columns if column.name in names]
    view = _view(table).replace("CREATE VIEW IF NOT EXISTS", "CREATE OR REPLACE VIEW")
    return *(f"ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS {column}" for column in columns), view


def _calls_view() -> str:
    """To merge all rows while reading takes most of the time of a question. Those of one call are of one partition, but
    for calls that went on from one week to the next and those that a wrong clock has filed by the day they arrived.
    Only runs that have such rows are merged across partitions; of the others, a partition that is one part is read as
    it is. A row without a start that comes while a question is answered is left to the next one.
    """
    names, run = ", ".join(CALLS.names), "(tenant, run_id)"
    spread = f"created_ms IS NULL OR intDiv(created_ms, {DAY_MS}) <> toUInt16(day)"
    runs = f"SELECT tenant, run_id FROM calls WHERE {spread}"
    return (
        f"CREATE OR REPLACE VIEW calls_once AS SELECT {names} FROM calls FINAL"
        f" WHERE created_ms IS NOT NULL AND {run} NOT IN ({runs})"
        " SETTINGS do_not_merge_across_partitions_select_final = 1"
        f" UNION ALL SELECT {names} FROM calls FINAL WHERE {run} IN ({runs})"
    )


def _events_view() -> str:
    """With what is contested of numbers that have no line else. Where nothing is, no event is read for it."""
    names, key = ", ".join((*EVENTS.names, LINE_HASH)), ", ".join(EVENTS.key)
    known = (
        f"SELECT {key} FROM events WHERE (tenant, run_id, shim_id) IN (SELECT tenant, run_id, shim_id FROM contested)"
    )
    beside = f"SELECT {names} FROM contested WHERE ({key}) NOT IN ({known}) ORDER BY received_ms LIMIT 1 BY {key}"
    return f"CREATE OR REPLACE VIEW events_once AS SELECT {names} FROM events FINAL UNION ALL SELECT * FROM ({beside})"


def _conflicts(which: str = "1") -> str:
    """Numbers that have several lines, or none that the shim's own machine has told."""
    lines = " UNION ALL ".join(
        f"SELECT tenant, run_id, shim_id, seq, machine, line_hash, {beside} AS beside FROM {table} WHERE {which}"
        for beside, table in enumerate(("events", "contested"))
    )
    return (
        "SELECT tenant, run_id, shim_id, seq, uniqExact(line_hash) AS lines, groupUniqArray(machine) AS machines"
        f" FROM ({lines}) GROUP BY tenant, run_id, shim_id, seq HAVING lines > 1 OR min(beside) = 1"
    )


# A migration that was released is never edited.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        *(_create(table) for table in TABLES),
        *(_view(table) for table in TABLES),
        # Both lines of a conflict, whoever brought them: what `once` cannot choose between.
        "CREATE VIEW IF NOT EXISTS conflicts AS SELECT tenant, run_id, shim_id, seq, uniqExact(line_hash) AS lines,"
        " groupUniqArray(machine) AS machines FROM events GROUP BY tenant, run_id, shim_id, seq HAVING lines > 1",
    ),
    _added(CALLS, ADDED_SINCE),
    (
        *_added(RUNS, (*DOORS, *FILED)),  # both: the view has all columns
        f"INSERT INTO runs (tenant, run_id, {', '.join(DOORS)}) {DOORS_KNOWN}",
    ),
    # For whoever asks what has just arrived (`arrivals`): of parts that are old, nothing is read.
    ("ALTER TABLE events ADD INDEX IF NOT EXISTS events_received received_ms TYPE minmax GRANULARITY 1",),
    _added(RUNS, FILED),
    (
        _create(PRODUCERS),
        _create(CONTESTED),
        # A day comes before every moment of it.
        "INSERT INTO producers SELECT tenant, run_id, shim_id, min(concat(toString(day), ' ', machine)), max(day)"
        " FROM spans GROUP BY tenant, run_id, shim_id",
        _events_view(),
        f"CREATE OR REPLACE VIEW conflicts AS {_conflicts()}",
    ),
    (_calls_view(),),
)
_VERSIONS = "CREATE TABLE IF NOT EXISTS migrations (version Int64) ENGINE = ReplacingMergeTree ORDER BY version"


class ClickHouse:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._clients: dict[str, Any] = {}
        # One in this process serves one statement at a time; of a server each slot has a session.
        self._embedded = dsn.startswith("chdb:")
        self._slots = Slots(is_one=self._embedded)

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, slot: str) -> Any:
        if slot not in self._clients:
            self._clients[slot] = clickhouse_connect.get_client(dsn=self._dsn)
        return self._clients[slot]

    def _do(self, purpose: str, work: Any, seconds: float | None = None) -> Any:
        with self._slots.one(purpose, seconds) as slot:
            try:
                return work(self._client(slot))
            except (ClickHouseError, OSError, RuntimeError) as error:
                text = (str(error).splitlines() or [type(error).__name__])[0][:300]
                code = _CODE.search(text)
                if code is not None and int(code[1]) == _TIMEOUT_EXCEEDED and seconds is not None:
                    raise TooLong(seconds) from None
                if not self._embedded:
                    self._clients.pop(slot, None)  # a new one tells how things are
                if code is not None and int(code[1]) in _OF_ROWS:
                    raise Unstorable(f"ClickHouse: code {code[1]}") from None
                raise StoreError(f"ClickHouse: {text}") from None

    def migrate(self, retention_days: int) -> None:
        self._do(WRITE, lambda client: client.command(_VERSIONS))
        done = self.select("SELECT max(version) FROM migrations", {})[0][0] or 0
        for version, statements in enumerate(MIGRATIONS[done:], done + 1):
            for statement in statements:
                self._do(WRITE, lambda client, statement=statement: client.command(statement))
            self._do(WRITE, lambda client, v=version: client.command(f"INSERT INTO migrations VALUES ({v})"))
        self.expire(retention_days)

    def expire(self, retention_days: int) -> None:
        """The engine removes by itself what is older; 0: nothing."""
        for table in (*TABLES, PRODUCERS, CONTESTED):
            told = self.select(
                "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = :name",
                {"name": table.name},
            )[0][0]
            # A row that knows no day becomes one with a row that does, and goes with it.
            day = "coalesce(day, toDate('2100-01-01'))" if table in _OF_MANY_DAYS else "day"
            wanted = f"TTL {day} + toIntervalDay({retention_days})"
            if retention_days and wanted not in told:
                sql = f"ALTER TABLE {table.name} MODIFY {wanted}"
            elif not retention_days and " TTL " in told:
                sql = f"ALTER TABLE {table.name} REMOVE TTL"
            else:
                continue
            self._do(WRITE, lambda client, sql=sql: client.command(sql))

    def write(self, rows: dict[str, list[Any]]) -> Written:
        self._insert(CONTESTED, rows.get(CONTESTED.name))
        for table in TABLES:
            self._insert(table, rows.get(table.name))
            if table is CALLS and rows.get(ADDED):
                self._insert(CALLS, self._where_open(rows[ADDED]))
        return Written(None, None)

    def _insert(self, table: Table, rows: Sequence[Any] | None) -> None:
        if rows:
            data, names = block(table, rows), list(table.names)
            settings = {"async_insert": 0}
            self._do(
                WRITE,
                lambda client: client.raw_insert(
                    table.name, column_names=names, insert_block=data, fmt="Native", settings=settings
                ),
            )

    def _where_open(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """What these tell of calls of which nothing is told yet. The engine itself lets the last word stand."""
        width = len(CALLS.key)
        known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for some in chunks([tuple(row[:width]) for row in rows], _KEYS_AT_ONCE):
            sql = f"SELECT {', '.join(CALLS.names)} FROM calls_once WHERE ({', '.join(CALLS.key)}) IN :keys"
            known.update({row[:width]: row for row in self.select(sql, {"keys": list(some)})})
        left = []
        for row in rows:
            told = known.get(tuple(row[:width]))
            if told is None:
                left.append(list(row))
                continue
            more = [new if old is None else None for new, old in zip(row[width:], told[width:], strict=True)]
            if any(value is not None for value in more):
                more[CALLS.names.index("day") - width] = str(told[CALLS.names.index("day")])  # of one partition
                left.append([*row[:width], *more])
        return left

    def claim(self, claims: Sequence[Claim]) -> dict[Producer, str]:
        """There is no transaction: of collectors that claim at the same moment, each may find its own until it asks
        again (`collector.owners`). The least stands."""
        known = self._claims(claims)
        self._insert(
            PRODUCERS,
            [
                (*row[:3], known[row[:3]][0] if row[:3] in known else row[3], row[4])
                for row in claims
                if row[:3] not in known or known[row[:3]][1] < row[4]
            ],
        )
        if len(known) < len(claims):
            known = self._claims(claims)
        return {producer: claim for producer, (claim, _) in known.items()}

    def _claims(self, claims: Sequence[Claim]) -> dict[Producer, tuple[str, str]]:
        found: dict[Producer, tuple[str, str]] = {}
        for some in chunks([row[:3] for row in claims], _KEYS_AT_ONCE):
            sql = "SELECT tenant, run_id, shim_id, min(claim), toString(max(day)) FROM producers"
            sql += " WHERE (tenant, run_id, shim_id) IN :keys GROUP BY 1, 2, 3"
            found.update({(row[0], row[1], row[2]): (row[3], row[4]) for row in self.select(sql, {"keys": list(some)})})
        return found

    def conflicts_among(self, producers: Sequence[Producer]) -> dict[Producer, int]:
        found: dict[Producer, int] = {}
        for some in chunks(producers, _KEYS_AT_ONCE):
            which = _conflicts("(tenant, run_id, shim_id) IN :keys")
            sql = f"SELECT tenant, run_id, shim_id, count() FROM ({which}) GROUP BY 1, 2, 3"
            found.update({(row[0], row[1], row[2]): row[3] for row in self.select(sql, {"keys": list(some)})})
        return found

    def select(
        self, sql: str, values: dict[str, Any], seconds: float | None = None, *, quick: bool = False
    ) -> list[tuple[Any, ...]]:
        text = _PARAMETER.sub(lambda found: _literal(values[found[1]]), sql)
        if self._embedded and seconds is not None:
            seconds = min(seconds, _EMBEDDED_S)
        settings = None if seconds is None else {"max_execution_time": math.ceil(seconds)}
        purpose = QUICK if quick else READ
        return list(self._do(purpose, lambda client: client.query(text, settings=settings).result_rows, seconds))


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], tuple):
        return "(" + ", ".join(f"({', '.join(map(_literal, item))})" for item in value) + ")"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(_literal, value)) + ")"
    return str(value) if isinstance(value, int) else quoted(value)
