"""A run that had calls refused, as `fold.recovery` wants it: its calls from the first refusal on, and whose they are.

What followed is counted by rule and hint in `hints`, by run in `recovery`: the same reactions, so the same figures. A
store of a fleet reads its rows elsewhere (`fleet.stores.recovery`) and makes of them what is made here: `made`,
`counting`, `thread_of`.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.vocabulary import ALLOW, PROMOTED, RUN_TERMINATED
from subluminal.ledger.fold.recovery import CORRECTED, NOT_COUNTED, OUTCOMES, Made, Reaction, reactions
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.store.lines import TIE_BITS, LineReader


class Told(NamedTuple):
    """One call as a transcript has it: when, by whom, and in which message of the model."""

    at_ms: int
    actor: str
    message: str


# Ids of a client -> the calls that have it.
Messages = Mapping[str, Sequence[Told]]
# What only transcripts of clients know of calls since a time.
Sources = Callable[[int], Messages]

# The client whose calls say which thread of it they are.
NAMES_THREADS = "codex"
# What makes a call (`made`), and what else is told of it.
_MADE = "id, server_name, tool_name, args_hash, decision, status, created_at, ended_at, reason_code, tool_use_id"
_MADE_COLUMNS = len(_MADE.split(","))
_COLUMNS = f"{_MADE}, call_id, rule_id, summary, start_event, producer_no"
# A call that another door tells of as well is told once; a further leg is part of its call.
_CALLS = (
    f"SELECT {_COLUMNS} FROM tool_calls INDEXED BY tool_calls_run"
    " WHERE run_id = ? AND id >= ? AND continues IS NULL AND id NOT IN (SELECT id FROM joined)"
    " ORDER BY created_at, id"
)
_FIRST = "SELECT min(id) FROM tool_calls INDEXED BY tool_calls_run WHERE run_id = ? AND decision <> 'ALLOW' AND id >= ?"


def lowest_number(since_ms: int) -> int:
    """Of a call since then; SQLite knows none beyond 64 bits."""
    return min(since_ms << TIE_BITS, (1 << 63) - 1)


def first_refusal(ledger: Ledger, run_id: str, since_ms: int = 0) -> int | None:
    """Its number; None: nothing of this run was refused since then."""
    found: int | None = ledger.connection.execute(_FIRST, (run_id, lowest_number(since_ms))).fetchone()[0]
    return found


class Transcripts:
    """What they tell of calls from number `first` on. They are read when a call is met that they could know."""

    def __init__(self, sources: Sources | None, first: int) -> None:
        self._sources = sources
        self._since_ms = first >> TIE_BITS
        self._known: Messages | None = {} if sources is None else None

    def told(self, use_id: str) -> Sequence[Told]:
        if self._known is None and self._sources is not None:
            self._known = self._sources(self._since_ms)
        return (self._known or {}).get(use_id, ())


class RefusedRun:
    """`rows`: its calls from number `first` on, by their numbers; `hints`: those that were given, by the same."""

    def __init__(self, ledger: Ledger, run_id: str, first: int, transcripts: Transcripts) -> None:
        sql = "SELECT run_id, run_no, agent_id, client, status FROM runs WHERE run_id = ?"
        self.row: sqlite3.Row = ledger.connection.execute(sql, (run_id,)).fetchone()
        self._ledger = ledger
        stored = ledger.connection.execute(_CALLS, (run_id, first)).fetchall()
        self.rows: dict[int, sqlite3.Row] = {row[0]: row for row in stored}
        self.hints = self._hints(first)
        self._made = [self._call(row) for row in stored]
        self._place(transcripts)

    def reactions(self) -> list[Reaction]:
        """What followed each refusal."""
        return counting(self._made, self.row["status"], lambda key: self.rows[key]["reason_code"])

    @cached_property
    def shim_ids(self) -> dict[int, str]:
        sql = "SELECT producer_no, shim_id FROM producers WHERE run_id = ?"
        return dict(self._ledger.connection.execute(sql, (self.row["run_id"],)).fetchall())

    def _hints(self, first: int) -> dict[int, sqlite3.Row]:
        sql = (
            "SELECT h.id, hint_text, hint_kind, suggested_args_json FROM tool_calls c CROSS JOIN hints h ON h.id = c.id"
            " WHERE c.run_id = ? AND c.id >= ?"
        )
        return {row["id"]: row for row in self._ledger.connection.execute(sql, (self.row["run_id"], first))}

    def _call(self, row: sqlite3.Row) -> Made:
        # Unpacked: looking columns up by their names would take longer than all the rest.
        call = made(*row[:_MADE_COLUMNS])
        hint = self.hints.get(call.key)
        if hint is not None and hint["suggested_args_json"]:
            call.suggested_hash = _hash_of(hint["suggested_args_json"])
        return call

    def _place(self, transcripts: Transcripts) -> None:
        """Whose each call is, and which message it came from."""
        lines = LineReader(self._ledger.connection) if self.row["client"] == NAMES_THREADS else None
        for call in self._made:
            told = () if call.use_id is None else transcripts.told(call.use_id)
            if told:
                # Several sessions may have the id: the call is the one that was told of when it was made.
                nearest = min(told, key=lambda one: (abs(one.at_ms - call.started_ms), one.actor))
                call.actor, call.message = nearest.actor, nearest.message
            elif lines is not None and (start_event := self.rows[call.key]["start_event"]) is not None:
                started = json.loads(lines.line(self.row["run_no"], start_event))
                call.actor = thread_of(NAMES_THREADS, started["call"].get("call_context"))


def made(
    key: int,
    server_name: str,
    tool_name: str,
    args_hash: str,
    decision: str | None,
    status: str | None,
    created_at: str,
    ended_at: str | None,
    reason_code: str | None,
    tool_use_id: str | None,
) -> Made:
    ended_ms = None if ended_at is None else epoch_ms(ended_at)
    call = Made(key, (server_name, tool_name), args_hash, decision, status, epoch_ms(created_at), ended_ms)
    call.use_id = tool_use_id
    call.promoted = decision == ALLOW and reason_code == PROMOTED
    return call


def counting(calls: Sequence[Made], run_status: str, reason_of: Callable[[int], str | None]) -> list[Reaction]:
    """What followed each refusal. What an operator stopped is no rule's, and nothing to recover from."""
    return [each for each in reactions(calls, run_status) if reason_of(each.refusal.key) != RUN_TERMINATED]


