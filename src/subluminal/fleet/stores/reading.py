"""What a store holds, as the ledger of one machine would tell it: pages of calls, counts, groups, runs, lines.

SQL finds; what is told of a call or run is folded from its exact lines by `ledger.fold`, so that here and on the
machine it is the same. A call that several doors saw is told once, as there (`joined`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.contracts import events as ev
from subluminal.contracts.counts import Counts
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.filters import CALL_FILTERS, LISTS, Filters, RunFilters
from subluminal.contracts.short_ids import MIN_PIECE, runs_back
from subluminal.fleet.stores.base import Answers, chunks
from subluminal.fleet.stores.conditions import Where, call_conditions, run_conditions
from subluminal.fleet.stores.cursors import cursor_key, cursor_text
from subluminal.fleet.stores.joined import passed_over, stands, stands_not
from subluminal.fleet.stores.tables import CONTESTED, claimant
from subluminal.ledger.fold.call import begin
from subluminal.ledger.fold.reading import AnyEvent, BadEvent, read_event
from subluminal.ledger.fold.run import Run, TypedCall
from subluminal.ledger.read.groups import add_up
from subluminal.ledger.read.ledger import CALL_COLUMNS, MAX_LIMIT, RUN_COLUMNS, Page, Row
from subluminal.ledger.read.lookup import LISTED, ambiguous

_NUMBERS = ("start_seq", "decision_seq", "end_seq")
_KEY = ("created_ms", "run_id", "shim_id", "call_id")
_KEY_COLUMNS = ", ".join(("coalesce(created_ms, -1)", *_KEY[1:], *_NUMBERS, "tool_use_id"))
_STEPS = {"day": ("%Y-%m-%d", "YYYY-MM-DD"), "hour": ("%Y-%m-%dT%H", 'YYYY-MM-DD"T"HH24')}
_STEPS["minute"] = ("%Y-%m-%dT%H:%i", 'YYYY-MM-DD"T"HH24:MI')
GROUPS = (*(found.column for found in CALL_FILTERS if found.kind in LISTS), *_STEPS)
# Filters of calls, as far as they say something of the runs.
_RUNS_OF = {"run_id": "run_id IN :asked", "since_ms": "last_ms >= :asked", "until_ms": "first_ms < :asked"}
_OF_RUNS = ("run_start", "run_end", "model_message")
_OF_CALLS = ("tool_call_start", "tool_call_decision", "tool_call_end")
_OF_PRODUCERS = ("shim_id", "host_id", "proc_id", "started_at", "ended_at", "status")
# Keys in one question: more make a statement that engines refuse.
_AT_ONCE = 1000
# Of a call: when it began, who it is, where its events are, and the client's id of it.
Key = tuple[Any, ...]


class Reader:
    """Of one tenant."""

    def __init__(self, store: Answers, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self.dialect = store.dialect

    def select(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._store.select(sql, {"tenant": self._tenant, **values})

    # -- calls ----------------------------------------------------------------------------------------------------

    def calls(self, filters: Filters, *, limit: int, cursor: str | None = None, previews: bool = False) -> Page:
        """Newest first. A call whose start never came has no time, and stands last."""
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageError(f"A limit must be between 1 and {MAX_LIMIT}, not {limit}.")
        rows: list[Row] = []
        cursors: list[str] = []
        while len(rows) <= limit:
            wanted = min(limit + 1 - len(rows), _AT_ONCE)
            keys = self._keys(filters, wanted, cursor)
            left_out = self.passed_over(keys)
            for key, call in zip(keys, self.folded(keys), strict=True):
                cursor = cursor_text(key)
                row = None if call is None or key[1:4] in left_out else call_row(call, previews)
                if row is not None and self.matches(filters, call):
                    rows.append(row)
                    cursors.append(cursor)
            if len(keys) < wanted:
                break
        return Page(rows[:limit], cursors[:limit], more=len(rows) > limit)

    def _keys(self, filters: Filters, limit: int, cursor: str | None) -> list[Key]:
        where = Where(self._tenant)
        call_conditions(self._store, where, filters)
        if cursor is not None:
            at = cursor_key(cursor, 4)
            where.add(
                "(coalesce(created_ms, -1), run_id, shim_id, call_id) < (:ms, :run, :shim, :call)",
                **dict(zip(("ms", "run", "shim", "call"), at, strict=True)),
            )
        order = ", ".join(f"{place} DESC" for place in (1, 2, 3, 4))
        sql = f"SELECT {_KEY_COLUMNS} FROM {self.dialect.calls} WHERE {where.sql} ORDER BY {order} LIMIT {limit}"
        return self._store.select(sql, where.values)

    def keys_in(self, which: str, **values: Any) -> list[Key]:
        """Of calls that a condition names, in order of time."""
        calls = self.dialect.calls
        sql = f"SELECT {_KEY_COLUMNS} FROM {calls} WHERE tenant = :tenant AND {which}"
        return self.select(f"{sql} ORDER BY created_ms, start_n, shim_id, call_id", **values)

    def keys_among(self, filters: Filters, names: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        """Which of these (run_id, shim_id, call_id) are asked for; a text apart, which `matches` tells."""
        found: set[tuple[str, str, str]] = set()
        for some in chunks(names, _AT_ONCE):
            where = Where(self._tenant)
            call_conditions(self._store, where, filters)
            where.add("(run_id, shim_id, call_id) IN :names", names=list(some))
            sql = f"SELECT run_id, shim_id, call_id FROM {self.dialect.calls} WHERE {where.sql}"
            found.update((row[0], row[1], row[2]) for row in self._store.select(sql, where.values))
        return found

    def passed_over(self, keys: list[Key]) -> set[tuple[Any, ...]]:
        """Those for which that of another door stands. Asked of a page: of all calls it would take too long."""
        named = list(dict.fromkeys((key[1], key[-1]) for key in keys if key[-1] is not None))
        if not named:
            return set()
        sql = passed_over(self.dialect.calls, "AND (run_id, tool_use_id) IN :named")
        return {tuple(row) for row in self.select(sql, named=named)}

    def _runs_of(self, where: Where, filters: Filters) -> str:
        """Conditions on the runs. What a run has seen lies between its first moment and its last."""
        runs = Where(self._tenant)
        runs.values = where.values  # one set of values, so that no name stands for two
        for name, sql in _RUNS_OF.items():
            if name in filters.asked:
                runs.add(sql, asked=filters.asked[name])
        return runs.sql

    def _counted(self, filters: Filters, columns: list[str]) -> list[tuple[Any, ...]]:
        """(columns, calls), by the SQL of each column: all that is asked for, less those for which another stands."""
        where = Where(self._tenant)
        call_conditions(self._store, where, filters)
        others = stands_not(self.dialect, self._runs_of(where, filters))
        names = [f"c{place}" for place in range(len(columns))]
        told = "".join(f"{column} AS {name}, " for column, name in zip(columns, names, strict=True))
        by = f" GROUP BY {', '.join(names)}" if names else ""
        found = f"FROM {self.dialect.calls} WHERE {where.sql}"
        parts = (
            f"SELECT {told}CAST(count(*) AS bigint) AS n {found}{by}",
            f"SELECT {told}-CAST(count(*) AS bigint) AS n {found} AND {others}{by}",
        )
        sql = (
            f"SELECT {', '.join((*names, 'CAST(sum(n) AS bigint)'))} FROM ({' UNION ALL '.join(parts)}) AS counted{by}"
        )
        return self._store.select(f"{sql} HAVING sum(n) > 0" if names else sql, where.values)

    def folded(self, keys: list[Key]) -> list[TypedCall | None]:
        return [fold(events) for events in self.events_of(keys)]

    def events_of(self, keys: list[Key]) -> list[list[AnyEvent | None]]:
        """Start, decision and end of each."""
        wanted = [(key[1], key[2], seq) for key in keys for seq in key[4:7] if seq is not None]
        events: dict[tuple[str, str, int], AnyEvent] = {}
        for some in chunks(wanted, _AT_ONCE):
            sql = f"SELECT run_id, shim_id, seq, line FROM {self.dialect.events} WHERE tenant = :tenant"
            sql += " AND (run_id, shim_id, seq) IN :keys ORDER BY run_id, shim_id, seq, line_hash"
            for run_id, shim_id, seq, line in self.select(sql, keys=list(some)):
                events.setdefault((run_id, shim_id, seq), read_event(line.encode()))
        return [[events.get((key[1], key[2], seq)) for seq in key[4:7]] for key in keys]

    def matches(self, filters: Filters, call: TypedCall | None) -> bool:
        """Only a text is left to be asked for: SQL has decided the rest."""
        text = filters.asked.get("text")
        if text is None or call is None:
            return call is not None
        return Filters(text=text).match({name: getattr(call, name) for name in (*CALL_COLUMNS, *_PREVIEWS)})

    def count(self, filters: Filters) -> int:
        if "text" in filters.asked:
            return self._count_one_by_one(filters)
        return int(self._counted(filters, [])[0][0])

    def _count_one_by_one(self, filters: Filters) -> int:
        total, cursor = 0, None
        while True:
            page = self.calls(filters, limit=_AT_ONCE, cursor=cursor)
            total += len(page.rows)
            cursor = page.next_cursor
            if cursor is None:
                return total

    def group(self, filters: Filters, *, by: list[str], limit: int = 1000) -> list[Row]:
        """As `Ledger.group`, with exact quantiles."""
        unknown = [name for name in by if name not in GROUPS]
        if unknown or not by:
            raise UsageError(f"Cannot group by {', '.join(unknown) or 'nothing'}.", hint=f"Known: {', '.join(GROUPS)}.")
        return self.grouped(filters, {name: self._group_column(name) for name in by})[:limit]

    def grouped(self, filters: Filters, by: dict[str, str]) -> list[Row]:
        """`by`: names, and the SQL of each."""
        fine = {**by, "decision": "decision", "status": "status"}
        return add_up(self._counted(filters, [*fine.values(), "latency_ms"]), list(fine), list(by), True)

    def _group_column(self, name: str) -> str:
        if name not in _STEPS:
            return name
        is_clickhouse = self.dialect.calls != "calls"
        return self.dialect.day_of.format("created_ms", _STEPS[name][0 if is_clickhouse else 1])

    # -- runs -----------------------------------------------------------------------------------------------------

    def runs(
        self, filters: RunFilters, *, calls: Filters | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        rows: list[Row] = []
        cursors: list[str] = []
        while len(rows) <= limit:
            wanted = min(limit + 1 - len(rows), _AT_ONCE)
            found = self._run_ids(filters, calls, wanted, cursor)
            for (ms, run_id), row in zip(found, self._run_rows([run_id for _, run_id in found]), strict=True):
                cursor = cursor_text((ms, run_id))
                if row["status"] in filters.asked.get("status", (row["status"],)):
                    rows.append(row)
                    cursors.append(cursor)
            if len(found) < wanted:
                break
        return Page(rows[:limit], cursors[:limit], more=len(rows) > limit)

    def _run_ids(
        self, filters: RunFilters, calls: Filters | None, limit: int, cursor: str | None
    ) -> list[tuple[Any, ...]]:
        where = Where(self._tenant)
        run_conditions(where, filters)
        if calls is not None and calls.asked:
            of_calls = Where(self._tenant)
            of_calls.values = where.values  # one set of values, so that no name stands for two
            call_conditions(self._store, of_calls, calls)
            of_calls.pieces.append(stands(self.dialect, self._runs_of(of_calls, calls)))
            where.pieces.append(f"run_id IN (SELECT run_id FROM {self.dialect.calls} WHERE {of_calls.sql})")
        if cursor is not None:
            ms, run_id = cursor_key(cursor, 2)
            where.add("(first_ms, run_id) < (:ms, :run)", ms=ms, run=run_id)
        sql = f"SELECT first_ms, run_id FROM {self.dialect.runs} WHERE {where.sql}"
        return self._store.select(f"{sql} ORDER BY 1 DESC, 2 DESC LIMIT {limit}", where.values)

    def _run_rows(self, run_ids: list[str]) -> list[Row]:
        return [_run_row(run) for run in self.runs_named(run_ids)]

    def run(self, run_id: str) -> Row:
        """As `Ledger.run`, its producers included."""
        if not self.select(f"SELECT 1 FROM {self.dialect.runs} WHERE tenant = :tenant AND run_id = :run", run=run_id):
            hint = "`sub runs --fleet URL` lists the runs."
            raise LedgerError(f"There is no run {run_id!r} in the fleet's store.", hint=hint)
        (run,) = self.runs_named([run_id])
        for shim_id in dict.fromkeys(span[2] for span in self.spans(run_id)):
            if shim_id not in run.producers:  # its run_start is not here
                _hear(run, self._first_line(run_id, shim_id))
        told = [{name: getattr(each, name) for name in _OF_PRODUCERS} for each in run.producers.values()]
        return {**_run_row(run), "producers": told}

    def _first_line(self, run_id: str, shim_id: str) -> bytes:
        sql = f"SELECT line FROM {self.dialect.events} WHERE tenant = :tenant AND run_id = :run AND shim_id = :shim"
        found = self.select(f"{sql} ORDER BY seq LIMIT 1", run=run_id, shim=shim_id)
        return found[0][0].encode() if found else b""

    def runs_named(self, run_ids: list[str]) -> list[Run]:
        if not run_ids:
            return []
        found = {run_id: Run(run_id, "") for run_id in run_ids}
        sql = f"SELECT run_id, first_ms, agent_id, client, env, principal FROM {self.dialect.runs}"
        for run_id, first_ms, *who in self.select(f"{sql} WHERE tenant = :tenant AND run_id IN :runs", runs=run_ids):
            _name(found[run_id], first_ms, who)
        sql = (
            f"SELECT run_id, line FROM {self.dialect.events} WHERE tenant = :tenant AND run_id IN :runs"
            " AND type IN :types ORDER BY run_id, ts_ms, shim_id, seq"
        )
        for run_id, line in self.select(sql, runs=run_ids, types=list(_OF_RUNS)):
            _hear(found[run_id], line.encode())
        sql = f"SELECT DISTINCT run_id, shim_id FROM {self.dialect.spans} WHERE tenant = :tenant AND run_id IN :runs"
        for run_id, shim_id in self.select(sql, runs=run_ids):
            if shim_id not in found[run_id].producers:
                found[run_id].ended_at, found[run_id].status = None, "RUNNING"
        which = "tenant = :tenant AND run_id IN :runs"
        sql = (
            f"SELECT run_id, decision, status, count(*) FROM {self.dialect.calls} WHERE tenant = :tenant"
            f" AND run_id IN :runs AND {stands(self.dialect, which)} GROUP BY 1, 2, 3"
        )
        for run_id, decision, status, calls in self.select(sql, runs=run_ids):
            _count(found[run_id].counts, decision, status, calls)
        sql = f"SELECT run_id, count(*) FROM {self.dialect.events} WHERE tenant = :tenant AND run_id IN :runs"
        for run_id, events in self.select(f"{sql} GROUP BY 1", runs=run_ids):
            found[run_id].event_count = events
        return [found[run_id] for run_id in run_ids]

    def resolve_run(self, name: str) -> str:
        """As `Ledger.resolve_run`: an id, a beginning or end of one, last, last~1."""
        back = runs_back(name)
        if back is not None:
            sql = f"SELECT run_id FROM {self.dialect.runs} WHERE tenant = :tenant"
            found = self.select(f"{sql} ORDER BY first_ms DESC, run_id DESC LIMIT 1 OFFSET {back}")
            if found:
                return str(found[0][0])
            raise LedgerError(f"The fleet's store holds no {name}.", hint="`sub runs --fleet URL` lists the runs.")
        ways = ["run_id = :name"]
        if len(name) >= MIN_PIECE:
            ways += [f"left(run_id, {len(name)}) = :name", f"right(run_id, {len(name)}) = :name"]
        for way in ways:
            sql = f"SELECT run_id FROM {self.dialect.runs} WHERE tenant = :tenant AND {way}"
            found = self.select(f"{sql} ORDER BY 1 LIMIT {LISTED + 1}", name=name)
            if len(found) == 1:
                return str(found[0][0])
            if found:
                raise ambiguous("run", name, [row[0] for row in found])
        raise LedgerError(
            f"There is no run {name!r} in the fleet's store.", hint="`sub runs --fleet URL` lists the runs."
        )

    def runs_of_call(self, name: str) -> list[str]:
        ways = ["call_id = :name"]
        if len(name) >= MIN_PIECE:
            ways += [f"left(call_id, {len(name)}) = :name", f"right(call_id, {len(name)}) = :name"]
        for way in ways:
            sql = f"SELECT DISTINCT run_id FROM {self.dialect.calls} WHERE tenant = :tenant AND {way}"
            found = [str(row[0]) for row in self.select(f"{sql} ORDER BY 1 LIMIT {LISTED + 1}", name=name)]
            if found:
                return found
        return []

    # -- lines ----------------------------------------------------------------------------------------------------

    def cursor(self, machine: str, run_id: str, shim_id: str) -> int:
        """The last number up to which this machine has brought every event of a producer; 0: not even the first.

        Of this machine: what another has brought under the same names (a copied image that went on) is not its own."""
        sql = (
            f'SELECT first_seq, "count" FROM {self.dialect.spans} WHERE tenant = :tenant AND run_id = :run'
            " AND machine = :machine AND shim_id = :shim AND first_seq > 0 ORDER BY 1"
        )
        reached = 0
        for first_seq, count in self.select(sql, run=run_id, machine=machine, shim=shim_id):
            if first_seq > reached + 1:
                break
            reached = max(reached, first_seq + count - 1)
        return reached

    def spans(self, run_id: str) -> list[tuple[str, int, str, int, int]]:
        """(machine, first_n, shim_id, first_seq, count) in the order of each machine's chain."""
        sql = (
            f'SELECT machine, first_n, shim_id, first_seq, "count" FROM {self.dialect.spans}'
            ' WHERE tenant = :tenant AND run_id = :run ORDER BY machine, first_n, "count" DESC'
        )
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self.select(sql, run=run_id)]

    def heads(self, run_id: str) -> list[tuple[str, int, str]]:
        sql = (
            f'SELECT machine, "count", hash FROM {self.dialect.heads} WHERE tenant = :tenant AND run_id = :run'
            ' ORDER BY machine, "count"'
        )
        return [(row[0], row[1], row[2]) for row in self.select(sql, run=run_id)]

    def lines(self, run_id: str, shim_id: str, first_seq: int, last_seq: int) -> dict[int, list[tuple[str, str]]]:
        """By number, (machine, line) of each; where several are known of one number, all: the one that stands first."""
        known: dict[int, list[tuple[str, str]]] = {}
        for source in (self.dialect.events, CONTESTED.name):
            sql = (
                f"SELECT seq, machine, line FROM {source} WHERE tenant = :tenant AND run_id = :run AND shim_id = :shim"
                " AND seq BETWEEN :first AND :last ORDER BY seq, line_hash"
            )
            for seq, machine, line in self.select(sql, run=run_id, shim=shim_id, first=first_seq, last=last_seq):
                if (machine, line) not in known.setdefault(seq, []):
                    known[seq].append((machine, line))
        return known

    def unheard(self, run_id: str) -> set[tuple[str, int]]:
        """(shim_id, seq) of what another machine tells of a call of which the shim's own has told, or told first."""
        of_run = "tenant = :tenant AND run_id = :run"
        sql = f"SELECT shim_id, seq FROM {CONTESTED.name} WHERE {of_run} AND type IN :types"
        left = {(row[0], row[1]) for row in self.select(sql, run=run_id, types=list(_OF_CALLS))}
        if left:
            sql = f"SELECT shim_id, {', '.join(_NUMBERS)} FROM {self.dialect.calls} WHERE {of_run}"
            left -= {(row[0], seq) for row in self.select(sql, run=run_id) for seq in row[1:]}
            left -= {
                (row[0], row[1]) for row in self.select(f"SELECT shim_id, seq FROM events WHERE {of_run}", run=run_id)
            }
        return left

    def owners(self, run_id: str) -> dict[str, str]:
        """Which machine each shim of a run is of."""
        sql = "SELECT shim_id, min(claim) FROM producers WHERE tenant = :tenant AND run_id = :run GROUP BY 1"
        return {row[0]: claimant(row[1]) for row in self.select(sql, run=run_id)}


