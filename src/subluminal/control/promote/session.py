"""A promote for one run: kept beside its state, obeyed by all its producers within half a second, gone with it."""

from __future__ import annotations

import os
from typing import Any

from msgspec import structs

from subluminal.control.promote.making import Made, make
from subluminal.control.promote.record import note_down, who
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.host.clock import utc_now
from subluminal.host.run.files import state_path
from subluminal.host.run.promotes import add_promote, read_promotes
from subluminal.host.run.view import run_state, wide_state
from subluminal.policy.edit.changes import with_promotes

_COUNTERS = {"calls": "limit_calls", "cost_units": "limit_cost_units"}


def propose_for_run(recorded: Recorded, wish: Wish, origin: str, snapshot: dict[str, Any]) -> Made:
    """`snapshot`: the policy that decided, as it is without promotes; `origin`: where it is from."""
    run_id = recorded.run.identity.run_id
    if not os.path.exists(state_path(run_id)):
        raise CannotPromote(
            f"Run {run_id} has no state on this machine: it was recorded elsewhere, or it ended long ago.",
            hint="--persist changes the policy for later runs.",
        )
    view = run_state(run_id)
    if view is not None and view.terminated:
        raise CannotPromote(f"Run {run_id} was terminated.", hint="--persist changes the policy for later runs.")
    (present,) = with_promotes([(origin, snapshot)], read_promotes(run_id))
    return make(recorded, wish, present, f"promote-{os.urandom(4).hex()}", _used(recorded, snapshot))


def promote_for_run(recorded: Recorded, made: Made, origin: str, ended_at: str | None) -> None:
    change = structs.replace(
        made.change,
        origin=origin,
        call_id=recorded.call.call_id,
        by=who(),
        at=utc_now(),
    )
    run_id = recorded.run.identity.run_id
    try:
        add_promote(run_id, structs.asdict(change))
    except OSError as error:
        raise CannotPromote(f"The promote cannot be kept: {error.strerror}.", hint="Run `sub doctor`.") from None
    note_down(recorded, change, ended_at, scope="session")


def _used(recorded: Recorded, snapshot: dict[str, Any]) -> dict[str, int]:
    """How far the counters of the rule have come: attempts count as well."""
    used: dict[str, int] = {}
    for view in (run_state(recorded.run.identity.run_id), wide_state()):
        for counter in view.counters if view is not None else ():
            if (counter.policy_id, counter.rule_id) == (snapshot["policy_id"], recorded.known["rule_id"]):
                for unit, name in _COUNTERS.items():
                    used[name] = max(used.get(name, 0), counter.used.get(unit, 0))
    return used
