"""`sub promote --persist`: everything that is known of the change is shown before it asks."""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from subluminal.cli.control.for_run import described, find, say_if_changed, show
from subluminal.cli.policy.source import show_findings
from subluminal.cli.render.output import note, paint, print_json
from subluminal.cli.render.progress import with_progress
from subluminal.contracts.errors import UsageError
from subluminal.contracts.history import RecordedRun
from subluminal.control.promote.evidence import Evidence, gathered
from subluminal.control.promote.persisting import Proposal, propose, write
from subluminal.control.promote.policies import Decided, deciding_policy, refuse_organisation
from subluminal.control.promote.record import note_down
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.host.home import bin_dir
from subluminal.ledger.read.history import recorded_runs
from subluminal.ledger.read.ledger import open_ledger
from subluminal.policy.closed import keep_markers
from subluminal.policy.lint.findings import InvalidPolicy
from subluminal.policy.replay.backtest import Groups
from subluminal.policy.sources import ORGANISATION_POLICY
from subluminal.reports.printable import count, printable

_SEVERITIES = {"critical": "red", "warn": "yellow", "info": "green"}


def for_good(
    call: str,
    run: str | None,
    shim: str | None,
    wish: Wish,
    file: str | None,
    add_test: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    recorded, stored, ended_at = find(call, run, shim, wish)
    path = _file(recorded, stored, wish, file)
    gc.disable()  # as for `sub policy check`: many small objects, no cycles, and the process ends afterwards
    try:
        proposal = propose(recorded, wish, path, add_test)
        evidence = gathered(path, proposal.before, proposal.after, proposal.made.change, _past(), proposal.old)
    except InvalidPolicy as invalid:
        show_findings(invalid.findings, sys.stderr)
        return invalid.exit_code
    if not as_json:
        _show(recorded, proposal, evidence)
    agreed = dry_run or yes or _asked(evidence)
    if agreed and not dry_run:
        write(proposal)
        if os.path.isdir(bin_dir()):  # hooks may be in use, and their judge has not read it yet
            keep_markers(os.environ, os.getcwd())
        policy_hash = evidence.snapshot["policy_hash"]
        change = proposal.made.change
        note_down(recorded, change, ended_at, scope="persist", file=os.path.abspath(path), policy_hash=policy_hash)
    if as_json:
        told = {**described(recorded, proposal.made), "scope": "persist", "dry_run": dry_run}
        print_json({**told, "file": path, "text_diff": _text_diff(proposal), **evidence.as_dict()})
    elif dry_run:
        note("Nothing was changed (--dry-run).")
    elif agreed:
        note(f"Written: {', '.join(map(printable, proposal.files))}. Runs that are on obey within a second.")
    else:
        note("Nothing was changed.")
    return 0 if agreed else 1


def _file(recorded: Recorded, stored: dict[str, Any] | None, wish: Wish, file: str | None) -> str:
    """The file of the policy that decided, or the one that was named."""
    if file is None:
        decided = deciding_policy(recorded, stored)
        refuse_organisation(decided, wish.deny, persist=True)
        if decided.path is None:
            policy = recorded.known["policy"]["policy_id"]
            raise CannotPromote(
                f"Where policy {policy} lies is not known here: only the ledger has it.", hint="Name it: --persist FILE"
            )
        say_if_changed(decided)
        return decided.path
    if os.path.realpath(file) == os.path.realpath(ORGANISATION_POLICY):
        refuse_organisation(Decided("organisation", stored or {"policy_id": "?"}, file), wish.deny, persist=True)
    return file


def _past() -> Iterator[RecordedRun]:
    with open_ledger() as ledger:
        total = int(ledger.connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    return with_progress(recorded_runs("ledger"), "runs", total)


def _asked(evidence: Evidence) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nobody can be asked here.", hint="When you have looked at it with --dry-run: --yes")
    return click.confirm("Write it?", default=False)


def _text_diff(proposal: Proposal) -> str:
    lines: list[str] = []
    for path, (before, after) in proposal.files.items():
        old = [] if before is None else before.decode("utf-8", "replace").splitlines(keepends=True)
        new = after.decode("utf-8", "replace").splitlines(keepends=True)
        lines += difflib.unified_diff(old, new, path, path)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _show(recorded: Recorded, proposal: Proposal, evidence: Evidence) -> None:
    show(recorded, proposal.made)
    print()
    for line in _text_diff(proposal).splitlines():
        colour = {"+": "green", "-": "red"}.get(line[:1]) if not line.startswith(("+++", "---")) else None
        print(paint(printable(line, keep="\t"), colour))
    print()
    for difference in evidence.differences:
        severity = paint(f"{difference.severity:<8}", _SEVERITIES[difference.severity])
        where = printable(difference.rule_id if difference.rule_id is not None else "policy")
        print(f"diff     {severity}  {where}: {printable(difference.summary)} ({difference.direction})")
    if evidence.findings:
        show_findings(evidence.findings, sys.stdout)
    else:
        print("lint     nothing new")
    _show_tests(evidence)
    _show_past(evidence)


def _show_tests(evidence: Evidence) -> None:
    tests = sum(len(file.results) for file in evidence.tests)
    failed = evidence.failed
    if not tests and not evidence.broken:
        print("tests    the policy has none")
        return
    print(f"tests    {count(tests, 'test')}: " + (paint(f"{len(failed)} fail", "red") if failed else "all pass"))
    for name in failed:
        print(f"         {printable(name)}")
    for name in evidence.broken:
        print(f"         {printable(name)} cannot be read: `sub policy test` says why")


def _show_past(evidence: Evidence) -> None:
    past = evidence.past
    print(f"past     {count(past.calls, 'call')} of {count(past.runs, 'run')} judged again")
    for title, groups, colour in (
        ("would have been let through", past.newly_allowed, "yellow"),
        ("would have been refused", past.newly_refused, "red"),
    ):
        if groups.count():
            print(paint(f"         {count(groups.count(), 'call')} {title}", colour))
            _show_examples(groups)
    if past.unknown:
        print(f"         of {count(past.unknown, 'call')} the record does not hold enough to tell")
    if not past.newly_allowed.count() and not past.newly_refused.count():
        print("         none of them would have been decided otherwise")


def _show_examples(groups: Groups) -> None:
    for group in groups.ordered():
        for example in group.examples:
            tool = f"{example['server_name']}/{example['tool_name']}"
            print(printable(f"           {tool}  call {example['call_id']} of {example['run_id']}"))
