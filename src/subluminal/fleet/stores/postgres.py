"""Postgres: COPY into temporary tables, then one transaction that keeps each event once.

An event is known by (tenant, run, shim, seq). One that is there already with the same line is a duplicate; with another
line it is a conflict and goes to `contested`, beside the one that stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import psycopg

from subluminal.fleet.stores.asked import QUICK, READ, WRITE, Slots
from subluminal.fleet.stores.base import Claim, Dialect, Lines, Producer, StoreError, TooLong, Unstorable, Written
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
    KEY,
    LEAST,
    LINE_HASH,
    NUMBER,
    PRODUCERS,
    RUNS,
    TABLES,
    Column,
    Table,
)

# What becomes of a column that is filled in twice.
_LAST_WORD, _WHERE_OPEN = "coalesce({new}, {old})", "coalesce({old}, {new})"
_TYPES = {"text": "text", "word": "text", NUMBER: "bigint", DAY: "date"}
_PARAMETER = re.compile(r":([a-z_0-9]+)")
# Classes of SQLSTATE: cardinality violation, data exception, integrity constraint violation, program limit exceeded.
_OF_ROWS = ("21", "22", "23", "54")
# One collector migrates at a time.
_MIGRATION_LOCK = 0x5355424C
DIALECT = Dialect(
    calls="calls",
    runs="runs",
    events="events_once",
    spans="spans",
    heads="heads",
    nulls_last="NULLS LAST",
    contains="position({1} in lower({0})) > 0",
    few="{} = ANY (ARRAY({}))",
    day_of="to_char(to_timestamp({} / 1000.0) AT TIME ZONE 'UTC', '{}')",
    divided="(({}) / ({}))",
)


def _column(column: Column) -> str:
    """The least and the greatest of doors are found here and by the collector: both must have one order of texts."""
    order = ' COLLATE "C"' if column.name in DOORS else ""
    return f"{_name(column.name)} {_TYPES[column.kind]}{order}{' NOT NULL' if column.merge == KEY else ''}"


def _name(name: str) -> str:
    return f'"{name}"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _create(table: Table) -> str:
    columns = [_column(column) for column in table.columns]
    if table is EVENTS:
        columns.append(f"{LINE_HASH} bytea NOT NULL")
    return f"CREATE TABLE {table.name} ({', '.join(columns)}, PRIMARY KEY ({_names(table.key)}))"


def _added(table: Table, names: tuple[str, ...]) -> list[str]:
    columns = [_column(column) for column in table.columns if column.name in names]
    return [f"ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS {column}" for column in columns]


_PRODUCER = "tenant, run_id, shim_id"
_LINE = _names((*EVENTS.names, LINE_HASH))
_SAME_NUMBER = " AND ".join(f"e.{name} = c.{name}" for name in EVENTS.key)
_SAME_LINE = f"{_SAME_NUMBER} AND e.{LINE_HASH} = c.{LINE_HASH}"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        *(_create(table) for table in TABLES),
        "CREATE INDEX calls_created ON calls (tenant, created_ms DESC)",
        "CREATE INDEX calls_names ON calls (tenant, server_name, tool_name)",
        "CREATE INDEX calls_refused ON calls (tenant, decision, created_ms DESC) WHERE decision <> 'ALLOW'",
        "CREATE INDEX runs_first ON runs (tenant, first_ms DESC)",
        "CREATE INDEX events_day ON events (day)",
        f"CREATE TABLE conflicts (LIKE events, PRIMARY KEY ({_names((*EVENTS.key, LINE_HASH))}))",
        "CREATE VIEW events_once AS SELECT * FROM events",
    ),
    (
        *_added(CALLS, ADDED_SINCE),
        "CREATE INDEX calls_use ON calls (tenant, run_id, tool_use_id) WHERE tool_use_id IS NOT NULL",
    ),
    (
        *_added(RUNS, DOORS),
        f"UPDATE runs SET ({', '.join(DOORS)}) = (found.least, found.greatest) FROM ({DOORS_KNOWN}) AS found"
        " WHERE runs.tenant = found.tenant AND runs.run_id = found.run_id",
        "CREATE INDEX IF NOT EXISTS runs_doors ON runs (tenant, run_id) WHERE least_door <> greatest_door",
    ),
    # For whoever asks what has just arrived (`arrivals`).
    ("CREATE INDEX IF NOT EXISTS events_received ON events (tenant, received_ms)",),
    (
        *_added(RUNS, FILED),
        "UPDATE runs SET day = coalesce((SELECT max(day) FROM spans WHERE spans.tenant = runs.tenant"
        " AND spans.run_id = runs.run_id), to_timestamp(last_ms / 1000)::date)",
    ),
    (
        _create(PRODUCERS).replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"),
        # A day comes before every moment of it.
        f"INSERT INTO producers SELECT {_PRODUCER}, min(day::text || ' ' || machine), max(day) FROM spans"
        f" GROUP BY {_PRODUCER} ON CONFLICT DO NOTHING",
        "DO $$ BEGIN"
        " IF EXISTS (SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'conflicts') THEN"
        " ALTER TABLE conflicts RENAME TO contested; ALTER TABLE contested DROP CONSTRAINT conflicts_pkey;"
        f" ALTER TABLE contested ADD PRIMARY KEY ({_names((*CONTESTED.key, LINE_HASH))}); END IF; END $$",
        # What the shim's own machine has told, or has come to tell since, is none.
        "CREATE OR REPLACE VIEW conflicts AS SELECT * FROM contested c"
        f" WHERE NOT EXISTS (SELECT FROM events e WHERE {_SAME_LINE})",
        f"CREATE OR REPLACE VIEW events_once AS SELECT {_LINE} FROM events UNION ALL"
        f" SELECT {_LINE} FROM (SELECT DISTINCT ON ({_names(EVENTS.key)}) * FROM contested c WHERE NOT EXISTS"
        f" (SELECT FROM events e WHERE {_SAME_NUMBER}) ORDER BY {_names(EVENTS.key)}, received_ms) AS beside",
    ),
)


class Postgres:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connections: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}
        self._slots = Slots(is_one=False)

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _do(self, purpose: str, work: Any, seconds: float | None = None) -> Any:
        with self._slots.one(purpose, seconds) as slot:
            try:
                kept = self._connections.get(slot)
                if kept is not None and not kept.closed:
                    try:
                        return self._try(kept, work, seconds)
                    except psycopg.OperationalError as error:
                        if _is_of_rows(error) or isinstance(error, psycopg.errors.QueryCanceled):
                            raise
                        kept.close()  # the server was started again meanwhile, perhaps: a new one tells how things are
                connection = self._connections[slot] = psycopg.connect(self._dsn, connect_timeout=5)
                return self._try(connection, work, seconds)
            except psycopg.errors.QueryCanceled:
                raise TooLong(seconds or 0.0) from None
            except (psycopg.Error, OSError) as error:
                if _is_of_rows(error):
                    raise Unstorable(f"Postgres: {type(error).__name__}") from None
                raise StoreError(f"Postgres: {(str(error).splitlines() or [type(error).__name__])[0][:300]}") from None

    def _try(self, connection: psycopg.Connection[Any], work: Any, seconds: float | None) -> Any:
        with connection.transaction():
            if seconds is not None:
                connection.execute(f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")
            return work(connection)

    def migrate(self, retention_days: int) -> None:
        def work(connection: psycopg.Connection[Any]) -> None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS migrations (version bigint PRIMARY KEY)")
            row = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
            done = row[0] if row else 0
            for version, statements in enumerate(MIGRATIONS[done:], done + 1):
                for statement in statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (%s)", (version,))

        self._do(WRITE, work)
        self.expire(retention_days)

    def expire(self, retention_days: int) -> None:
        if not retention_days:
            return

        def work(connection: psycopg.Connection[Any]) -> None:
            for table in (*TABLES, PRODUCERS, CONTESTED):
                connection.execute(f"DELETE FROM {table.name} WHERE day < current_date - %s::int", (retention_days,))

        self._do(WRITE, work)

    def claim(self, claims: Sequence[Claim]) -> dict[Producer, str]:
        names = PRODUCERS.names
        kinds = ", ".join(f"%s::{_TYPES[column.kind]}[]" for column in PRODUCERS.columns)
        sql = (
            f"INSERT INTO producers ({_names(names)}) SELECT * FROM unnest({kinds})"
            f" ON CONFLICT ({_PRODUCER}) DO UPDATE SET day = greatest(excluded.day, producers.day)"
            f" RETURNING {_PRODUCER}, claim"
        )
        # In one order everywhere, as of all rows that collectors may write at once.
        columns = [list(column) for column in zip(*sorted(claims), strict=True)]
        rows = self._do(WRITE, lambda connection: connection.execute(sql, columns).fetchall())
        return {(row[0], row[1], row[2]): row[3] for row in rows}

    def write(self, rows: dict[str, list[Any]]) -> Written:
        written: Written = self._do(WRITE, lambda connection: _write(connection, rows))
        return written

    def conflicts_among(self, producers: Sequence[Producer]) -> dict[Producer, int]:
        return {}  # each commit has told

    def select(
        self, sql: str, values: dict[str, Any], seconds: float | None = None, *, quick: bool = False
    ) -> list[tuple[Any, ...]]:
        found: dict[str, Any] = {}

        def parameter(match: re.Match[str]) -> str:
            value = values[match[1]]
            if isinstance(value, (list, tuple)):
                if value and isinstance(value[0], tuple):
                    names = []
                    for item in value:
                        for part in item:
                            found[f"p{len(found)}"] = part
                        names.append(f"({', '.join(f'%(p{len(found) - len(item) + i})s' for i in range(len(item)))})")
                    return f"({', '.join(names)})"
                marks = []
                for part in value:
                    found[f"p{len(found)}"] = part
                    marks.append(f"%(p{len(found) - 1})s")
                return f"({', '.join(marks)})"
            found[f"p{len(found)}"] = value
            return f"%(p{len(found) - 1})s"

        text = _PARAMETER.sub(parameter, sql.replace("%", "%%").replace("::", "\0")).replace("\0", "::")
        purpose = QUICK if quick else READ
        return list(self._do(purpose, lambda connection: connection.execute(text, found).fetchall(), seconds))


def _is_of_rows(error: Exception) -> bool:
    """Whether it is what was to be written that cannot be: any other fault is the store's or of the way to it."""
    if not isinstance(error, psycopg.Error):
        return False
    return isinstance(error, psycopg.DataError) if error.sqlstate is None else error.sqlstate[:2] in _OF_ROWS


