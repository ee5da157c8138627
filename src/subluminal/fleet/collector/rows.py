"""A segment as rows of the store (`stores.tables`). No I/O: whose it is and when it came are passed in.

Each line must be an event of the run, the shim and the number that its segment names. What of a call is told by the
events at hand makes one row; an event that claims another producer's call stays in the record and counts nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from subluminal.contracts import events as ev
from subluminal.contracts.moments import DAY_MS, epoch_ms, rfc3339
from subluminal.contracts.tool_use import tool_use_id
from subluminal.fleet.segments import BadSegment, Segment, is_id
from subluminal.fleet.stores.base import Lines, Producer
from subluminal.fleet.stores.tables import ADDED, CALLS, CONTESTED, DOORS, GREATEST, LEAST, RUNS, clipped
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.fold.reading import MAX_SEQ, AnyEvent, BadEvent, read_event
from subluminal.ledger.store.events import hashed_seq

# Days that a clock may be wrong before the day of arrival stands instead: partitions are by day, and whoever could
# choose any would make thousands. A machine may have been away for a year.
_PAST_DAYS, _FUTURE_DAYS = 366, 2
# With the ids of its run and shim it makes a key (`segments.MAX_ID_BYTES`).
MAX_CALL_ID_BYTES = 1024

_TAGS: dict[type, str] = {}
_days: dict[int, str] = {}
_CALL = {name: place for place, name in enumerate(CALLS.names)}
_RUN = {name: place for place, name in enumerate(RUNS.names)}
_IDENTITY = ("agent_id", "client", "env")
_WHO = (*_IDENTITY, "principal")
_MERGES = [(place, column.merge) for place, column in enumerate(RUNS.columns) if column.merge in (LEAST, GREATEST)]


class Batch:
    """Rows of one or more segments, by table; of a call or run that several tell of, one row."""

    def __init__(self) -> None:
        self.lines: list[Lines] = []
        self.calls: dict[tuple[str, ...], list[Any]] = {}
        self.runs: dict[tuple[str, str], list[Any]] = {}
        self.spans: dict[tuple[Any, ...], None] = {}
        self.heads: dict[tuple[Any, ...], None] = {}
        self.contested: list[Lines] = []
        self.added: dict[tuple[str, ...], list[Any]] = {}
        self.bytes = 0
        self.decided: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def merge(self, other: Batch) -> None:
        """The other stays as it is: it may have to be written alone."""
        self.lines += other.lines
        self.contested += other.contested
        for calls, more in ((self.calls, other.calls), (self.added, other.added)):
            for key, row in more.items():
                known = calls.get(key)
                calls[key] = row if known is None else _filled(known, row)
        for run, row in other.runs.items():
            known = self.runs.get(run)
            self.runs[run] = row if known is None else _joined(known, row)
        self.spans.update(other.spans)
        self.heads.update(other.heads)
        self.bytes += other.bytes

    def brought(self) -> Iterator[tuple[Producer, str]]:
        """Each producer, and the machine that tells of it."""
        return (((each.tenant, each.run_id, each.shim_id), each.machine) for each in (*self.lines, *self.contested))

    def aside(self) -> Batch:
        """The same, of a machine that the producer is not of: it may add, and says nothing of who acted."""
        other = Batch()
        other.contested, other.added = self.lines, self.calls
        for run, row in self.runs.items():
            other.runs[run] = [None if name in _WHO else value for name, value in zip(_RUN, row, strict=True)]
        other.spans, other.heads, other.bytes = self.spans, self.heads, self.bytes
        return other

    @property
    def events(self) -> int:
        return sum(len(each.lines) for each in self.lines)

    def rows(self) -> dict[str, list[Any]]:
        return {
            "spans": list(self.spans),
            "heads": list(self.heads),
            "runs": list(self.runs.values()),
            "calls": list(self.calls.values()),
            "events": self.lines,
            CONTESTED.name: self.contested,
            ADDED: list(self.added.values()),
        }


def _filled(known: list[Any], row: list[Any]) -> list[Any]:
    return [old if new is None else new for old, new in zip(known, row, strict=True)]


def _joined(known: list[Any], row: list[Any]) -> list[Any]:
    joined = [*known]
    for place, merge in _MERGES:
        told = [value for value in (known[place], row[place]) if value is not None]
        joined[place] = (min if merge == LEAST else max)(told, default=None)
    return joined


def rows_of(segment: Segment, tenant: str, machine: str, now_ms: int) -> Batch:
    """BadSegment names the first line that is wrong, by its number."""
    batch = Batch()
    run_id, shim_id, first_seq = segment.run_id, segment.shim_id, segment.first_seq
    run: list[Any] = [None] * len(_RUN)
    run[0], run[1] = tenant, run_id
    times: list[int] = []
    types: list[str] = []
    days: list[str] = []
    places = (n + at for n, count in segment.spans for at in range(count))
    for seq, line in enumerate(segment.lines, first_seq):
        event = _event(line, segment, seq)
        ts_ms = epoch_ms(event.ts)
        if not times:
            _tell_who(run, event)
        if not times or ts_ms // DAY_MS != times[-1] // DAY_MS:
            day = _day(ts_ms, now_ms)
        times.append(ts_ms)
        types.append(_type_of(event))
        days.append(day)
        _tell_call(batch, run, event, seq, next(places, 0), ts_ms, day)
    run[_RUN["first_ms"]], run[_RUN["last_ms"]], run[_RUN["day"]] = min(times), max(times), max(days)
    batch.lines.append(Lines(tenant, run_id, shim_id, machine, now_ms, first_seq, days, times, types, segment.lines))
    batch.bytes = sum(map(len, segment.lines))
    batch.runs[tenant, run_id] = run
    for n, count in segment.spans:
        batch.spans[tenant, run_id, machine, shim_id, n, first_seq, count, day] = None
        first_seq += count
    if segment.head is not None:
        batch.heads[(tenant, run_id, machine, *segment.head, day)] = None
    return batch


def _event(line: bytes, segment: Segment, seq: int) -> AnyEvent:
    try:
        event = read_event(line)
    except BadEvent as error:
        raise BadSegment("event", f"Event {seq} is none: {error}.") from None
    source = event.source
    if event.run_id != segment.run_id or source.shim_id != segment.shim_id:
        raise BadSegment("identity", f"Event {seq} is of another run or shim than its segment says.")
    if (hashed_seq(line) if source.seq is UNSET else source.seq) != seq:
        raise BadSegment("range", f"Event {seq} has another number.")
    return event


def _type_of(event: AnyEvent) -> str:
    tag = _TAGS.get(type(event))
    if tag is None:
        told = type(event).__struct_config__.tag
        if told is None:
            return str(event.type)  # type: ignore[union-attr]  # of a newer version
        tag = _TAGS[type(event)] = str(told)
    return tag


def _day(ts_ms: int, now_ms: int) -> str:
    days, today = ts_ms // DAY_MS, now_ms // DAY_MS
    if not today - _PAST_DAYS <= days <= today + _FUTURE_DAYS:
        days = today
    text = _days.get(days)
    if text is None:
        text = _days[days] = rfc3339(days * DAY_MS)[:10]
    return text


def _tell_who(run: list[Any], event: AnyEvent) -> None:
    """ "unknown" is what a shim says that was told nothing."""
    for name in _IDENTITY:
        value = getattr(event, name)
        run[_RUN[name]] = None if value == "unknown" else value
    run[_RUN["principal"]] = None if event.principal is UNSET else event.principal


def _tell_door(run: list[Any], door: str) -> None:
    for name, choose in zip(DOORS, (min, max), strict=True):
        run[_RUN[name]] = door if run[_RUN[name]] is None else choose(run[_RUN[name]], door)


def _tell_call(batch: Batch, run: list[Any], event: AnyEvent, seq: int, n: int, ts_ms: int, day: str) -> None:
    if not isinstance(event, (ev.ToolCallStart, ev.ToolCallDecision, ev.ToolCallEnd)):
        return
    call, shim_id = event.call, event.source.shim_id
    if is_foreign(call.call_id, shim_id):
        return
    key = (run[0], run[1], shim_id, call.call_id)
    row = batch.calls.get(key)
    if row is None:
        if not is_id(call.call_id, MAX_CALL_ID_BYTES):
            what = f"a call_id of more than {MAX_CALL_ID_BYTES} bytes, or with a NUL in it"
            raise BadSegment("event", f"Event {seq} has {what}.")
        row = batch.calls[key] = [*key, *[None] * (len(_CALL) - len(key))]
        row[_DAY], row[_SERVER], row[_TOOL] = day, clipped(call.server_name), clipped(call.tool_name)
        row[_AGENT : _AGENT + 3] = event.agent_id, event.client, event.env
        row[_PRINCIPAL] = None if event.principal is UNSET else event.principal
    if isinstance(event, ev.ToolCallStart):
        if row[_START_SEQ] is None:
            row[_START_SEQ], row[_CREATED], row[_ARGS], row[_DAY] = seq, ts_ms, call.args_hash, day
            row[_TRANSPORT], row[_START_N], context = event.call.transport, n, event.call.call_context
            if context is not UNSET and (use_id := tool_use_id(context)) is not None:
                row[_USE_ID] = use_id
                _tell_door(run, event.call.transport)
    elif isinstance(event, ev.ToolCallDecision):
        _tell_decision(batch, row, event.decision, seq)
    elif row[_END_SEQ] is None:
        if event.latency_ms > MAX_SEQ:  # no store would take it, nor what is committed with it
            raise BadSegment("event", f"Event {seq} has a latency beyond 64 bits.")
        row[_END_SEQ], row[_STATUS], row[_LATENCY] = seq, event.status, event.latency_ms
        if event.error is not UNSET:
            row[_ERROR] = event.error.class_
            batch.failed[event.error.class_] += 1


def _tell_decision(batch: Batch, row: list[Any], decision: ev.DecisionTaken, seq: int) -> None:
    if row[_END_SEQ] is not None and row[_DECISION] is not None:
        return  # as the fold has it: nothing that comes after the end changes a call that was decided
    would = None if decision.would is UNSET else decision.would.action
    row[_DECISION : _DECISION + 6] = (
        decision.action,
        would,
        decision.rule_id,
        decision.explain.reason_code,
        decision.severity,
        seq,
    )
    batch.decided[decision.action] += 1


_DAY, _CREATED, _AGENT, _PRINCIPAL = _CALL["day"], _CALL["created_ms"], _CALL["agent_id"], _CALL["principal"]
_SERVER, _TOOL, _ARGS, _START_SEQ = _CALL["server_name"], _CALL["tool_name"], _CALL["args_hash"], _CALL["start_seq"]
_DECISION, _STATUS, _ERROR = _CALL["decision"], _CALL["status"], _CALL["error_class"]
_LATENCY, _END_SEQ = _CALL["latency_ms"], _CALL["end_seq"]
_TRANSPORT, _USE_ID, _START_N = _CALL["transport"], _CALL["tool_use_id"], _CALL["start_n"]
