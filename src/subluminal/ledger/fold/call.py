"""What a call became: the one fold over its events. Pure, and light enough for `sub tail`.

    call = begin(event, Call)      the first event that is heard of it, whichever it is
    call.start(event)              what `tool_call_start` tells
    call.decide(event)             `tool_call_decision`: the LATER decision stands, for policy is asked on every leg
    call.hinted(hint, ts)          `hint_issued`: fills in where the decision brought no hint
    call.end(event)                `tool_call_end`: the first end stands

Each returns whether it changed anything. What arrives again changes nothing, and neither does a decision that comes
after the end, unless none was known. "Later" goes by the producer's own numbers where it gives them, else by arrival.

An event is anything that answers to the names of `contracts.events`: the types themselves, or a dict in `Plain`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from subluminal.contracts.moments import normal_ts
from subluminal.contracts.tool_use import tool_use_id

STARTED, DECIDED, ENDED = "started", "decided", "ended"


class Plain(dict[str, Any]):
    """A JSON object read by the names of the typed events. What is absent is None."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        value = self.get("class" if name == "class_" else name)
        return Plain(value) if type(value) is dict else value


class Call:
    """The columns of `tool_calls`, in two groups: known with the start, and filled in later. Then what stands beside.

    Defaults are the class's: most columns of most calls are never set, and the store writes those that were.
    """

    call_id: str
    run_id: str
    server_name: str
    tool_name: str
    args_hash: str
    created_at: str
    producer_no: int = 0
    bytes_in: int | None = None
    seq: int | None = None
    transport: str | None = None
    args_stream_hash: str | None = None
    ambiguous: str | None = None
    continues: str | None = None
    observed: int | None = None
    tool_use_id: str | None = None
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

    shim_id: str = ""
    absent: Any = None  # what the events at hand say where nothing is told
    decision_seq: int = -1
    tags: list[str] | None = None
    args_preview: str | None = None
    result_preview: str | None = None
    redaction_flags: list[str] | None = None
    hint: Any = None
    hint_at: str | None = None

    def __init__(
        self, call_id: str, run_id: str, server_name: str, tool_name: str, args_hash: str, created_at: str
    ) -> None:
        self.call_id = call_id
        self.run_id = run_id
        self.server_name = server_name
        self.tool_name = tool_name
        self.args_hash = args_hash
        self.created_at = created_at

    def fill(self, columns: Iterable[Any]) -> None:
        """From a row of the ledger, by CALL_COLUMNS."""
        for name, value in zip(CALL_COLUMNS, columns, strict=True):
            if value is not None:
                setattr(self, name, value)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run_id, self.shim_id, self.call_id

    @property
    def state(self) -> str:
        return ENDED if self.end_event is not None else DECIDED if self.decision_event is not None else STARTED

    @property
    def is_complete(self) -> bool:
        """Nothing that is still to come can change it."""
        return self.end_event is not None and self.decision_event is not None and self.start_event is not None

    def start(self, event: Any, n: int = 0) -> bool:
        if self.start_event is not None:
            return False
        call, absent = event.call, self.absent
        self.start_event = n
        self.args_hash = call.args_hash
        self.created_at = normal_ts(event.ts)
        self.bytes_in = call.bytes_in
        self.seq = call.seq
        self.transport = call.transport
        if call.args_stream_hash is not absent:
            self.args_stream_hash = call.args_stream_hash
        if call.ambiguous is not absent:
            self.ambiguous = call.ambiguous
        if call.continues is not absent:
            self.continues = call.continues
        if call.observed is not absent:
            self.observed = int(call.observed)
        if call.tags is not absent:
            self.tags = call.tags
        if call.call_context is not absent:
            self.tool_use_id = tool_use_id(call.call_context)
        preview = call.preview
        if preview.args_preview is not absent:
            self.args_preview = preview.args_preview
        self._previewed(preview)
        return True

    def decide(self, event: Any, n: int = 0) -> bool:
        decision, absent, seq = event.decision, self.absent, event.source.seq
        if self.decision_event is not None:
            if self.end_event is not None or (seq is not absent and seq <= self.decision_seq):
                return False
            self.rule_id = self.backoff_ms = self.would_action = self.would_rule_id = self.would_reason_code = None
        if seq is not absent:
            self.decision_seq = seq
        self.decision_event = n
        self.decision = decision.action
        if decision.rule_id is not None:
            self.rule_id = decision.rule_id
        self.severity = decision.severity
        self.reason_code = decision.explain.reason_code
        self.summary = decision.explain.summary
        if decision.backoff_ms is not absent:
            self.backoff_ms = decision.backoff_ms
        would = decision.would
        if would is not absent:
            self.would_action = would.action
            self.would_rule_id = would.rule_id
            self.would_reason_code = would.explain.reason_code
        if decision.hint is not absent:
            self.hint, self.hint_at = decision.hint, normal_ts(event.ts)
        return True

    def hinted(self, hint: Any, ts: str) -> bool:
        if self.hint_at is not None:
            return False
        self.hint, self.hint_at = hint, normal_ts(ts)
        return True

    def end(self, event: Any, n: int = 0) -> bool:
        if self.end_event is not None:
            return False
        absent = self.absent
        self.end_event = n
        self.status = event.status
        self.latency_ms = event.latency_ms
        self.bytes_out = event.bytes_out
        self.ended_at = normal_ts(event.ts)
        if event.overhead_us is not absent:
            self.overhead_us = event.overhead_us
        if event.waited_ms is not absent:
            self.waited_ms = event.waited_ms
        if event.result_stream_hash is not absent:
            self.result_stream_hash = event.result_stream_hash
        error = event.error
        if error is not absent:
            self.error_class = error.class_
            if error.message is not absent:
                self.error_message = error.message
            if error.code is not absent:
                self.error_code = str(error.code)
        preview = event.preview
        if preview.result_preview is not absent:
            self.result_preview = preview.result_preview
        self._previewed(preview)
        return True

    def _previewed(self, preview: Any) -> None:
        if preview.truncated:
            self.preview_truncated = 1
        flags = preview.redaction_flags
        if flags is not self.absent:
            self.redaction_flags = sorted({*(self.redaction_flags or ()), *flags})

    def hear(self, event: Any) -> bool:
        """Any event, in `Plain`, that speaks of this call."""
        kind = event["type"]
        if kind == "tool_call_start":
            return self.start(event)
        if kind == "tool_call_decision":
            return self.decide(event)
        if kind == "tool_call_end":
            return self.end(event)
        return kind == "hint_issued" and self.hinted(event.hint, event.ts)


C = TypeVar("C", bound=Call)


def begin(event: Any, kind: type[C]) -> C:
    """The call as far as its first event names it."""
    call = event.call
    made = kind(call.call_id, event.run_id, call.server_name, call.tool_name, call.args_hash, normal_ts(event.ts))
    made.shim_id = event.source.shim_id
    return made


_NAMES = tuple(Call.__annotations__)
CALL_COLUMNS = _NAMES[: _NAMES.index("shim_id")]
FILLED_COLUMNS = CALL_COLUMNS[CALL_COLUMNS.index("decision") :]