def _write(connection: psycopg.Connection[Any], rows: dict[str, list[Any]]) -> Written:
    written = Written(0, 0)
    for table in TABLES:
        found = rows.get(table.name)
        if found and table is EVENTS:
            written = _keep_events(connection, _copy_lines(connection, EVENTS, found))
        elif found:
            _keep_rows(connection, table, found)
        if table is CALLS and rows.get(ADDED):
            if found:
                connection.execute("TRUNCATE new_calls")
            _keep_rows(connection, CALLS, rows[ADDED], _WHERE_OPEN)
    contested = rows.get(CONTESTED.name)
    if contested:
        offered = _copy_lines(connection, CONTESTED, contested)
        kept = _keep_contested(connection)
        written = Written((written.duplicates or 0) + offered - kept, (written.conflicts or 0) + kept)
    return written


def _copy_lines(connection: psycopg.Connection[Any], table: Table, found: list[Lines]) -> int:
    _copy(connection, table, (row for lines in found for row in _event_rows(lines)), (LINE_HASH,))
    return sum(len(lines.lines) for lines in found)


def _event_rows(lines: Lines) -> Iterator[tuple[Any, ...]]:
    """In the order of `EVENTS`, and the hash."""
    who, received_ms, machine = (lines.tenant, lines.run_id, lines.shim_id), lines.received_ms, lines.machine
    columns = zip(lines.days, lines.ts_ms, lines.types, lines.lines, strict=True)
    for seq, (day, ts_ms, kind, line) in enumerate(columns, lines.first_seq):
        yield *who, seq, day, ts_ms, received_ms, machine, kind, line.decode(), sha256(line).digest()