def thread_of(client: str, context: object) -> str:
    """Codex names the thread, which is a sub-agent's own."""
    thread = context.get("threadId") if client == NAMES_THREADS and isinstance(context, dict) else None
    return thread if isinstance(thread, str) else ""


def _hash_of(suggested: str) -> str | None:
    from subluminal.contracts.canonical import args_hash

    try:
        return args_hash(suggested.encode())
    except CanonicalError:
        return None


class Tally:
    """Refusals and what followed them."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.calls: list[int] = []
        self.as_hinted = 0

    def add(self, reaction: Reaction) -> None:
        self.outcomes[reaction.outcome] += 1
        self.as_hinted += reaction.as_hinted
        if reaction.calls is not None:
            self.calls.append(reaction.calls)

    @property
    def corrected(self) -> int:
        return self.outcomes[CORRECTED]

    @property
    def counted(self) -> int:
        return self.outcomes.total() - sum(self.outcomes[word] for word in NOT_COUNTED)

    @property
    def recovery_rate(self) -> float | None:
        """Corrected, of those that count; None: none does, or not yet."""
        return self.corrected / self.counted if self.counted else None

    def as_dict(self) -> Row:
        return {
            "refused": self.outcomes.total(),
            "outcomes": {word: self.outcomes[word] for word in OUTCOMES},
            "counted": self.counted,
            "as_hinted": self.as_hinted,
            "recovery_rate": self.recovery_rate,
            "calls_to_recovery": sum(self.calls) / len(self.calls) if self.calls else None,
        }
