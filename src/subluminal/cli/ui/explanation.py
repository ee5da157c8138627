"""A recorded call judged again by the policy version that decided it, for the page."""

from __future__ import annotations

from typing import Any

from subluminal.ledger.read.description import describe
from subluminal.ledger.read.history import recorded_run
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.policies import stored_snapshot
from subluminal.policy.replay.recorded import rejudge


def explain_recorded(path: str, call_id: str, run_id: str | None, shim_id: str | None) -> dict[str, Any]:
    with open_ledger(path) as ledger:
        return explain_call(ledger, call_id, run_id, shim_id)


def explain_call(ledger: Ledger, call_id: str, run_id: str | None, shim_id: str | None) -> dict[str, Any]:
    """`policies`: as `sub policy explain --call --json` says it; `unknown`: those whose text the ledger lacks."""
    known = describe(ledger, ledger.call(call_id, run_id, shim_id))
    snapshot = None if known["policy"] is None else stored_snapshot(ledger, known["policy"]["policy_hash"])
    if snapshot is None:
        return {"policies": [], "unknown": [known["policy"]["policy_hash"]] if known["policy"] else []}
    history = recorded_run(ledger, known["run_id"])
    alike = [call for call in history.calls if call.call_id == known["call_id"]]
    call = next((call for call in alike if call.seq == (known["seq"] or 0)), alike[0])
    return {"policies": [rejudge(snapshot, history, call, decided_by=snapshot["policy_hash"]).as_dict()], "unknown": []}
