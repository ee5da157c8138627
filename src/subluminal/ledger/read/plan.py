"""The SQL that finds what a query asks for, fast: each filter of `contracts.filters` as a condition.

Rows are wanted newest first and only a page of them, so the right plan is to walk one index backwards and stop. SQLite
has no statistics here and would rather sort; therefore the index is chosen in `plan` and named with INDEXED BY, and
every other condition only filters. Each branch of a plan walks one range of one index that ends in the row id.

Trap: SQLite uses a partial index only if its condition stands in the query word for word, hence the `<> 'ALLOW'`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from subluminal.contracts.counts import let_through_sql
from subluminal.contracts.filters import (
    CALL_FILTERS,
    PENDING,
    PREVIEWS,
    RUN,
    TEXT_COLUMNS,
    Filters,
    RunFilters,
    moment_text,
    text_patterns,
)
from subluminal.contracts.globs import glob_test, is_glob
from subluminal.contracts.vocabulary import ALLOW
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.lines import TIE_BITS

_PROBE = 4000  # rows counted, at most, to find out which of two indexes leads to fewer rows
LOWEST_ID, HIGHEST_ID = -(1 << 63), (1 << 63) - 1
_MAX_BRANCHES = 400  # beyond this many names a scan is no slower

INFLATED = "inflated_preview"  # SQL function
MATCHES = "matches_glob"  # SQL function: whether a glob matches a name

Value = str | int | bytes | None

# Which index leads to the calls of one value of a column.
_LEADING = {"run_id": "tool_calls_run", "rule_id": "tool_calls_rule"}
_RUN_COLUMNS = tuple(found.column for found in CALL_FILTERS if found.known_from == RUN and found.name != "run_id")
_PLAIN_COLUMNS = ("reason_code", "severity", "error_class", "would_action")
_ENDED = "tool_calls_decision"
# In that index what was decided comes before what became of it: newest first goes along one range for each of these.
_BECAME = ("= 'OK'", "= 'ERROR'", "= 'TIMEOUT'", "= 'CANCELLED'", "IS NULL")
_ARGS = "substr(c.args_hash, 1, 8) = substr(?, 1, 8) AND +c.args_hash = ?"
_TOOLS = "SELECT server_name, tool_name FROM server_tools"


class Condition:
    """A piece of SQL and its values. `index` is set where the piece can lead the plan."""

    __slots__ = ("index", "sql", "values")

    def __init__(self, sql: str, values: Iterable[Value] = (), index: str | None = None) -> None:
        self.sql = sql
        self.values = list(values)
        self.index = index


class Plan:
    """Branches to walk (one condition each, with its index, or None: by time) and what filters each row.

    Only ids from `lowest` to before `below`. They stand as one range in the query: of two bounds on one side SQLite
    starts at whichever comes first, and walks to the other.
    """

    __slots__ = ("below", "branches", "lowest", "rest")

    def __init__(self, branches: list[Condition], rest: list[Condition], asked: dict[str, Any]) -> None:
        self.branches = branches
        self.rest = rest
        self.lowest = _first_id(asked["since_ms"]) if "since_ms" in asked else LOWEST_ID
        self.below = _first_id(asked["until_ms"]) if "until_ms" in asked else HIGHEST_ID

    @property
    def is_scan(self) -> bool:
        """No index leads, and what is looked for may be rare; or each call must be unpacked to be looked into."""
        return any(INFLATED in one.sql for one in self.rest) or (
            bool(self.rest) and any(not b.sql for b in self.branches)
        )

    def where(
        self, branch: Condition, lowest: int = LOWEST_ID, below: int = HIGHEST_ID
    ) -> tuple[str, str, list[Value]]:
        """(INDEXED BY clause, WHERE clause, values) of one branch; of its ids those within the two, if named."""
        conditions = [branch, *self.rest] if branch.sql else self.rest
        ids = max(self.lowest, lowest), min(self.below, below)
        if ids != (LOWEST_ID, HIGHEST_ID):
            conditions = [*conditions, Condition("c.id >= ? AND c.id < ?", ids)]
        sql = " AND ".join(condition.sql for condition in conditions) or "1"
        values = [value for condition in conditions for value in condition.values]
        return (f"INDEXED BY {branch.index}" if branch.index else "NOT INDEXED"), sql, values


BY_TIME = Condition("")


def add_functions(connection: sqlite3.Connection) -> None:
    """Once for a connection, before `plan`: SQLite cannot replace a function that a running statement uses."""
    connection.create_function(INFLATED, 1, inflated, deterministic=True)
    test = lru_cache(maxsize=100)(glob_test)
    connection.create_function(MATCHES, 2, lambda glob, name: test(glob)(name), deterministic=True)


def plan(connection: sqlite3.Connection, filters: Filters) -> Plan:
    """Choose the leading index. Where two could lead, a bounded count decides."""
    asked = filters.asked
    leaders = [
        [Condition(f"c.{column} = ?", [value], index) for value in asked[column]]
        for column, index in _LEADING.items()
        if column in asked
    ]
    if "args_hash" in asked:
        hashes = asked["args_hash"]
        leaders.append([Condition(_ARGS, [value, value], "tool_calls_args") for value in hashes])
    rest = [*standing(connection), *_plain_conditions(asked)]
    if "decision" in asked and ALLOW not in asked["decision"]:
        refused = "c.decision = '{}' AND c.decision <> 'ALLOW' AND c.status {}"
        leaders.append(
            [Condition(refused.format(word, status), (), _ENDED) for word in asked["decision"] for status in _BECAME]
        )
    if "status" in asked and _only_failed(asked["status"]):
        # `let_through_sql` in two: each is one range of the index.
        ways = [f"c.decision {way} AND c.status <> 'OK' AND c.status = " for way in (f"= '{ALLOW}'", "IS NULL")]
        leaders.append([Condition(f"{way}'{word}'", (), _ENDED) for word in asked["status"] for way in ways])
    if "server_name" in asked or "tool_name" in asked:
        names = _names_condition(asked)
        tools = connection.execute(f"{_TOOLS} WHERE {names.sql} LIMIT {_MAX_BRANCHES + 1}", names.values).fetchall()
        if len(tools) <= _MAX_BRANCHES:
            pair = "c.server_name = ? AND c.tool_name = ?"
            leaders.append([Condition(pair, tool, "tool_calls_tool") for tool in tools])
        else:
            rest.append(Condition(f"(+c.server_name, +c.tool_name) IN ({_TOOLS} WHERE {names.sql})", names.values))
    if not all(leaders):
        return Plan([], rest, asked)  # no recorded tool has such a name
    if not leaders:
        return Plan([BY_TIME], rest, asked)
    best = leaders[0] if len(leaders) == 1 else min(leaders, key=lambda group: _probe(connection, group))
    return Plan(best, rest + [_filtering(group) for group in leaders if group is not best], asked)


def standing(connection: sqlite3.Connection) -> list[Condition]:
    """One row for each call, however many doors have seen it; nothing to ask for where no call was seen twice."""
    if connection.execute("SELECT 1 FROM joined LIMIT 1").fetchone() is None:
        return []
    return [Condition("c.id NOT IN (SELECT id FROM joined)")]


def _names_condition(asked: dict[str, Any]) -> Condition:
    """On `server_tools`: whatever the glob, only names that exist are tried, each once."""
    every: list[str] = []
    values: list[Value] = []
    for column in ("server_name", "tool_name"):
        either = [f"{MATCHES}(?, {column})" if is_glob(name) else f"{column} = ?" for name in asked.get(column, ())]
        every += [f"({' OR '.join(either)})"] if either else []
        values += asked.get(column, ())
    return Condition(" AND ".join(every), values)


def _only_failed(statuses: list[str]) -> bool:
    return "OK" not in statuses and PENDING not in statuses


def _filtering(group: list[Condition]) -> Condition:
    """A group that does not lead, as one condition that no index can take over."""
    sql = " OR ".join(f"({_no_index(condition.sql)})" for condition in group)
    return Condition(f"({sql})", [value for condition in group for value in condition.values])


def _no_index(sql: str) -> str:
    return sql.replace("c.", "+c.")


def _probe(connection: sqlite3.Connection, group: list[Condition]) -> int:
    total = 0
    for condition in group:
        total += connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM tool_calls c INDEXED BY {condition.index} WHERE {condition.sql}"
            f" LIMIT {_PROBE})",
            condition.values,
        ).fetchone()[0]
        if total >= _PROBE:
            break
    return total


def _first_id(ms: int) -> int:
    """The lowest id a call of this millisecond can have; a time beyond all ids is beyond all calls."""
    return max(-(1 << 62), min(ms << TIE_BITS, (1 << 62)))


def _plain_conditions(asked: dict[str, Any]) -> list[Condition]:
    found: list[Condition] = []
    if "min_latency_ms" in asked:
        found.append(Condition("+c.latency_ms >= ?", [asked["min_latency_ms"]]))
    if ALLOW in asked.get("decision", ()):
        found.append(_one_of("+c.decision", asked["decision"]))
    if "status" in asked and not _only_failed(asked["status"]):
        found.append(_status_condition(asked["status"]))
    found += [_one_of(f"+c.{name}", asked[name]) for name in _PLAIN_COLUMNS if name in asked]
    of_runs = _all([_one_of(column, asked[column]) for column in _RUN_COLUMNS if column in asked])
    if of_runs.sql:
        found.append(Condition(f"+c.run_id IN (SELECT run_id FROM runs WHERE {of_runs.sql})", of_runs.values))
    if "text" in asked:
        found.append(_text_condition(asked["text"]))
    return found


def with_calls(connection: sqlite3.Connection, filters: Filters) -> Condition:
    """On `runs`: those that have such a call."""
    chosen = plan(connection, filters)
    pieces, values = [], []
    for branch in chosen.branches:
        index, where, branch_values = chosen.where(branch)
        pieces.append(f"SELECT c.run_id FROM tool_calls c {index} WHERE {where}")
        values += branch_values
    return Condition(f"run_id IN ({' UNION '.join(pieces)})" if pieces else "0", values)


def run_conditions(filters: RunFilters) -> Condition:
    """On `runs`."""
    found: list[Condition] = []
    for name, value in filters.asked.items():
        if name == "since_ms":
            found.append(Condition("started_at >= ?", [moment_text(value)]))
        elif name == "until_ms":
            found.append(Condition("started_at < ?", [moment_text(value)]))
        else:
            found.append(_one_of(name, value))
    return _all(found)


def _all(conditions: list[Condition]) -> Condition:
    values = [value for condition in conditions for value in condition.values]
    return Condition(" AND ".join(condition.sql for condition in conditions), values)


def _status_condition(words: list[str]) -> Condition:
    """A call that was refused has neither failed nor gone well."""
    ended = _one_of("+c.status", [word for word in words if word != PENDING])
    pending = " OR +c.status IS NULL" if PENDING in words else ""
    return Condition(f"({ended.sql} AND {let_through_sql('+c.decision')}{pending})", ended.values)


def _text_condition(text: str) -> Condition:
    """`lower` and `instr` read all of a text, where LIKE would stop at a NUL."""
    patterns = text_patterns(text)
    pieces = [f"instr(lower(+c.{name}), ?)" for name in TEXT_COLUMNS if name not in PREVIEWS]
    values = patterns[:1] * len(pieces)
    previews = [f"instr(lower({INFLATED}(p.{name})), ?)" for name in PREVIEWS for _ in patterns]
    pieces.append(f"EXISTS (SELECT 1 FROM previews p WHERE p.id = c.id AND ({' OR '.join(previews)}))")
    return Condition(f"({' OR '.join(pieces)})", values + patterns * len(PREVIEWS))


def inflated(stored: str | bytes | None) -> str | None:
    """A preview's text, whichever way it is stored."""
    try:
        return unpack_text(stored)
    except Exception:  # zlib.error and ValueError alike: a damaged preview matches nothing
        return None


def _one_of(column: str, words: list[str]) -> Condition:
    if not words:
        return Condition("0")
    return Condition(f"{column} IN ({', '.join('?' * len(words))})", words)
