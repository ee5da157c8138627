"""What a promote asks for, and what cannot be promoted at all."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.contracts.errors import PolicyError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.vocabulary import (
    ALLOW,
    AMBIGUOUS_MESSAGE,
    LEGS_EXCEEDED,
    MESSAGE_TOO_LARGE,
    POLICY_INVALID,
    RUN_TERMINATED,
    TOOL_QUARANTINED,
)
from subluminal.host.client_process import run_of_this_process


class Wish(Struct, eq=False):
    """`tool`: a glob of tool names instead of the call's own. `limit`: what a limit shall be raised to."""

    deny: bool = False
    tool: str | None = None
    any_args: bool = False
    limit: int | None = None


class Recorded(Struct, eq=False):
    """One call: its run, itself, and all that the ledger knows of it."""

    run: RecordedRun
    call: RecordedCall
    known: dict[str, Any]


class CannotPromote(PolicyError):
    """There is no rule that would do it, or nobody may from here."""


_NEVER = {
    AMBIGUOUS_MESSAGE: ("its message could be read in two ways, and no rule decides between them", "Mend its client."),
    POLICY_INVALID: ("no policy could be loaded", "`sub policy lint` says what is wrong with it."),
    RUN_TERMINATED: ("its run had been stopped", "Start another run."),
    MESSAGE_TOO_LARGE: ("its message is larger than can be judged", "The agent has to send less at once."),
    LEGS_EXCEEDED: ("it asked for input too often", "`defaults.max_legs` of the policy says how often it may."),
    TOOL_QUARANTINED: ("what the server says of the tool has changed", "Look at it: sub tools approve"),
}


def refuse_runs() -> None:
    """Agents do not approve themselves."""
    run_id = run_of_this_process()
    if run_id is not None:
        raise CannotPromote(
            f"This process belongs to run {run_id}: an agent cannot promote calls.",
            hint="A person does that, from a terminal of their own.",
        )


def check(recorded: Recorded, wish: Wish) -> None:
    """Raises CannotPromote for what no promote can change."""
    known = recorded.known
    action, reason = known["decision"], known["reason_code"]
    if action is None:
        raise CannotPromote("The call was never decided.", hint="`sub show` tells what is known of it.")
    if reason in _NEVER:
        why, hint = _NEVER[reason]
        raise CannotPromote(f"The call cannot be promoted: {why} ({reason}).", hint=hint)
    if wish.deny and action != ALLOW:
        raise CannotPromote("The call was refused already.", hint="`sub show` tells by which rule.")
    if not wish.deny and action == ALLOW:
        would = known["would_action"]
        more = (
            f" The policy only observes; enforced, it would {would} by rule {known['would_rule_id']}." if would else ""
        )
        raise CannotPromote(f"The call was let through.{more}", hint="--deny refuses calls like it.")
