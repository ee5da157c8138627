"""What the rows of `tool_calls` and `runs` say is a fold over a run's events, in chain order. This is that fold.

The store applies it while it ingests; `sub verify` applies it again from nothing and compares, so a row edited by hand
shows. Hence the rule: a row depends only on its run's events and their order, never on a clock or on other runs.
For every fact of a call the first event to state it wins.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from subluminal.contracts import events as ev
from subluminal.contracts.moments import normal_ts
from subluminal.contracts.vocabulary import ALLOW, RUN_STATUS_SEVERITY, THROTTLE

if TYPE_CHECKING:
    from subluminal.ledger.fold.reading import AnyEvent

RUNNING = "RUNNING"


def json_text(value: Any) -> str | None:
    return None if value is UNSET or value is None else msgspec.json.encode(value).decode()


class CallRow(Struct):
    """One row of `tool_calls` without its id. The first group is written with the row, the second filled in later."""

    call_id: str
    run_id: str
    server_name: str
    tool_name: str
    args_hash: str
    created_at: str
    producer_no: int
    bytes_in: int | None = None
    seq: int | None = None
    transport: str | None = None
    args_stream_hash: str | None = None
    ambiguous: str | None = None
    continues: str | None = None
    tags_json: str | None = None
    start_event: int | None = None

    decision: str | None = None
    rule_id: str | None = None
    status: str | None = None
    latency_ms: int | None = None
    bytes_out: int | None = None
    preview_truncated: int = 0
    severity: str | None = None
    reason_code: str | None = None
    summary: str | None = None
    backoff_ms: int | None = None
    would_action: str | None = None
    would_rule_id: str | None = None
    would_reason_code: str | None = None
    error_class: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    ended_at: str | None = None
    overhead_us: int | None = None
    waited_ms: int | None = None
    result_stream_hash: str | None = None
    decision_event: int | None = None
    end_event: int | None = None


CALL_COLUMNS: tuple[str, ...] = CallRow.__struct_fields__
FILLED_COLUMNS = CALL_COLUMNS[CALL_COLUMNS.index("decision") :]
call_values = msgspec.structs.astuple
filled_values = attrgetter(*FILLED_COLUMNS)


class Call:
    """A call being folded: its row, its previews and hint, and what the store must write."""

    __slots__ = (
        "args_preview",
        "hint",
        "hint_at",
        "id",
        "redaction_flags",
        "restarted",
        "result_preview",
        "row",
        "stored",
    )

    def __init__(self, row: CallRow) -> None:
        self.row = row
        self.id = 0
        self.args_preview: str | None = None
        self.result_preview: str | None = None
        self.redaction_flags: list[str] = []
        self.hint: ev.Hint | None = None
        self.hint_at = ""
        self.stored = False
        self.restarted = False  # the start came after the row was stored: its fixed columns must be written again

    def start(self, event: ev.ToolCallStart, n: int) -> bool:
        row, call = self.row, event.call
        if row.start_event is not None:
            return False
        row.start_event = n
        row.args_hash = call.args_hash
        row.created_at = normal_ts(event.ts)
        row.bytes_in = call.bytes_in
        row.seq = call.seq
        row.transport = call.transport
        if call.args_stream_hash is not UNSET:
            row.args_stream_hash = call.args_stream_hash
        if call.ambiguous is not UNSET:
            row.ambiguous = call.ambiguous
        if call.continues is not UNSET:
            row.continues = call.continues
        if call.tags is not UNSET:
            row.tags_json = json_text(call.tags)
        preview = call.preview
        if preview.args_preview is not UNSET:
            self.args_preview = preview.args_preview
        self._previewed(preview)
        self.restarted = self.stored
        return True

    def decide(self, event: ev.ToolCallDecision, n: int) -> bool:
        row, decision = self.row, event.decision
        if row.decision_event is not None:
            return False
        row.decision_event = n
        row.decision = decision.action
        row.rule_id = decision.rule_id
        row.severity = decision.severity
        row.reason_code = decision.explain.reason_code
        row.summary = decision.explain.summary
        if decision.backoff_ms is not UNSET:
            row.backoff_ms = decision.backoff_ms
        if decision.would is not UNSET:
            row.would_action = decision.would.action
            row.would_rule_id = decision.would.rule_id
            row.would_reason_code = decision.would.explain.reason_code
        if decision.hint is not UNSET:
            self.hinted(decision.hint, event.ts)
        return True

    def end(self, event: ev.ToolCallEnd, n: int) -> bool:
        row = self.row
        if row.end_event is not None:
            return False
        row.end_event = n
        row.status = event.status
        row.latency_ms = event.latency_ms
        row.bytes_out = event.bytes_out
        row.ended_at = normal_ts(event.ts)
        if event.overhead_us is not UNSET:
            row.overhead_us = event.overhead_us
        if event.waited_ms is not UNSET:
            row.waited_ms = event.waited_ms
        if event.result_stream_hash is not UNSET:
            row.result_stream_hash = event.result_stream_hash
        if event.error is not UNSET:
            error = event.error
            row.error_class = error.class_
            if error.message is not UNSET:
                row.error_message = error.message
            if error.code is not UNSET:
                row.error_code = str(error.code)
        preview = event.preview
        if preview.result_preview is not UNSET:
            self.result_preview = preview.result_preview
        self._previewed(preview)
        return True

    def hinted(self, hint: ev.Hint, ts: str) -> None:
        if not self.hint_at:
            self.hint, self.hint_at = hint, normal_ts(ts)

    def _previewed(self, preview: ev.ArgsPreview | ev.ResultPreview) -> None:
        if preview.truncated:
            self.row.preview_truncated = 1
        if preview.redaction_flags is not UNSET:
            self.redaction_flags = sorted({*self.redaction_flags, *preview.redaction_flags})


def call_from_start(event: ev.ToolCallStart, producer_no: int) -> Call:
    call = event.call
    return Call(
        CallRow(call.call_id, event.run_id, call.server_name, call.tool_name, call.args_hash, event.ts, producer_no)
    )


def call_from_reference(event: ev.ToolCallDecision | ev.ToolCallEnd, producer_no: int) -> Call:
    """The start is missing or still to come: what is known, and nothing invented."""
    call = event.call
    return Call(
        CallRow(
            call.call_id,
            event.run_id,
            call.server_name,
            call.tool_name,
            call.args_hash,
            normal_ts(event.ts),
            producer_no,
        )
    )


class Producer:
    """One shim's part in a run."""

    __slots__ = (
        "ended_at",
        "host_id",
        "journal",
        "last_seq",
        "no",
        "proc_id",
        "run_id",
        "shim_id",
        "started_at",
        "status",
    )

    def __init__(self, no: int, shim_id: str, run_id: str, started_at: str, journal: str | None = None) -> None:
        self.no = no
        self.shim_id = shim_id
        self.run_id = run_id
        self.started_at = started_at
        self.journal = journal
        self.last_seq = 0
        self.ended_at: str | None = None
        self.status: str | None = None
        self.host_id = ""
        self.proc_id = ""


