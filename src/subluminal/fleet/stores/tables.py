"""The tables of a store, once for all engines: names, kinds, identity, and how what is told twice becomes one.

events   the exact lines, by (tenant, run, shim, seq, hash of the line): the record. Everything else follows from it.
calls    what filters ask about, as far as it is known: parts of a call that came in different segments become one row.
         A call that several doors saw is a row of each; which of them stands is found while reading (`joined`).
runs     who acted, and when first and last; by the least and the greatest of its doors, whether there were several.
spans    which events stand where in the chain of a run on a machine; heads: what that chain's hash was.
producers  which machine a shim is of: the first that sent anything of it (`collector.owners`).
contested  lines that another machine has brought of it, and lines under a number that has one already. They stand where
         the shim's own machine has told nothing, so that what one leaves another can send; they replace nothing.

A later part fills in what an earlier one left open (`FILL`), in whichever order they come. Where a call was decided
again, the row here has one of its decisions; which one stands is told by the fold of its exact lines (`reading`).
"""

from __future__ import annotations

from typing import NamedTuple

TEXT, WORD, NUMBER, DAY = "text", "word", "number", "day"
# What becomes of a column that is told twice.
KEY, FILL, LEAST, GREATEST = "key", "fill", "least", "greatest"


class Column(NamedTuple):
    name: str
    kind: str
    merge: str = FILL


class Table(NamedTuple):
    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.merge == KEY)


def _keys(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, WORD if name in ("tenant", "machine") else TEXT, KEY) for name in names)


_IDENTITY = (
    Column("agent_id", WORD),
    Column("client", WORD),
    Column("env", WORD),
    Column("principal", WORD),
)
EVENTS = Table(
    "events",
    (
        *_keys("tenant", "run_id", "shim_id"),
        Column("seq", NUMBER, KEY),
        Column("day", DAY),
        Column("ts_ms", NUMBER),
        Column("received_ms", NUMBER),
        Column("machine", WORD),
        Column("type", WORD),
        Column("line", TEXT),
    ),
)
CALLS = Table(
    "calls",
    (
        *_keys("tenant", "run_id", "shim_id", "call_id"),
        Column("day", DAY),
        Column("created_ms", NUMBER),
        *_IDENTITY,
        Column("server_name", WORD),
        Column("tool_name", WORD),
        Column("args_hash", TEXT),
        Column("start_seq", NUMBER),
        Column("decision", WORD),
        Column("would_action", WORD),
        Column("rule_id", WORD),
        Column("reason_code", WORD),
        Column("severity", WORD),
        Column("decision_seq", NUMBER),
        Column("status", WORD),
        Column("error_class", WORD),
        Column("latency_ms", NUMBER),
        Column("end_seq", NUMBER),
        Column("transport", WORD),
        Column("tool_use_id", TEXT),
        Column("start_n", NUMBER),
    ),
)
# Of `calls`, in a store that was made without them: what was stored before is joined with nothing.
ADDED_SINCE = ("transport", "tool_use_id", "start_n")
RUNS = Table(
    "runs",
    (
        *_keys("tenant", "run_id"),
        *(column._replace(merge=GREATEST) for column in _IDENTITY),
        Column("first_ms", NUMBER, LEAST),
        Column("last_ms", NUMBER, GREATEST),
        Column("least_door", WORD, LEAST),
        Column("greatest_door", WORD, GREATEST),
        Column("day", DAY, GREATEST),
    ),
)
# Of `runs`, added later: of the transports that have seen calls with the client's id, the first and the last by name.
DOORS = ("least_door", "greatest_door")
# Of `runs`, added later: the last day under which anything of it is filed. Retention asks for it: times of events are
# those of clocks that may be wrong.
FILED = ("day",)
# What a store that was made without them knows of them.
DOORS_KNOWN = (
    "SELECT tenant, run_id, min(coalesce(transport, 'unknown')) AS least,"
    " max(coalesce(transport, 'unknown')) AS greatest FROM calls WHERE tool_use_id IS NOT NULL GROUP BY tenant, run_id"
)
SPANS = Table(
    "spans",
    (
        *_keys("tenant", "run_id", "machine", "shim_id"),
        Column("first_n", NUMBER, KEY),
        Column("first_seq", NUMBER, KEY),
        Column("count", NUMBER, KEY),
        Column("day", DAY),
    ),
)
HEADS = Table(
    "heads",
    (
        *_keys("tenant", "run_id", "machine"),
        Column("count", NUMBER, KEY),
        Column("hash", TEXT, KEY),
        Column("day", DAY),
    ),
)
PRODUCERS = Table(
    "producers",
    (
        *_keys("tenant", "run_id", "shim_id"),
        Column("claim", TEXT, LEAST),  # when, and which machine
        Column("day", DAY, GREATEST),
    ),
)


def claim(moment: str, machine: str) -> str:
    """Of claims the least is the first."""
    return f"{moment} {machine}"


def claimant(text: str) -> str:
    return text.partition(" ")[2]


CONTESTED = Table(
    "contested",
    tuple(column._replace(merge=KEY) if column.name == "machine" else column for column in EVENTS.columns),
)
# Rows of `calls` that another machine tells than the shim's own: they fill in what is open, and no more.
ADDED = "added"
# In the order in which they are written, where there is no transaction over them: what is in the record is also found,
# and the spans, by which a machine's cursor vouches for events (`reading`), come after all that they vouch for.
TABLES = (HEADS, RUNS, CALLS, EVENTS, SPANS)
# Also in ORDER BY or the primary key, and made by the store from the line.
LINE_HASH = "line_hash"
# Of `calls`, what is indexed and may have any length: cut, so that every index takes it. The exact line has all of it.
CLIPPED = ("server_name", "tool_name")
_CLIPPED_BYTES = 1024


def clipped(name: str) -> str:
    """At the end of a character."""
    return name if len(name) * 4 <= _CLIPPED_BYTES else name.encode()[:_CLIPPED_BYTES].decode(errors="ignore")