def _copy(
    connection: psycopg.Connection[Any], table: Table, rows: Iterable[Sequence[Any]], more: tuple[str, ...]
) -> None:
    names = _names((*table.names, *more))
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_{table.name} (LIKE {table.name}) ON COMMIT DELETE ROWS")
    cursor = connection.cursor()
    with cursor.copy(f"COPY new_{table.name} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row([part.replace("\0", "\ufffd") if type(part) is str else part for part in row])


def _keep_events(connection: psycopg.Connection[Any], offered: int) -> Written:
    names = _names((*EVENTS.names, LINE_HASH))
    kept = connection.execute(
        f"INSERT INTO events ({names}) SELECT {names} FROM new_events ORDER BY {_names(EVENTS.key)}"
        f" ON CONFLICT ({_names(EVENTS.key)}) DO NOTHING"
    ).rowcount
    if kept == offered:
        return Written(0, 0)
    conflicts = connection.execute(
        f"INSERT INTO contested ({names}) SELECT {', '.join('n.' + _name(name) for name in (*EVENTS.names, LINE_HASH))}"
        " FROM new_events n JOIN events e USING (tenant, run_id, shim_id, seq) WHERE n.line_hash <> e.line_hash"
        " ON CONFLICT DO NOTHING"
    ).rowcount
    return Written(offered - kept - conflicts, conflicts)


def _keep_contested(connection: psycopg.Connection[Any]) -> int:
    """How many are new, and not what the shim's own machine has told."""
    kept = connection.execute(
        f"INSERT INTO contested ({_LINE}) SELECT {_LINE} FROM new_contested c"
        f" WHERE NOT EXISTS (SELECT FROM events e WHERE {_SAME_LINE}) ON CONFLICT DO NOTHING"
    )
    return int(kept.rowcount)


def _keep_rows(connection: psycopg.Connection[Any], table: Table, rows: list[Any], fill: str = _LAST_WORD) -> None:
    # In one order everywhere: two collectors that write the same rows wait for each other and do not die.
    _copy(connection, table, sorted(rows, key=lambda row: [str(part) for part in row[: len(table.key)]]), ())
    names = _names(table.names)
    updates = []
    for column in table.columns:
        name = _name(column.name)
        if column.merge == KEY:
            continue
        if column.merge == FILL:
            updates.append(f"{name} = {fill.format(new=f'excluded.{name}', old=f'{table.name}.{name}')}")
        else:
            function = "least" if column.merge == LEAST else "greatest"
            updates.append(f"{name} = {function}(excluded.{name}, {table.name}.{name})")
    does = f"DO UPDATE SET {', '.join(updates)}" if table is CALLS or table.name == "runs" else "DO NOTHING"
    connection.execute(
        f"INSERT INTO {table.name} ({names}) SELECT {names} FROM new_{table.name}"
        f" ON CONFLICT ({_names(table.key)}) {does}"
    )
