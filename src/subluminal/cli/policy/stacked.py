"""The policies that `sub policy explain` puts a call to, and what they decide together."""

from __future__ import annotations

import os
import sys
from typing import Any

from subluminal.cli.light import Finished
from subluminal.cli.policy.source import compiled, show_findings
from subluminal.cli.render.output import DECISION_COLOURS, note, paint
from subluminal.contracts.errors import PolicyError
from subluminal.contracts.identity import Identity
from subluminal.contracts.vocabulary import ACTION_STRICTNESS, ALLOW
from subluminal.host.home import REPOSITORY_POLICY, repository_files
from subluminal.policy.in_force import policies_in_force
from subluminal.policy.lint.findings import InvalidPolicy
from subluminal.reports.printable import printable


def judging(file: str | None, identity: Identity) -> list[tuple[dict[str, Any], bool]]:
    """The snapshot of FILE, or of each policy in force here, and whether it is the repository's own.

    One with errors ends the command."""
    if file is not None:
        return [(compiled(file), is_of_repository(file))]
    snapshots = []
    for one in policies_in_force(os.environ, os.getcwd(), identity):
        if one.snapshot is None:
            raise _broken(one.fault)
        snapshots.append((one.snapshot, one.source.origin == "repository"))
    return snapshots


def is_of_repository(file: str) -> bool:
    """The lock of a repository counts for its own policy, not for those of others."""
    paths = repository_files(os.getcwd(), REPOSITORY_POLICY)
    return os.path.realpath(file) in map(os.path.realpath, paths)


def _broken(fault: PolicyError | None) -> BaseException:
    if not isinstance(fault, InvalidPolicy):
        return fault or PolicyError("A policy in force does not load")
    show_findings(fault.findings, sys.stderr)
    note("This policy is in force here and does not load: every tool call is refused (POLICY_INVALID).")
    return Finished(fault.exit_code)


def together(explanations: list[dict[str, Any]]) -> dict[str, Any]:
    """For `--json`: the decision that stands, and what each policy says."""
    strictest = _strictest(explanations)
    decision = {"action": ALLOW, "rule_id": None} if strictest is None else strictest["decision"]
    return {"decision": decision, "policies": explanations}


def print_together(explanations: list[dict[str, Any]]) -> None:
    strictest = _strictest(explanations)
    if not explanations:
        print("No policy is in force here: the call is allowed and recorded. `sub policy init` writes a policy.")
    elif strictest is None:
        print("No policy in force applies to this run: the call is allowed and recorded.")
    elif len(explanations) > 1:
        action = strictest["decision"]["action"]
        shown = paint(action, DECISION_COLOURS.get(action), bold=True)
        name = printable(strictest["policy"]["policy_id"])
        by = "all allow it" if action == ALLOW else f"by {name}: of several policies, the strictest decision wins"
        print(f"together  {shown}  {by}")


def _strictest(explanations: list[dict[str, Any]]) -> dict[str, Any] | None:
    applied = [one for one in explanations if one["policy"]["applies"]]
    return max(applied, key=lambda one: ACTION_STRICTNESS[one["decision"]["action"]], default=None)
