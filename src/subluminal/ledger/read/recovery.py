"""The recovery of each run: how many of its refusals the agent corrected, of those that count (`fold.recovery`).

The same figures as `hints` has for the run, summed over its rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from subluminal.ledger.fold.recovery import Reaction
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.refused import RefusedRun, Sources, Tally, Transcripts, first_refusal

# Beyond this many calls of one run, following them takes longer than anybody should wait for a column of a list.
MOST_CALLS = 50_000


def recoveries(ledger: Ledger, run_ids: Sequence[str], sources: Sources | None = None) -> list[Row]:
    """`counted` is None where it was not looked at: there is no such run, or it has more than MOST_CALLS calls."""
    firsts = {run_id: first_refusal(ledger, run_id) for run_id in run_ids if _is_told(ledger, run_id)}
    transcripts = Transcripts(sources, min((first for first in firsts.values() if first is not None), default=0))
    found = []
    for run_id in run_ids:
        first = firsts.get(run_id)
        reactions = [] if first is None else RefusedRun(ledger, run_id, first, transcripts).reactions()
        found.append(recovery(run_id, reactions if run_id in firsts else None))
    return found


def recovery(run_id: str, reactions: Sequence[Reaction] | None) -> Row:
    """None: it was not looked at."""
    tally = Tally()
    for reaction in reactions or ():
        tally.add(reaction)
    return {
        "run_id": run_id,
        "corrected": None if reactions is None else tally.corrected,
        "counted": None if reactions is None else tally.counted,
        "recovery_rate": tally.recovery_rate,
    }


def _is_told(ledger: Ledger, run_id: str) -> bool:
    found = ledger.connection.execute("SELECT calls_total FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return found is not None and found[0] <= MOST_CALLS
