"""Runs as they were recorded, out of a ledger, a bundle or a file of events, for judging them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from subluminal.contracts import events as ev
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.history import RecordedCall, RecordedRun
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.ledger.fold.reading import MAX_LINE_BYTES, BadEvent, read_event
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.store.encoding import unpack_text
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.trace.bundle import is_bundle, open_bundle

_NOTHING: frozenset[str] = frozenset()
# The policy that is in force where there is none: it has no rules.
_BUILTIN = "builtin-observe"


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
        raise UsageError(
            f"{source} is no ledger, no bundle and no file of events.",
            hint="Name a ledger.db, a bundle, a .jsonl file, or `ledger` for this machine's.",
        )


# -- from events --------------------------------------------------------------------------------------------------


class _Run:
    def __init__(self, event: Any) -> None:
        workload = None if event.workload is UNSET else event.workload
        principal = None if event.principal is UNSET else event.principal
        self.identity = Identity(event.run_id, event.agent_id, event.client, event.env, principal, workload)
        self.calls: dict[str, RecordedCall] = {}
        self.policies: dict[str, str] = {}  # hash -> id


def runs_of_lines(lines: Iterable[bytes], snapshots: dict[str, bytes]) -> Iterator[RecordedRun]:
    runs: dict[str, _Run] = {}
    for number, line in enumerate(lines, 1):
        try:
            event = read_event(line)
        except BadEvent as error:
            raise LedgerError(
                f"Line {number} is no event: {error}.", hint="`sub ingest` reports every bad line."
            ) from None
        run = runs.get(event.run_id)
        if run is None:
            run = runs[event.run_id] = _Run(event)
        _fold(run, event)
    for run in runs.values():
        calls = sorted(run.calls.values(), key=lambda call: (call.seq, call.at_ms))
        yield RecordedRun(run.identity, calls, _policy_tags(run.policies, snapshots))


def _fold(run: _Run, event: Any) -> None:
    if isinstance(event, ev.ToolCallStart):
        call = event.call
        preview = call.preview.args_preview
        run.calls[call.call_id] = RecordedCall(
            call.call_id,
            call.server_name,
            call.tool_name,
            call.args_hash,
            epoch_ms(event.ts),
            call.seq,
            bytes_in=call.bytes_in,
            args_preview=None if preview is UNSET else preview,
            tags=_NOTHING if call.tags is UNSET else frozenset(call.tags),
            ambiguous=None if call.ambiguous is UNSET else call.ambiguous,
            continues=None if call.continues is UNSET else call.continues,
        )
    elif isinstance(event, ev.ToolCallDecision):
        known = run.calls.get(event.call.call_id)
        run.policies[event.decision.policy.policy_hash] = event.decision.policy.policy_id
        if known is not None:
            known.action = event.decision.action
            known.rule_id = event.decision.rule_id
            known.reason_code = event.decision.explain.reason_code
    elif isinstance(event, ev.ToolCallEnd):
        known = run.calls.get(event.call.call_id)
        if known is not None:
            known.status, known.latency_ms, known.ended_ms = event.status, event.latency_ms, epoch_ms(event.ts)
    elif isinstance(event, ev.RunStart):
        for policy in (event.run.policy, *(event.run.policies or ())):
            run.policies[policy.policy_hash] = policy.policy_id


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

_CALLS = """
SELECT c.call_id, c.server_name, c.tool_name, c.args_hash, c.created_at, c.seq, c.bytes_in, p.args_preview,
       c.tags_json, c.ambiguous, c.continues, c.decision, c.rule_id, c.reason_code, c.status, c.ended_at, c.latency_ms
FROM tool_calls c LEFT JOIN previews p ON p.id = c.id WHERE c.run_id = ? ORDER BY c.seq, c.id
"""


def _ledger_runs(ledger: Ledger) -> Iterator[RecordedRun]:
    connection = ledger.connection
    versions = connection.execute("SELECT rules_hash, policy_id, rules_json FROM policy_versions").fetchall()
    snapshots = {row[0]: row[2].encode() for row in versions if row[2] is not None}
    # A run's row names one of its policies only, so that all that the ledger knows may have given tags.
    tags = _policy_tags({row[0]: row[1] for row in versions}, snapshots)
    runs = connection.execute(
        "SELECT run_id, agent_id, client, env, principal, workload_json FROM runs ORDER BY run_no"
    )
    for run in runs.fetchall():
        workload = None if run[5] is None else msgspec.json.decode(run[5])
        identity = Identity(run[0], run[1], run[2], run[3], run[4], workload)
        yield RecordedRun(identity, [_call(row) for row in connection.execute(_CALLS, (run[0],))], tags)


def _call(row: Any) -> RecordedCall:
    return RecordedCall(
        row[0],
        row[1],
        row[2],
        row[3],
        epoch_ms(row[4]),
        row[5] or 0,
        bytes_in=row[6] or 0,
        args_preview=unpack_text(row[7]),
        tags=_NOTHING if row[8] is None else frozenset(msgspec.json.decode(row[8])),
        ambiguous=row[9],
        continues=row[10],
        action=row[11],
        rule_id=row[12],
        reason_code=row[13],
        status=row[14],
        ended_ms=None if row[15] is None else epoch_ms(row[15]),
        latency_ms=row[16],
    )
