"""Which policy decided a call, and where it lies: in force here, in force where the run began, or in the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from subluminal.contracts.errors import PolicyError
from subluminal.control.promote.wish import CannotPromote, Recorded
from subluminal.policy.sources import ABOVE_THE_USER, BUILTIN_OBSERVE, PolicySource, find_policies


class Decided(Struct, eq=False):
    """`path`: None where only the ledger has it. `since`: the file has changed since the call was decided."""

    origin: str
    snapshot: dict[str, Any]
    path: str | None = None
    since: bool = False


def deciding_policy(recorded: Recorded, stored: dict[str, Any] | None) -> Decided:
    """`stored`: the policy as the ledger has it."""
    ref = recorded.known["policy"]
    if ref is None or ref["policy_id"] in (BUILTIN_OBSERVE["policy_id"], "none"):
        raise CannotPromote(
            "No policy decided this call: there was none in force.", hint="`sub policy init` writes one to begin with."
        )
    best: Decided | None = None
    for source, snapshot in _in_force(recorded):
        if snapshot["policy_hash"] == ref["policy_hash"]:
            return Decided(source.origin, snapshot, source.path)
        if best is None and snapshot["policy_id"] == ref["policy_id"]:
            best = Decided(source.origin, snapshot, source.path, since=True)
    if best is None and stored is not None:
        best = Decided("", stored)
    if best is None:
        raise CannotPromote(
            f"Policy {ref['policy_id']} {ref['policy_version']}, which decided the call, is not in force here, and the "
            "ledger has no copy of it.",
            hint="Run it where the agent ran, or name the file: --persist FILE.",
        )
    return best


def refuse_organisation(decided: Decided, deny: bool, persist: bool) -> None:
    if decided.origin not in ABOVE_THE_USER or (deny and not persist):
        return
    owner = decided.snapshot.get("owner")
    holder = "your organisation" if decided.origin == "organisation" else "your fleet"
    whose = f"{holder} ({owner})" if owner else holder
    verb = "is changed" if deny else "is loosened"
    raise CannotPromote(
        f"Policy {decided.snapshot['policy_id']} ({decided.path}) belongs to {whose}: it {verb} by its owner alone.",
        hint="Ask whoever keeps it; `sub policy check` shows them what a change would do.",
    )


def _in_force(recorded: Recorded) -> Iterator[tuple[PolicySource, dict[str, Any]]]:
    workload = recorded.run.identity.workload or {}
    directories = dict.fromkeys([os.getcwd(), *(workload.get(name) for name in ("repo_path", "cwd"))])
    seen: set[str] = set()
    for directory in directories:
        if not isinstance(directory, str) or not os.path.isdir(directory):
            continue
        for source in find_policies(os.environ, directory):
            where = source.path or source.inline or ""
            if where in seen or not where:
                continue
            seen.add(where)
            try:
                yield source, source.load()
            except PolicyError:
                continue
