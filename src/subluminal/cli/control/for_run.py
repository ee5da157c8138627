"""`sub promote --session`: the change for one run, done and told."""

from __future__ import annotations

from typing import Any

from subluminal.cli.policy.recorded import recorded_call
from subluminal.cli.render.output import note, paint, print_json
from subluminal.cli.render.rows import json_text
from subluminal.control.promote.making import Made
from subluminal.control.promote.policies import Decided, deciding_policy, refuse_organisation
from subluminal.control.promote.session import promote_for_run, propose_for_run
from subluminal.control.promote.wish import Recorded, Wish, check
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.read.policies import stored_snapshot
from subluminal.reports.printable import printable


def find(
    call: str, run: str | None, shim: str | None, wish: Wish
) -> tuple[Recorded, dict[str, Any] | None, str | None]:
    """The call, its policy as the ledger has it, and when its run ended."""
    recorded = Recorded(*recorded_call(call, run, shim))
    check(recorded, wish)
    policy = recorded.known["policy"]
    with open_ledger() as ledger:
        stored = None if policy is None else stored_snapshot(ledger, policy["policy_hash"])
        ended_at = ledger.run(recorded.run.identity.run_id)["ended_at"]
    return recorded, stored, ended_at


def for_run(call: str, run: str | None, shim: str | None, wish: Wish, dry_run: bool, as_json: bool) -> int:
    recorded, stored, ended_at = find(call, run, shim, wish)
    decided = deciding_policy(recorded, stored)
    refuse_organisation(decided, wish.deny, persist=False)
    say_if_changed(decided)
    made = propose_for_run(recorded, wish, decided.origin, decided.snapshot)
    if not dry_run:
        promote_for_run(recorded, made, decided.origin, ended_at)
    if as_json:
        print_json({**described(recorded, made), "scope": "session", "dry_run": dry_run})
        return 0
    show(recorded, made)
    run_id = printable(recorded.run.identity.run_id)
    if dry_run:
        note("Nothing was changed (--dry-run).")
    else:
        note(f"It holds for run {run_id} from the next call on, and ends with it. --persist writes it into the policy.")
    if ended_at is not None:
        note("The ledger has the end of this run already: it matters only if the run goes on.")
    return 0


def say_if_changed(decided: Decided) -> None:
    if decided.since:
        note(f"{printable(decided.path or '')} has changed since the call was decided: it is taken as it is now.")


def described(recorded: Recorded, made: Made) -> dict[str, Any]:
    change = made.change
    return {
        "promote_id": change.promote_id,
        "call_id": recorded.call.call_id,
        "run_id": recorded.run.identity.run_id,
        "policy_id": change.policy_id,
        "rule_id": recorded.known["rule_id"],
        "above": change.rule_id if change.rule is not None else None,
        "rule": change.rule,
        "limits": change.limits or None,
        "summary": change.summary,
        "notes": made.notes,
    }


def show(recorded: Recorded, made: Made) -> None:
    known, change = recorded.known, made.change
    call = printable(f"{known['server_name']}/{known['tool_name']}")
    by = printable(f"{known['rule_id'] or 'no rule'}, {known['reason_code']}")
    print(f"call     {call}  {printable(recorded.call.call_id)}")
    print(f"was      {paint(known['decision'], None, bold=True)}  {by}: {printable(known['summary'] or '')}")
    print(f"policy   {printable(change.policy_id)}")
    if change.rule is not None:
        place = f"above {change.rule_id}" if change.rule_id is not None else "as the last rule"
        print(f"rule     {printable(change.rule['kind'])} {printable(change.rule['rule_id'])}, {printable(place)}")
        print(f"         {printable(json_text(change.rule['match']))}")
    else:
        for name, limit in change.limits.items():
            print(f"limit    {name} of {printable(change.rule_id or '')} becomes {limit}")
    for sentence in made.notes:
        print(f"note     {printable(sentence)}")