class RunRow(Struct):
    """One row of `runs`."""

    run_no: int
    run_id: str
    agent_id: str
    client: str
    env: str
    started_at: str
    ended_at: str | None = None
    status: str = RUNNING
    metadata_json: str | None = None
    principal: str | None = None
    workload_json: str | None = None
    mode: str | None = None
    policy_id: str | None = None
    policy_version: str | None = None
    policy_hash: str | None = None
    calls_total: int = 0
    calls_allowed: int = 0
    calls_blocked: int = 0
    calls_throttled: int = 0
    errors_total: int = 0
    event_count: int = 0
    chain_head: bytes = b"\0" * 32


RUN_COLUMNS: tuple[str, ...] = RunRow.__struct_fields__


class Run:
    """A run being folded: its row and its producers (started = first, ended = last, status = worst, design §7)."""

    __slots__ = ("identified", "producers", "row", "stored")

    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.identified = False  # there is nothing left to learn about who acts
        self.producers: dict[str, Producer] = {}
        self.stored = False

    def identify(self, event: AnyEvent) -> None:
        """The first event that knows more than "unknown" names the run's identity."""
        row = self.row
        if row.agent_id == "unknown":
            row.agent_id = event.agent_id
        if row.client == "unknown":
            row.client = event.client
        if row.env == "unknown":
            row.env = event.env
        if row.principal is None and event.principal is not UNSET:
            row.principal = event.principal
        if row.workload_json is None and event.workload is not UNSET:
            row.workload_json = json_text(event.workload)
        known = "unknown" not in (row.agent_id, row.client, row.env)
        self.identified = known and row.principal is not None and row.workload_json is not None

    def start(self, event: ev.RunStart, producer: Producer) -> None:
        row, run = self.row, event.run
        producer.started_at = normal_ts(run.started_at)
        row.started_at = min(row.started_at, producer.started_at)
        if row.mode is None:
            row.mode = run.mode
            row.policy_id = run.policy.policy_id
            row.policy_version = run.policy.policy_version
            row.policy_hash = run.policy.policy_hash
        if row.metadata_json is None:
            row.metadata_json = json_text(run.meta)

    def end(self, event: ev.RunEnd, producer: Producer) -> None:
        if producer.ended_at is None:
            producer.ended_at = normal_ts(event.run.ended_at)
            producer.status = event.run.status

    def merge(self) -> None:
        """Status and end, once every producer that took part has ended; RUNNING before."""
        row = self.row
        ends = [p.ended_at for p in self.producers.values() if p.ended_at is not None]
        if len(ends) < len(self.producers):
            row.ended_at, row.status = None, RUNNING
            return
        statuses = {p.status for p in self.producers.values()}
        row.ended_at = max(ends)
        row.status = next(status for status in RUN_STATUS_SEVERITY if status in statuses)

    def count_decision(self, action: str) -> None:
        if action == ALLOW:
            self.row.calls_allowed += 1
        elif action == THROTTLE:
            self.row.calls_throttled += 1
        else:
            self.row.calls_blocked += 1

    def count_end(self, call: CallRow) -> None:
        """A call the policy refused is counted as refused, not as an error of the tool."""
        if call.status != "OK" and (call.decision is None or call.decision == ALLOW):
            self.row.errors_total += 1


def new_run(run_no: int, event: AnyEvent) -> Run:
    return Run(RunRow(run_no, event.run_id, event.agent_id, event.client, event.env, normal_ts(event.ts)))
