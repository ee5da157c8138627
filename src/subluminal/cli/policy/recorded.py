"""A recorded call for `sub policy explain --call`: how it is found, and what is said of it."""

from __future__ import annotations

from typing import Any

from subluminal.cli.record.query import bring_up_to_date
from subluminal.cli.render.moments import date_and_clock
from subluminal.cli.render.output import DECISION_COLOURS, paint
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.ledger.read.description import describe
from subluminal.ledger.read.history import recorded_run
from subluminal.ledger.read.ledger import open_ledger
from subluminal.policy.replay.recorded import Rejudged
from subluminal.reports.printable import count, printable

Found = tuple[RecordedRun, RecordedCall, dict[str, Any]]


def recorded_call(call_id: str, run: str | None, shim: str | None) -> Found:
    """By its id or an unambiguous beginning of it, as `sub show` takes it; the run, the call, and all that is known."""
    bring_up_to_date(False)
    with open_ledger() as ledger:
        run_id = None if run is None else ledger.resolve_run(run)
        known = describe(ledger, ledger.call(call_id, run_id, shim))
        history = recorded_run(ledger, known["run_id"])
    alike = [call for call in history.calls if call.call_id == known["call_id"]]
    call = next((call for call in alike if call.seq == (known["seq"] or 0)), alike[0])
    return history, call, known


def header(known: dict[str, Any]) -> list[str]:
    action = known["decision"] or "never decided"
    rule = f"rule {known['rule_id']}" if known["rule_id"] else "no rule"
    policy, when = known["policy"], date_and_clock(known["created_at"])
    lines = [
        f"call      {printable(known['tool_name'])} on {printable(known['server_name'])}",
        f"          {printable(known['call_id'])} of {printable(known['run_id'])}, {when}",
        f"recorded  {paint(action, DECISION_COLOURS.get(action), bold=True)}  {printable(rule)}, "
        f"{printable(str(known['reason_code']))}",
    ]
    if policy:
        name = printable(f"{policy['policy_id']} {policy['policy_version']}")
        lines.append(f"          by {name}  {policy['policy_hash'][:12]}")
    return lines


def doubts(judged: Rejudged) -> list[str]:
    """What the record cannot tell of this call, and whether it matters to this policy."""
    lines = []
    if judged.before:
        lines.append(f"counters  after {count(judged.before, 'earlier call')} of its run")
    if judged.classes_unknown:
        names = ", ".join(judged.classes_unknown)
        certain = paint("not certain", "yellow", bold=True)
        lines.append(f"classes   The decision is {certain}: the record does not tell whether the tool was {names}.")
    if judged.remains.why is None:
        return lines
    lines.append(f"arguments {printable(judged.remains.why)}")
    if not judged.doubtful:
        return [*lines, "          No rule that was asked looks at them: the decision is certain."]
    names = printable(", ".join(judged.doubtful))
    certain = paint("not certain", "yellow", bold=True)
    return [*lines, f"          The decision is {certain}: {names} would look at values that are not there."]
