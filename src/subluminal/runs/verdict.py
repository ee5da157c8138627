"""Whether a run fails its CI job, and the short report that says why: which call, which rule, what to do."""

from __future__ import annotations

from typing import NamedTuple

from subluminal.contracts.vocabulary import SEVERITIES
from subluminal.ledger.fold.run_facts import Refusal, RunFacts
from subluminal.reports.printable import count, printable

# Refused calls told one by one; the bundle has all of them.
SHOWN = 10
SHOWN_DRIFTS = 5
# Of the difference of one tool; the page of the job has more.
SHOWN_LINES = 20


class Strictness:
    """What the job tolerates. Without `strict` everything: then the record is the only effect."""

    def __init__(self, strict: bool, fail_on: str | None = None, max_blocked: int | None = None) -> None:
        self.strict = strict or fail_on is not None or max_blocked is not None
        self.fail_on = fail_on or "any"
        self.max_blocked = max_blocked or 0

    @property
    def severity(self) -> str:
        return SEVERITIES[0] if self.fail_on == "any" else self.fail_on


class Verdict(NamedTuple):
    """`failed` is about the rules of the job; the agent's own exit code is beside it."""

    failed: bool
    text: str
    reasons: list[str]


def judge(facts: RunFacts, problems: list[str], terminated: bool, strictness: Strictness) -> Verdict:
    counted = facts.refused_at(strictness.severity)
    reasons = []
    if counted > strictness.max_blocked:
        grade = "" if strictness.fail_on == "any" else f" at severity {strictness.fail_on} or above"
        limit = f"; {strictness.max_blocked} are tolerated" if strictness.max_blocked else ""
        reasons.append(f"{count(counted, 'call')} refused{grade}{limit}")
    if facts.drifts:
        named = ", ".join(list(facts.drifts)[:SHOWN_DRIFTS])
        verb = "differs from its pin" if len(facts.drifts) == 1 else "differ from their pins"
        reasons.append(f"{count(len(facts.drifts), 'tool')} {verb}: {named}")
    if terminated and not counted:
        reasons.append("the run was terminated")
    reasons += problems
    if strictness.strict and reasons:
        return Verdict(True, f"failed: {reasons[0]}", reasons)
    if facts.refused:
        return Verdict(False, f"passed, with {count(facts.refused, 'call')} refused", [])
    return Verdict(False, "passed: no call was refused" if facts.counts.total else "passed: no tool was called", [])


def exit_code(child: int, verdict: Verdict) -> int:
    """The agent's own failure is told first: a code that is not 0 says more than ours."""
    return child or (1 if verdict.failed else 0)


def grouped(refusals: list[Refusal]) -> list[tuple[Refusal, int]]:
    """Refusals that read alike, once each, in the order of the first, with how often."""
    found: dict[tuple[str, ...], tuple[Refusal, int]] = {}
    for refusal in refusals:
        names = (refusal.action, refusal.server_name, refusal.tool_name, refusal.rule_id or "")
        key = (*names, refusal.severity, refusal.summary, refusal.advice)
        first, times = found.get(key, (refusal, 0))
        found[key] = (first, times + 1)
    return list(found.values())


def report(facts: RunFacts, verdict: Verdict) -> list[str]:
    """The lines for the job's log. No foreign text begins a line: some CI systems obey what stands there."""
    counts = facts.counts
    lines = [
        f"sub: {count(counts.total, 'call')}: {counts.allowed} allowed, {counts.blocked} refused, "
        f"{counts.throttled} throttled, {counts.errors} with errors"
    ]
    alike = grouped(facts.refusals)
    for refusal, times in alike[:SHOWN]:
        rule = refusal.rule_id or refusal.reason_code
        tool = f"{refusal.server_name}/{refusal.tool_name}"
        often = "" if times == 1 else f", {times} times"
        lines.append(f"  {refusal.action}  {tool}  (call {refusal.call_id}{often})")
        lines.append(f"      rule {rule} ({refusal.severity}): {refusal.summary}")
        if refusal.advice not in refusal.summary:
            lines.append(f"      to do: {refusal.advice}")
    left = facts.refused - sum(times for _, times in alike[:SHOWN])
    if left > 0:
        lines.append(f"  and {left} more refused")
    for drift in list(facts.drifts.values())[:SHOWN_DRIFTS]:
        lines.append(f"  CHANGED  {drift.title}  differs from its pin: {', '.join(drift.fields) or 'its text'}")
        lines += (f"      {line}" for line in drift.diff[:SHOWN_LINES])
        lines.append("      to do: look at it, then: sub tools approve, and commit the lock")
    if facts.would_refuse:
        lines.append(f"  only observed: {facts.would_refuse} would have been refused")
    if verdict.failed:
        lines.append(f"sub: strict: the job fails: {'; '.join(verdict.reasons[:5])}")
    return [printable(line) for line in lines]
