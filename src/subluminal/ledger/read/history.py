"""Runs as they were recorded, out of a ledger, a bundle or a file of events, for judging them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from subluminal.contracts import events as ev
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.ledger.fold.call import CALL_COLUMNS, Call, begin
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.fold.reading import MAX_LINE_BYTES, AnyEvent, BadEvent, read_event
from subluminal.ledger.fold.run import Run, TypedCall
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.standings import Standings
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.trace.bundle import is_bundle, open_bundle

_IDENTITY = ("run_id", "agent_id", "client", "env", "principal", "workload_json")
# The policy that is in force where there is none: it has no rules.
_BUILTIN = "builtin-observe"
_OF_CALLS = (ev.ToolCallStart, ev.ToolCallDecision, ev.ToolCallEnd)


def recorded_runs(source: str) -> Iterator[RecordedRun]:
    """`ledger` is this machine's; else the path of a ledger.db, a bundle or a JSONL file."""
    if source == "ledger" or source.endswith(".db"):
        with open_ledger(None if source == "ledger" else source) as ledger:
            yield from _ledger_runs(ledger)
    elif is_bundle(source):
        with open_bundle(source) as bundle:
            yield from runs_of_lines(bundle.lines(), dict(bundle.policies()))
    elif os.path.isfile(source):
        with open(source, "rb") as file:
            yield from runs_of_lines(iter(lambda: file.readline(MAX_LINE_BYTES + 2).removesuffix(b"\n"), b""), {})
    else:
        hint = "Name a ledger.db, a bundle, a .jsonl file, or `ledger` for this machine's."
        raise UsageError(f"{source} is no ledger, no bundle and no file of events.", hint=hint)


# -- from events --------------------------------------------------------------------------------------------------


class _Run:
    def __init__(self, event: AnyEvent) -> None:
        self.run = Run(event.run_id, event.ts)
        self.calls: dict[tuple[str, str], TypedCall] = {}  # by shim_id and call_id
        self.policies: dict[str, str] = {}  # hash -> id

    def take(self, event: AnyEvent) -> None:
        self.run.identify(event)
        if isinstance(event, _OF_CALLS) and is_foreign(event.call.call_id, event.source.shim_id):
            return
        if isinstance(event, ev.ToolCallStart):
            self._call(event).start(event)
        elif isinstance(event, ev.ToolCallDecision):
            self._call(event).decide(event)
            self.policies[event.decision.policy.policy_hash] = event.decision.policy.policy_id
        elif isinstance(event, ev.ToolCallEnd):
            self._call(event).end(event)
        elif isinstance(event, ev.RunStart):
            for policy in (event.run.policy, *(event.run.policies or ())):
                self.policies[policy.policy_hash] = policy.policy_id

    def _call(self, event: ev.ToolCallStart | ev.ToolCallDecision | ev.ToolCallEnd) -> TypedCall:
        key = event.source.shim_id, event.call.call_id
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = begin(event, TypedCall)
        return call


def runs_of_lines(lines: Iterable[bytes], snapshots: dict[str, bytes]) -> Iterator[RecordedRun]:
    runs: dict[str, _Run] = {}
    standings = Standings()
    for number, line in enumerate(lines, 1):
        try:
            event = read_event(line)
        except BadEvent as error:
            hint = "`sub ingest` reports every bad line."
            raise LedgerError(f"Line {number} is no event: {error}.", hint=hint) from None
        run = runs.get(event.run_id)
        if run is None:
            run = runs[event.run_id] = _Run(event)
        run.take(event)
        if isinstance(event, ev.ToolsSeen):
            standings.take(event)
    for run in runs.values():
        calls = sorted(map(_recorded, run.calls.values()), key=lambda call: (call.seq, call.at_ms))
        standings.tell(run.run.run_id, calls)
        yield RecordedRun(_identity(run.run), calls, _policy_tags(run.policies, snapshots))


