"""How runs recovered, from the exact lines of their calls: the rule and the figures are the machine's.

What a client's transcripts tell is on its machine: here times say which call came after a refusal, and threads where
the client names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from subluminal.contracts import events as ev
from subluminal.fleet.stores.base import chunks
from subluminal.fleet.stores.joined import stands
from subluminal.fleet.stores.reading import Key, Reader, fold
from subluminal.ledger.fold.reading import AnyEvent
from subluminal.ledger.fold.recovery import Made, Reaction
from subluminal.ledger.fold.run import Run
from subluminal.ledger.read.ledger import Row
from subluminal.ledger.read.recovery import MOST_CALLS, recovery
from subluminal.ledger.read.refused import counting, made, thread_of

# Calls whose lines are held at once.
_AT_ONCE = 500


def recoveries(reader: Reader, run_ids: Sequence[str]) -> list[Row]:
    """As `ledger.read.recovery.recoveries`."""
    calls, runs = reader.dialect.calls, reader.dialect.runs
    sql = f"SELECT run_id FROM {runs} WHERE tenant = :tenant AND run_id IN :runs"
    told: dict[str, int | None] = dict.fromkeys([row[0] for row in reader.select(sql, runs=list(run_ids))])
    sql = (
        "SELECT run_id, count(*), min(CASE WHEN decision <> 'ALLOW' THEN created_ms END)"
        f" FROM {calls} WHERE tenant = :tenant AND run_id IN :runs GROUP BY 1"
    )
    for run_id, count, first_ms in reader.select(sql, runs=list(run_ids)):
        if count > MOST_CALLS:
            told.pop(run_id, None)
        else:
            told[run_id] = first_ms
    refused = [run_id for run_id, first_ms in told.items() if first_ms is not None]
    followed = {run.run_id: _reactions(reader, run, told[run.run_id] or 0) for run in reader.runs_named(refused)}
    return [recovery(run_id, followed.get(run_id, []) if run_id in told else None) for run_id in run_ids]


def _reactions(reader: Reader, run: Run, first_ms: int) -> list[Reaction]:
    """Its calls from the first refusal on; a further leg is part of its call."""
    of_run = "tenant = :tenant AND run_id = :run"
    standing = stands(reader.dialect, of_run)
    keys = reader.keys_in(f"run_id = :run AND created_ms >= :first AND {standing}", run=run.run_id, first=first_ms)
    calls: list[Made] = []
    reasons: list[str | None] = []
    for some in chunks(keys, _AT_ONCE):
        for events in reader.events_of(list[Key](some)):
            folded = fold(events)
            if folded is None or folded.continues is not None:
                continue
            call = made(
                len(calls),
                folded.server_name,
                folded.tool_name,
                folded.args_hash,
                folded.decision,
                folded.status,
                folded.created_at,
                folded.ended_at,
                folded.reason_code,
                folded.tool_use_id,
            )
            call.actor = thread_of(run.client, _context(events))
            calls.append(call)
            reasons.append(folded.reason_code)
    return counting(calls, run.status, lambda key: reasons[key])


def _context(events: list[AnyEvent | None]) -> object:
    for event in events:
        if isinstance(event, ev.ToolCallStart) and event.call.call_context is not UNSET:
            return event.call.call_context
    return None
