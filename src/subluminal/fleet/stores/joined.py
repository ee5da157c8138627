"""Calls for which that of another door stands, in SQL: whoever lists or counts calls passes over them.

The rule is that of `ledger.fold.joined`, and a test holds the two against each other: the doors of one call have in
common the client's id of it and what was called; the nth that one door sees is the nth of every other; the door with
the highest weight speaks, the first of equals. It is found while reading: doors may come in other segments, in any
order.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import ACTION_STRICTNESS
from subluminal.fleet.stores.base import Dialect
from subluminal.ledger.fold.joined import MAX_ALIKE

_NAME = "run_id, shim_id, call_id"
_CALLED = "run_id, tool_use_id, server_name, tool_name, args_hash"
_HEARD = "created_ms, start_n, shim_id, call_id"
_STRICTEST = " ".join(f"WHEN decision = '{action}' THEN {weight}" for action, weight in ACTION_STRICTNESS.items())
_WEIGHT = f"CASE {_STRICTEST} ELSE -1 END DESC, CASE WHEN status = 'CANCELLED' THEN 0 ELSE 1 END DESC"


def passed_over(calls: str, which: str = "") -> str:
    """A query for (run_id, shim_id, call_id). `which` may leave out runs, or ids of clients, as a whole: `AND ...`."""
    seen = (
        f"SELECT {_CALLED}, shim_id, call_id, decision, status, created_ms, start_n,"
        " count(*) OVER (PARTITION BY run_id, tool_use_id) AS alike,"
        f" row_number() OVER (PARTITION BY {_CALLED}, coalesce(transport, 'unknown') ORDER BY {_HEARD}) AS nth"
        f" FROM {calls} WHERE tenant = :tenant AND tool_use_id IS NOT NULL {which}"
    )
    placed = (
        f"SELECT {_NAME}, row_number() OVER (PARTITION BY {_CALLED}, nth ORDER BY {_WEIGHT}, {_HEARD}) AS place"
        f" FROM ({seen}) AS seen WHERE alike BETWEEN 2 AND {MAX_ALIKE}"
    )
    return f"SELECT {_NAME} FROM ({placed}) AS placed WHERE place > 1"


def stands(dialect: Dialect, which: str) -> str:
    """As a condition on `calls`. `which`: conditions on `runs` that every run which it is about meets."""
    several, others = _of_several_doors(dialect, which)
    return f"(tool_use_id IS NULL OR run_id NOT IN ({several}) OR ({_NAME}) NOT IN ({others}))"


def stands_not(dialect: Dialect, which: str) -> str:
    """The others. They are few: whoever counts has counted all sooner, and these, than asked each whether it stands."""
    several, others = _of_several_doors(dialect, which)
    return f"{dialect.few.format('run_id', several)} AND ({_NAME}) IN ({others})"


def _of_several_doors(dialect: Dialect, which: str) -> tuple[str, str]:
    """Queries for the runs that several doors saw, and for what is passed over in them. Sorting calls takes far longer
    than counting them: only those of these runs are sorted."""
    several = f"SELECT run_id FROM {dialect.runs} WHERE {which} AND least_door <> greatest_door"
    return several, passed_over(dialect.calls, f"AND {dialect.few.format('run_id', several)}")
