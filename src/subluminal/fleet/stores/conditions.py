"""Each filter of `contracts.filters` as a condition on `calls` and `runs` of a store.

Globs are tried on the names that there are, in Python: one meaning of a glob, whatever the engine. Of a free text, SQL
finds the lines that may hold it; whether a call does is told by `Filters.match`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from subluminal.contracts.counts import let_through_sql
from subluminal.contracts.filters import (
    CALL_FILTERS,
    MOMENT,
    NAMES,
    NUMBER,
    PENDING,
    TEXT,
    Filters,
    RunFilters,
    find_filter,
    text_patterns,
)
from subluminal.contracts.globs import glob_test, is_glob
from subluminal.fleet.stores.base import Answers
from subluminal.fleet.stores.tables import CLIPPED, clipped

_NUMBERED = ("start_seq", "decision_seq", "end_seq")


class Where:
    """Conditions that all must hold, and the values that stand in them as `:name`."""

    def __init__(self, tenant: str) -> None:
        self.pieces = ["tenant = :tenant"]
        self.values: dict[str, Any] = {"tenant": tenant}

    def add(self, sql: str, **values: Any) -> None:
        for name, value in values.items():
            given = f"v{len(self.values)}"
            sql = sql.replace(f":{name}", f":{given}")
            self.values[given] = value
        self.pieces.append(sql)

    @property
    def sql(self) -> str:
        return " AND ".join(self.pieces)


def call_conditions(store: Answers, where: Where, filters: Filters) -> None:
    for name, value in filters.asked.items():
        found = find_filter(name, CALL_FILTERS)
        if found.kind == TEXT:
            _add_text(store, where, value)
        elif found.kind == MOMENT:
            where.add(f"created_ms {'>=' if name == 'since_ms' else '<'} :ms", ms=value)
        elif found.kind == NUMBER:
            where.add(f"{found.column} >= :number", number=value)
        elif PENDING in found.words:
            _add_status(where, value)
        elif found.kind == NAMES and any(map(is_glob, value)):
            _add_one_of(where, found.column, _names_meant(store, where.values["tenant"], found.column, value))
        else:
            _add_one_of(where, found.column, value)


def run_conditions(where: Where, filters: RunFilters) -> None:
    """`status` follows from events, and is asked of each run afterwards."""
    for name, value in filters.asked.items():
        if name in ("since_ms", "until_ms"):
            where.add(f"first_ms {'>=' if name == 'since_ms' else '<'} :ms", ms=value)
        elif name != "status":
            _add_one_of(where, name, value)


def _add_one_of(where: Where, column: str, words: list[str]) -> None:
    if words:
        where.add(f"{column} IN :words", words=[clipped(word) if column in CLIPPED else word for word in words])
    else:
        where.add("1 = 0")


def _add_status(where: Where, words: list[str]) -> None:
    """A call that was refused has neither failed nor gone well."""
    ended = [word for word in words if word != PENDING]
    pending = "status IS NULL"
    if not ended:
        where.add(pending)
        return
    sql = f"(status IN :ended AND {let_through_sql()})"
    where.add(f"({sql} OR {pending})" if PENDING in words else sql, ended=ended)


def _names_meant(store: Answers, tenant: str, column: str, globs: list[str]) -> list[str]:
    tests = [glob_test(glob) for glob in globs]
    sql = f"SELECT DISTINCT {column} FROM calls WHERE tenant = :tenant AND {column} IS NOT NULL"
    names = [row[0] for row in store.select(sql, {"tenant": tenant})]
    return [name for name in names if any(test(name) for test in tests)]


def _add_text(store: Answers, where: Where, text: str) -> None:
    """In a line a text stands as JSON, with or without escapes for what is not ASCII."""
    from json.encoder import encode_basestring_ascii

    patterns = {
        spelled.lower()
        for pattern in text_patterns(text)
        for spelled in (msgspec.json.encode(pattern).decode()[1:-1], encode_basestring_ascii(pattern)[1:-1])
    }
    dialect = store.dialect
    either, values = [], {}
    for i, pattern in enumerate(sorted(patterns)):
        either.append(dialect.contains.format("line", f":pattern{i}"))
        values[f"pattern{i}"] = pattern
    lines = f"SELECT run_id, shim_id, seq FROM {dialect.events} WHERE tenant = :tenant AND ({' OR '.join(either)})"
    told = " OR ".join(f"(run_id, shim_id, {column}) IN ({lines})" for column in _NUMBERED)
    where.add(f"({told})", **values)