def _policy_tags(policies: dict[str, str], snapshots: dict[str, bytes]) -> frozenset[str] | None:
    tags: set[str] = set()
    for policy_hash, policy_id in policies.items():
        if policy_id == _BUILTIN:
            continue
        text = snapshots.get(policy_hash)
        if text is None or not is_snapshot(text, policy_hash):
            return None
        for rule in msgspec.json.decode(text).get("rules") or ():
            effect = rule.get("effect") or {}
            tags.update((effect.get("tag") or effect).get("add_risk_class") or ())
    return frozenset(tags)


# -- from a ledger ------------------------------------------------------------------------------------------------

_CALLS = f"""
SELECT {", ".join("c." + name for name in CALL_COLUMNS)}, p.args_preview
FROM tool_calls c LEFT JOIN previews p ON p.id = c.id WHERE c.run_id = ? ORDER BY c.seq, c.id
"""
_RUNS = f"SELECT {', '.join(_IDENTITY)} FROM runs"


def _ledger_runs(ledger: Ledger) -> Iterator[RecordedRun]:
    tags, standings = _known_tags(ledger), Standings.of_ledger(ledger.connection)
    for row in ledger.connection.execute(f"{_RUNS} ORDER BY run_no").fetchall():
        yield _ledger_run(ledger, row, tags, standings)


def recorded_run(ledger: Ledger, run_id: str) -> RecordedRun:
    """One run that the ledger has."""
    row = ledger.connection.execute(f"{_RUNS} WHERE run_id = ?", (run_id,)).fetchone()
    return _ledger_run(ledger, row, _known_tags(ledger), Standings.of_ledger(ledger.connection))


def _known_tags(ledger: Ledger) -> frozenset[str] | None:
    """A run's row names one of its policies only, so that all that the ledger knows may have given tags."""
    versions = ledger.connection.execute("SELECT rules_hash, policy_id, rules_json FROM policy_versions").fetchall()
    snapshots = {row[0]: row[2].encode() for row in versions if row[2] is not None}
    return _policy_tags({row[0]: row[1] for row in versions}, snapshots)


def _ledger_run(ledger: Ledger, row: Any, tags: frozenset[str] | None, standings: Standings) -> RecordedRun:
    run = Run(row["run_id"], "")
    for name in _IDENTITY:
        setattr(run, name, row[name])
    calls = [_recorded(_stored(call)) for call in ledger.connection.execute(_CALLS, (run.run_id,))]
    standings.tell(run.run_id, calls)
    return RecordedRun(_identity(run), calls, tags)


def _stored(row: Any) -> Call:
    *columns, args_preview = row
    call = Call(*columns[:6])
    call.fill(columns)
    call.args_preview = unpack_text(args_preview)
    call.tags = None if call.tags_json is None else msgspec.json.decode(call.tags_json)
    return call


# -- from the fold ------------------------------------------------------------------------------------------------


def _identity(run: Run) -> Identity:
    workload = None if run.workload_json is None else msgspec.json.decode(run.workload_json)
    return Identity(run.run_id, run.agent_id, run.client, run.env, run.principal, workload)


def _recorded(call: Call) -> RecordedCall:
    return RecordedCall(
        call.call_id,
        call.server_name,
        call.tool_name,
        call.args_hash,
        epoch_ms(call.created_at),
        call.seq or 0,
        bytes_in=call.bytes_in or 0,
        args_preview=call.args_preview,
        tags=frozenset(call.tags or ()),
        ambiguous=call.ambiguous,
        continues=call.continues,
        observed=bool(call.observed),
        transport=call.transport or "unknown",
        tool_use_id=call.tool_use_id,
        action=call.decision,
        rule_id=call.rule_id,
        reason_code=call.reason_code,
        status=call.status,
        ended_ms=None if call.ended_at is None else epoch_ms(call.ended_at),
        latency_ms=call.latency_ms,
    )
