"""The gate: a tool call in, a decision and its events out. The only entry to the core for every adapter.

An adapter judges, then forwards or refuses, then announces and settles:

    record = gate.judge(call, wall_ms, mono_ms)       decide; nothing is written yet
    gate.announce(record, wall_ms)                    start and decision events, into `outbox`
    gate.settle(record, "OK", ...)                    the end event, into `outbox`
    sink.write(gate.take())                           hand over what has gathered

Announcing is apart from judging so that an allowed call can be on its way while its events are written. The gate does
no I/O: time is passed in and events leave as bytes.
"""

from __future__ import annotations

import msgspec

from subluminal.contracts.canonical import read_args
from subluminal.contracts.decision import Decision, refusal_message, subluminal_data
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import to_json
from subluminal.contracts.vocabulary import (
    ALLOW,
    BLOCK,
    ERROR_CODES,
    EVALUATION_ERROR,
    MAX_PREVIEW_BYTES,
    MESSAGE_TOO_LARGE,
    POLICY_INVALID,
    THROTTLE,
    TRUNCATED,
)
from subluminal.core.emit.emitter import Emitter
from subluminal.core.redact.preview import error_line, preview
from subluminal.core.redact.redactor import INJECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import PolicyRef
    from subluminal.contracts.identity import Identity, Source
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.stack import Stack
    from subluminal.core.engine.state import State
    from subluminal.core.redact.redactor import Redactor

# Faults of the arguments that let two parsers read different values. Any other fault (too deep, a number too long)
# leaves one reading that we merely did not follow to its end: policy decides by `decision_on_error`.
_AMBIGUOUS_KINDS = frozenset(
    ("duplicate_key", "invalid_utf8", "lone_surrogate", "invalid_json", "trailing_bytes", "not_finite")
)
_TRUNCATED_PREVIEW = '{"truncated":true}'
_quote = msgspec.json.Encoder().encode  # as `jsontext.quote`, twice to six times as fast
_NO_PREVIEW = '{"truncated":false}'
# Names remembered as checked for secrets: a server has tens of tools; an agent may invent any number.
MAX_NAMES = 512
MAX_NAME_CHARS = 256


class CallRecord:
    """One call between judging and settling."""

    __slots__ = (
        "announced",
        "args_hash",
        "call",
        "call_id",
        "canonical",
        "decision",
        "ref",
        "seq",
        "settled",
        "started_mono_ms",
        "tags",
        "trips",
        "value",
        "waited_ms",
        "watch",
    )

    call: ToolCall
    call_id: str
    seq: int
    value: Any  # the arguments and their canonical form, until the call is announced; None if they were not read
    canonical: bytes | None
    args_hash: str
    decision: Decision
    tags: list[str]
    trips: list[dict[str, Any]]
    watch: Any
    ref: str
    started_mono_ms: int
    waited_ms: int  # between the legs of a multi-round-trip call
    announced: bool
    settled: bool

    def read_args(self) -> Any:
        return self.value

    def read_args_hash(self) -> str:
        if not self.args_hash and self.canonical is not None:
            self.args_hash = sha256_hex(self.canonical)
        return self.args_hash