_PREVIEWS = ("args_preview", "result_preview")


def fold(events: list[AnyEvent | None]) -> TypedCall | None:
    call: TypedCall | None = None
    for event in events:
        if isinstance(event, (ev.ToolCallStart, ev.ToolCallDecision, ev.ToolCallEnd)):
            call = call or begin(event, TypedCall)
            if isinstance(event, ev.ToolCallStart):
                call.start(event)
            elif isinstance(event, ev.ToolCallDecision):
                call.decide(event)
            else:
                call.end(event)
    return call


def call_row(call: TypedCall, previews: bool) -> Row:
    row: Row = {name: getattr(call, name) for name in CALL_COLUMNS if name != "tags_json"}
    row["preview_truncated"], row["observed"] = bool(call.preview_truncated), bool(call.observed)
    row["shim_id"], row["tags"] = call.shim_id, call.tags or []
    if previews:
        row["args_preview"] = call.args_preview
    return row


def _name(run: Run, first_ms: int, who: list[str | None]) -> None:
    from subluminal.contracts.moments import rfc3339

    run.started_at = rfc3339(first_ms)
    run.agent_id, run.client, run.env = (word or "unknown" for word in who[:3])
    run.principal = who[3]


def _hear(run: Run, line: bytes) -> None:
    try:
        event = read_event(line)
    except BadEvent:
        return
    run.identify(event)
    producer = run.producers.get(event.source.shim_id) or run.join(event)
    if isinstance(event, ev.RunStart):
        run.start(event, producer)
    elif isinstance(event, ev.RunEnd):
        run.end(event, producer)
    elif isinstance(event, ev.ModelMessage):
        run.message(event)


def _count(counts: Counts, decision: str | None, status: str | None, calls: int) -> None:
    one = Counts()
    if decision is not None:
        one.decided(decision)
    if status is not None:
        one.ended(decision, status)
    counts.total += calls
    for name in ("allowed", "blocked", "throttled", "errors"):
        setattr(counts, name, getattr(counts, name) + calls * getattr(one, name))


def _run_row(run: Run) -> Row:
    counts = run.counts
    told = {
        "calls_total": counts.total,
        "calls_allowed": counts.allowed,
        "calls_blocked": counts.blocked,
        "calls_throttled": counts.throttled,
        "errors_total": counts.errors,
    }
    row: Row = {name: told[name] if name in told else getattr(run, name) for name in RUN_COLUMNS}
    for name, shown in (("metadata_json", "meta"), ("workload_json", "workload"), ("usage_json", "usage")):
        text = row.pop(name)
        row[shown] = None if text is None else msgspec.json.decode(text)
    return row
