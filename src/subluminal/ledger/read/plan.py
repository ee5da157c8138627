"""What a query asks for, and the SQL that finds it fast.

Rows are wanted newest first and only a page of them, so the right plan is to walk one index backwards and stop. SQLite
has no statistics here and would rather sort; therefore the index is chosen in `plan` and named with INDEXED BY, and
every other condition only filters. Each branch of a plan walks one range of one index that ends in the row id.

Trap: SQLite uses a partial index only if its condition stands in the query word for word, hence the `<> 'ALLOW'`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from subluminal.contracts.counts import let_through_sql
from subluminal.contracts.errors import UsageError
from subluminal.contracts.vocabulary import ACTIONS, ALLOW, STATUSES
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.lines import TIE_BITS

_PROBE = 4000  # rows counted, at most, to find out which of two indexes leads to fewer rows
_MAX_BRANCHES = 400  # beyond this many names a scan is no slower

INFLATED = "inflated_preview"  # SQL function: a preview's text, whichever way it is stored

Value = str | int | bytes | None


class Filters:
    """Conditions on tool calls, all of which must hold. Lists are alternatives; names may be globs (`git*`)."""

    __slots__ = (
        "agent_id",
        "args_hash",
        "client",
        "decision",
        "env",
        "error_class",
        "min_latency_ms",
        "principal",
        "reason_code",
        "rule_id",
        "run_id",
        "server_name",
        "severity",
        "since_ms",
        "status",
        "text",
        "tool_name",
        "until_ms",
    )

    def __init__(
        self,
        *,
        run_id: Iterable[str] = (),
        server_name: Iterable[str] = (),
        tool_name: Iterable[str] = (),
        decision: Iterable[str] = (),
        status: Iterable[str] = (),
        rule_id: Iterable[str] = (),
        reason_code: Iterable[str] = (),
        severity: Iterable[str] = (),
        error_class: Iterable[str] = (),
        args_hash: str | None = None,
        agent_id: Iterable[str] = (),
        client: Iterable[str] = (),
        env: Iterable[str] = (),
        principal: Iterable[str] = (),
        since_ms: int | None = None,
        until_ms: int | None = None,
        min_latency_ms: int | None = None,
        text: str | None = None,
    ) -> None:
        self.run_id = _distinct(run_id)
        self.server_name = _distinct(server_name)
        self.tool_name = _distinct(tool_name)
        self.decision = _distinct(word.upper() for word in decision)
        self.status = _distinct(word.upper() for word in status)
        self.rule_id = _distinct(rule_id)
        self.reason_code = _distinct(reason_code)
        self.severity = _distinct(severity)
        self.error_class = _distinct(error_class)
        self.args_hash = args_hash
        self.agent_id = _distinct(agent_id)
        self.client = _distinct(client)
        self.env = _distinct(env)
        self.principal = _distinct(principal)
        self.since_ms = since_ms
        self.until_ms = until_ms
        self.min_latency_ms = min_latency_ms
        self.text = text
        _check("decision", self.decision, ACTIONS)
        _check("status", self.status, (*STATUSES, "PENDING"))


def _distinct(words: Iterable[str]) -> list[str]:
    """Each once: the branches of a plan must not overlap, or counts would not add up."""
    return list(dict.fromkeys(words))


def _check(name: str, words: list[str], known: tuple[str, ...]) -> None:
    for word in words:
        if word not in known:
            raise UsageError(f"{word!r} is no {name}.", hint=f"Known: {', '.join(known)}.")


class Condition:
    """A piece of SQL and its values. `index` is set where the piece can lead the plan."""

    __slots__ = ("index", "sql", "values")

    def __init__(self, sql: str, values: Iterable[Value] = (), index: str | None = None) -> None:
        self.sql = sql
        self.values = list(values)
        self.index = index


class Plan:
    """Branches to walk (one condition each, with its index, or None: by time) and what filters each row."""

    __slots__ = ("branches", "rest")

    def __init__(self, branches: list[Condition], rest: list[Condition]) -> None:
        self.branches = branches
        self.rest = rest

    def where(self, branch: Condition) -> tuple[str, str, list[Value]]:
        """(INDEXED BY clause, WHERE clause, values) of one branch."""
        conditions = [branch, *self.rest] if branch.sql else self.rest
        sql = " AND ".join(condition.sql for condition in conditions) or "1"
        values = [value for condition in conditions for value in condition.values]
        return (f"INDEXED BY {branch.index}" if branch.index else "NOT INDEXED"), sql, values


BY_TIME = Condition("")


def plan(connection: sqlite3.Connection, filters: Filters) -> Plan:
    """Choose the leading index. Where two could lead, a bounded count decides."""
    if filters.text is not None:
        connection.create_function(INFLATED, 1, _inflated, deterministic=True)
    leaders: list[list[Condition]] = []
    rest = _plain_conditions(filters)
    if filters.args_hash is not None:
        leaders.append([Condition("c.args_hash = ?", [filters.args_hash], "tool_calls_args")])
    if filters.run_id:
        leaders.append([Condition("c.run_id = ?", [run_id], "tool_calls_run") for run_id in filters.run_id])
    if filters.rule_id:
        leaders.append([Condition("c.rule_id = ?", [rule_id], "tool_calls_rule") for rule_id in filters.rule_id])
    if filters.decision and ALLOW not in filters.decision:
        leaders.append(
            [
                Condition(f"c.decision = '{word}' AND c.decision <> 'ALLOW'", (), "tool_calls_refused")
                for word in filters.decision
            ]
        )
    if filters.status and not {"OK", "PENDING"} & set(filters.status):
        leaders.append(
            [
                Condition(f"c.decision {let_through} AND c.status = '{word}'", (), "tool_calls_decision")
                for word in filters.status
                for let_through in (f"= '{ALLOW}'", "IS NULL")
            ]
        )
    if filters.server_name or filters.tool_name:
        tools = _tools(connection, filters)
        if len(tools) <= _MAX_BRANCHES:
            leaders.append(
                [Condition("c.server_name = ? AND c.tool_name = ?", pair, "tool_calls_tool") for pair in tools]
            )
        else:
            rest.append(_names_condition("c.server_name", filters.server_name))
            rest.append(_names_condition("c.tool_name", filters.tool_name))
    if not all(leaders):
        return Plan([], rest)  # no recorded tool has such a name
    if not leaders:
        return Plan([BY_TIME], rest)
    best = leaders[0] if len(leaders) == 1 else min(leaders, key=lambda group: _probe(connection, group))
    return Plan(best, rest + [_filtering(group) for group in leaders if group is not best])


def _tools(connection: sqlite3.Connection, filters: Filters) -> list[tuple[str, str]]:
    conditions = [
        _names_condition("server_name", filters.server_name),
        _names_condition("tool_name", filters.tool_name),
    ]
    sql = " AND ".join(condition.sql for condition in conditions)
    values = [value for condition in conditions for value in condition.values]
    rows = connection.execute(
        f"SELECT server_name, tool_name FROM server_tools WHERE {sql} LIMIT {_MAX_BRANCHES + 1}", values
    )
    return [(row[0], row[1]) for row in rows]


def _names_condition(column: str, patterns: list[str]) -> Condition:
    if not patterns:
        return Condition("1")
    pieces = [f"{column} GLOB ?" if set(pattern) & set("*?[") else f"{column} = ?" for pattern in patterns]
    return Condition("(" + " OR ".join(pieces) + ")", patterns)


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


def _plain_conditions(filters: Filters) -> list[Condition]:
    found: list[Condition] = []
    if filters.since_ms is not None:
        found.append(Condition("c.id >= ?", [_first_id(filters.since_ms)]))
    if filters.until_ms is not None:
        found.append(Condition("c.id < ?", [_first_id(filters.until_ms)]))
    if filters.min_latency_ms is not None:
        found.append(Condition("+c.latency_ms >= ?", [filters.min_latency_ms]))
    if ALLOW in filters.decision:
        found.append(_one_of("+c.decision", filters.decision))
    if {"OK", "PENDING"} & set(filters.status):
        words = [word for word in filters.status if word != "PENDING"]
        condition = _one_of("+c.status", words)
        condition.sql = f"({condition.sql} AND {let_through_sql('+c.decision')})"
        if "PENDING" in filters.status:
            condition = Condition(f"({condition.sql} OR +c.status IS NULL)", condition.values)
        found.append(condition)
    for column in ("reason_code", "severity", "error_class"):
        if getattr(filters, column):
            found.append(_one_of(f"+c.{column}", getattr(filters, column)))
    runs = [_one_of(column, getattr(filters, column)) for column in _RUN_COLUMNS if getattr(filters, column)]
    if runs:
        sql = " AND ".join(condition.sql for condition in runs)
        values = [value for condition in runs for value in condition.values]
        found.append(Condition(f"+c.run_id IN (SELECT run_id FROM runs WHERE {sql})", values))
    if filters.text is not None:
        found.append(_text_condition(filters.text))
    return found


def _text_condition(text: str) -> Condition:
    """Letters in any case, in names, reasons, messages and previews. In a preview, JSON may have escaped them."""
    patterns = [_like(text)]
    from json.encoder import encode_basestring_ascii

    escaped = encode_basestring_ascii(text)[1:-1]
    if escaped != text:
        patterns.append(_like(escaped))
    columns = ("c.tool_name", "c.server_name", "c.summary", "c.error_message", "c.rule_id", "c.call_id")
    pieces = [f"+{column} LIKE ? ESCAPE '\\'" for column in columns]
    values: list[Value] = [patterns[0]] * len(columns)
    previews = [
        f"{INFLATED}(p.{column}) LIKE ? ESCAPE '\\'" for column in ("args_preview", "result_preview") for _ in patterns
    ]
    pieces.append(f"EXISTS (SELECT 1 FROM previews p WHERE p.id = c.id AND ({' OR '.join(previews)}))")
    return Condition(f"({' OR '.join(pieces)})", [*values, *patterns, *patterns])


def _like(text: str) -> str:
    return "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _inflated(stored: str | bytes | None) -> str | None:
    try:
        return unpack_text(stored)
    except Exception:  # zlib.error and ValueError alike: a damaged preview matches nothing
        return None


_RUN_COLUMNS = ("agent_id", "client", "env", "principal")


def _one_of(column: str, words: list[str]) -> Condition:
    if not words:
        return Condition("0")
    return Condition(f"{column} IN ({', '.join('?' * len(words))})", words)