class Gate:
    """Judges the calls of one producer (one shim, one in-process server) and writes its events."""

    def __init__(
        self,
        identity: Identity,
        source: Source,
        stack: Stack,
        state: State,
        redactor: Redactor,
        max_preview_bytes: int = MAX_PREVIEW_BYTES,
    ) -> None:
        self.identity = identity
        self.source = source
        self.stack = stack
        self.state = state
        self.redactor = redactor
        self.max_preview_bytes = max_preview_bytes
        self.emitter = Emitter(identity, source)
        self.outbox: list[str] = []
        self.calls_total = 0
        self.calls_allowed = 0
        self.calls_blocked = 0
        self.calls_throttled = 0
        self.errors_total = 0
        self._call_prefix = source.shim_id + "-"
        self._names: dict[str, str] = {}  # a tool's name -> as it is shown
        self._refuse_all: str | None = None
        self._opened_mono_ms: int | None = None
        self._closed = False

    # -- the run ----------------------------------------------------------------------------------------------

    def open(self, wall_ms: int, mono_ms: int, meta: dict[str, Any] | None = None) -> None:
        self._opened_mono_ms = mono_ms
        masked = self._masked(meta) if meta else None
        self.outbox.append(self.emitter.run_start(wall_ms, self.stack.mode, self.stack.policies, masked))

    def close(self, status: str, wall_ms: int, mono_ms: int) -> None:
        """`run_end`, once. A run that a decision terminated has ended so, whatever came after."""
        if self._closed or self._opened_mono_ms is None:
            return
        self._closed = True
        if self.state.terminated is not None:
            status = "TERMINATED"
        summary = {
            "calls_total": self.calls_total,
            "calls_allowed": self.calls_allowed,
            "calls_blocked": self.calls_blocked,
            "calls_throttled": self.calls_throttled,
            "errors_total": self.errors_total,
            "duration_ms": max(0, mono_ms - self._opened_mono_ms),
        }
        self.outbox.append(self.emitter.run_end(wall_ms, status, summary))

    def take(self) -> bytes:
        """The events that have gathered since the last time, as JSONL."""
        text = "".join(self.outbox)
        self.outbox.clear()
        try:
            return text.encode()
        except UnicodeEncodeError:  # a lone surrogate in an ambiguous name: the line must still be written
            return text.encode("utf-8", "replace")

    # -- policy -----------------------------------------------------------------------------------------------

    def use_policies(self, stack: Stack, origin: str, wall_ms: int) -> None:
        self.stack = stack
        self._refuse_all = None
        self.policy_note(stack.policies[0], True, origin, None, wall_ms)

    def refuse_all(self, reason: str) -> None:
        """No policy could be loaded: that is never "no policy". Every call is refused until one loads."""
        self._refuse_all = reason

    def policy_note(self, policy: PolicyRef, ok: bool, origin: str, error: str | None, wall_ms: int) -> None:
        self.outbox.append(self.emitter.policy_loaded(wall_ms, policy, ok, origin, error))

    @property
    def may_refuse(self) -> bool:
        """Whether any call could be refused now: if not, large messages need not wait for judgement."""
        return self.stack.mode != "observe" or self._refuse_all is not None or self.state.terminated is not None

    def secret_note(self, injection: dict[str, Any], wall_ms: int) -> None:
        """`injection`: inject_as, secret_ref, source, success. Metadata only (§4.1)."""
        self.outbox.append(self.emitter.secret_injection(wall_ms, **injection))

    def health_note(self, health: dict[str, int], wall_ms: int) -> None:
        self.outbox.append(self.emitter.shim_health(wall_ms, health))

    # -- a call -----------------------------------------------------------------------------------------------

    def judge(self, call: ToolCall, wall_ms: int, mono_ms: int) -> CallRecord:
        record = CallRecord()
        record.call = call
        record.announced = False
        record.settled = False
        record.started_mono_ms = mono_ms
        record.waited_ms = 0
        record.args_hash = ""
        self.calls_total += 1
        record.call_id = self._call_prefix + str(self.calls_total)
        self._decide(record, call, wall_ms, mono_ms)
        self._count(record.decision.action)
        # From here on the call is only written down.
        shown = self._names.get(call.tool_name) or self._name_to_show(call.tool_name)
        if shown is not call.tool_name:
            call.tool_name = shown
        if call.call_context:
            call.call_context = self._masked(call.call_context)
        return record

    def judge_again(self, record: CallRecord, call: ToolCall, wall_ms: int, mono_ms: int) -> None:
        """A further leg of the same call: policy is asked again, and only the new decision is announced."""
        call.continues = record.call_id
        seq = record.seq
        self._decide(record, call, wall_ms, mono_ms)
        record.seq = seq
        if record.decision.action != ALLOW:
            self.calls_allowed -= 1
            self._count(record.decision.action)
        if record.announced:
            self._announce_decision(record, wall_ms)

    def _decide(self, record: CallRecord, call: ToolCall, wall_ms: int, mono_ms: int) -> None:
        record.value = record.canonical = None
        if call.args_raw is not None:
            try:
                record.value, record.canonical = read_args(call.args_raw)
            except CanonicalError as fault:
                if fault.kind in _AMBIGUOUS_KINDS and call.ambiguous is None:
                    call.ambiguous = "arguments: " + fault.kind
        if self._refuse_all is not None:
            self._refuse(record, POLICY_INVALID, self._refuse_all)
            return
        if call.too_large is not None and self.state.terminated is None:
            summary = f"{call.tool_name} on {call.server_name} was refused: its message is {call.too_large}."
            self._refuse(record, MESSAGE_TOO_LARGE, f"{summary} Send less at once, or a reference instead of content.")
            return
        try:
            verdict = self.stack.judge(call, record.read_args, record.read_args_hash, self.state, wall_ms, mono_ms)
        except Exception as fault:  # a fault of ours must neither take the tool down nor open a door
            self._decide_after_fault(record, fault)
            return
        record.seq = verdict.seq
        record.decision = verdict.decision
        record.tags = verdict.tags
        record.trips = verdict.trips
        record.watch = verdict.watch

    def _refuse(self, record: CallRecord, reason_code: str, summary: str) -> None:
        """Refused before any rule is asked."""
        record.seq = self.state.next_seq()
        record.decision = Decision(BLOCK, None, "critical", reason_code, summary, policy=self.stack.policies[0])
        record.tags, record.trips, record.watch = [], [], None

    def _decide_after_fault(self, record: CallRecord, fault: Exception) -> None:
        record.seq = self.state.next_seq()
        record.tags, record.trips, record.watch = [], [], None
        action = ALLOW if self.stack.mode == "observe" else BLOCK
        summary = f"The policy could not be evaluated ({type(fault).__name__}). Tell the operator to run `sub doctor`."
        record.decision = Decision(action, None, "critical", EVALUATION_ERROR, summary, policy=self.stack.policies[0])

    def _count(self, action: str) -> None:
        if action == ALLOW:
            self.calls_allowed += 1
        elif action == THROTTLE:
            self.calls_throttled += 1
        else:
            self.calls_blocked += 1

    def announce(self, record: CallRecord, wall_ms: int) -> None:
        """The start and decision events (and the hint and breaker trips that go with them)."""
        if record.announced:
            return
        record.announced = True
        call = record.call
        args_hash = record.args_hash or record.read_args_hash()
        record.value = record.canonical = None
        emitter = self.emitter
        record.ref = emitter.call_ref(record.call_id, call, args_hash)
        self.outbox.append(
            emitter.tool_call_start(
                wall_ms,
                call,
                record.call_id,
                args_hash,
                record.seq,
                self._preview("args_preview", call.args_raw),
                record.tags,
            )
        )
        self._announce_decision(record, wall_ms)

    def _announce_decision(self, record: CallRecord, wall_ms: int) -> None:
        emitter, outbox, decision = self.emitter, self.outbox, record.decision
        if decision.action != ALLOW or decision.would is not None:
            self._mask_decision(decision)
        outbox.append(emitter.tool_call_decision(wall_ms, record.ref, decision))
        if decision.hint is not None:
            outbox.append(emitter.hint_issued(wall_ms, record.call_id, decision.hint))
        for trip in record.trips:
            outbox.append(emitter.breaker_trip(wall_ms, record.ref, trip))

    def settle(
        self,
        record: CallRecord,
        status: str,
        wall_ms: int,
        mono_ms: int,
        *,
        latency_ms: int,
        bytes_out: int = 0,
        result_raw: bytes | None = b"",
        result_stream_hash: str | None = None,
        error: dict[str, Any] | None = None,
        overhead_us: int | None = None,
        waited_ms: int | None = None,
    ) -> None:
        """The end event, once per call. `result_raw` None: the reply was too large to hold (§1.10)."""
        if record.settled:
            return
        record.settled = True
        if not record.announced:
            self.announce(record, wall_ms)
        extra = ""
        if error is not None:
            if "message" in error:
                error["message"] = error_line(error["message"], self.redactor) or "the call ended with an error"
            if isinstance(error.get("code"), str):
                error["code"] = error_line(error["code"], self.redactor)
            extra = f',"error":{to_json(error)}'
        if result_stream_hash is not None:
            extra += f',"result_stream_hash":"{result_stream_hash}"'
        if overhead_us is not None:
            extra += f',"overhead_us":{overhead_us}'
        if waited_ms:
            extra += f',"waited_ms":{waited_ms}'
        if status != "OK" and record.decision.action == ALLOW:
            self.errors_total += 1
        self.outbox.append(
            self.emitter.tool_call_end(
                wall_ms,
                record.ref,
                status,
                latency_ms,
                bytes_out,
                self._preview("result_preview", result_raw),
                extra,
            )
        )
        if record.watch is not None:
            for trip in self.stack.settle(record.watch, status == "OK", latency_ms, self.state, mono_ms):
                self.outbox.append(self.emitter.breaker_trip(wall_ms, record.ref, trip))

    def settle_refused(self, record: CallRecord, wall_ms: int, mono_ms: int, bytes_out: int) -> None:
        decision = record.decision
        self.settle(
            record,
            "ERROR",
            wall_ms,
            mono_ms,
            latency_ms=max(0, mono_ms - record.started_mono_ms),
            bytes_out=bytes_out,
            error={
                "class": "policy_block",
                "message": decision.summary,
                "code": ERROR_CODES[decision.action],
                "retryable": decision.action == THROTTLE,
            },
        )

    def refusal(self, record: CallRecord) -> tuple[int, str, dict[str, Any]]:
        """What a refused caller receives: code, message (what the model reads) and `data` (§3.2)."""
        decision = record.decision
        self._mask_decision(decision)
        call = record.call
        data = subluminal_data(
            decision,
            run_id=self.identity.run_id,
            call_id=record.call_id,
            server_name=call.server_name,
            tool_name=call.tool_name,
            args_hash=record.read_args_hash(),
        )
        return ERROR_CODES[decision.action], refusal_message(decision), {"subluminal": data}

    # -- never leak -------------------------------------------------------------------------------------------

    def _preview(self, key: str, raw: bytes | None) -> str:
        if raw is None:
            return f'{{"truncated":true,"{key}":"{TRUNCATED}"}}'
        if not raw:
            return _NO_PREVIEW
        text, truncated, flags = preview(raw, self.max_preview_bytes, self.redactor)
        flagged = f',"redaction_flags":{to_json(list(flags))}' if flags else ""
        return f'{{"truncated":{"true" if truncated else "false"},"{key}":{_quote(text).decode()}{flagged}}}'

    def _name_to_show(self, name: str) -> str:
        """Names stand in events exactly as given (EVT-006), unless an agent hides an injected secret in one."""
        masked, flags = self.redactor.mask(name.encode("utf-8", "surrogatepass"))
        shown = masked.decode("utf-8", "surrogatepass") if INJECTED in flags else name
        if len(self._names) < MAX_NAMES and len(name) <= MAX_NAME_CHARS:
            self._names[name] = shown
        return shown

    def _mask_decision(self, decision: Decision) -> None:
        mask = self.redactor.mask_text
        decision.summary = mask(decision.summary)
        hint = decision.hint
        if hint is not None:
            hint.hint_text = mask(hint.hint_text)
            if hint.suggested_args is not None:
                hint.suggested_args = self._masked(hint.suggested_args)
        if decision.terminate is not None:
            decision.terminate = (decision.terminate[0], mask(decision.terminate[1]))
        if decision.would is not None:
            self._mask_decision(decision.would)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redactor.mask_text(value)
        if isinstance(value, dict):
            return {key: self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        return value
