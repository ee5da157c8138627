"""The gate: a tool call in, a decision and its events out. The only entry to the core for every adapter.

A door judges, then forwards or refuses, then announces and settles (`producer.turn` keeps that order):

    record = gate.judge(call, wall_ms, mono_ms)       decide; nothing is written yet
    gate.announce(record, wall_ms)                    start and decision events, into `outbox`
    gate.settle(record, "OK", ...)                    the end event, into `outbox`
    sink.write(gate.take())                           hand over what has gathered

Announcing is apart from judging so that an allowed call can be on its way while its events are written. The gate does
no I/O: time is passed in and events leave as bytes.
"""

from __future__ import annotations

from subluminal.contracts.canonical import read_args
from subluminal.contracts.counts import Counts
from subluminal.contracts.decision import Decision, refusal_message, subluminal_data
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import (
    ALLOW,
    BLOCK,
    ERROR_CODES,
    MAX_PREVIEW_BYTES,
    MESSAGE_TOO_LARGE,
    POLICY_INVALID,
    THROTTLE,
)
from subluminal.core.emit.emitter import Emitter
from subluminal.core.engine.stack import Verdict
from subluminal.core.gate.masking import Masking
from subluminal.core.gate.record import CallRecord
from subluminal.core.redact.preview import previewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import PolicyRef
    from subluminal.contracts.identity import Identity, Source
    from subluminal.core.engine.listing import Listing
    from subluminal.core.engine.schemas import SchemaJudge
    from subluminal.core.engine.stack import Stack
    from subluminal.core.engine.state import State
    from subluminal.core.gate.results import Results
    from subluminal.core.redact.redactor import Redactor

# Faults of the arguments that let two parsers read different values. Any other fault (too deep, a number too long)
# leaves one reading that we merely did not follow to its end: policy decides by `decision_on_error`.
_AMBIGUOUS_KINDS = frozenset(
    ("duplicate_key", "invalid_utf8", "lone_surrogate", "invalid_json", "trailing_bytes", "not_finite")
)


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
        # Who judges arguments by input schemas, by server, for policies that ask for it.
        self.schemas: dict[str, SchemaJudge] = {}
        stack.judge_schemas_by(self.schemas)
        self.masking = Masking(redactor)
        self._redactor = redactor
        self._preview = previewer(max_preview_bytes, redactor)
        self.emitter = Emitter(identity, source)
        self.outbox: list[str] = []
        self.results: Results | None = None  # where results are kept whole; see `core.gate.results`
        self.counts = Counts()
        self._call_prefix = source.shim_id + "-"
        self._refuse_all: str | None = None
        self._refused_server: tuple[str, str, str] | None = None  # its name, reason code and reason
        self._refuses_others = False
        self._opened_mono_ms: int | None = None
        self._closed = False

    # -- the run ----------------------------------------------------------------------------------------------

    def begin(self, mono_ms: int) -> None:
        """The run of this producer begins; `open` says so in an event of its own."""
        self._opened_mono_ms = mono_ms

    def open(self, wall_ms: int, mono_ms: int, meta: dict[str, Any] | None = None) -> None:
        """`meta` is what the producer says of itself; what was said of the run stands before it."""
        self.begin(mono_ms)
        said = {**(self.identity.meta or {}), **(meta or {})}
        masked = self.masking.meta(said) if said else None
        self.outbox.append(self.emitter.run_start(wall_ms, self.stack.mode, self.stack.policies, masked))

    def close(
        self, status: str, wall_ms: int, mono_ms: int, of_run: Counts | None = None, ended_by: str | None = None
    ) -> None:
        """`run_end`, once. A run that a decision terminated has ended so, whatever came after.

        `of_run`: what all producers of the run have counted, where this one keeps the run and makes no calls itself.
        `ended_by`: why the producer ended where its client did not say so.
        """
        if self._closed or self._opened_mono_ms is None:
            return
        self._closed = True
        if self.state.terminated is not None:
            status = "TERMINATED"
        counts = self.counts if of_run is None else of_run
        summary = counts.as_summary(max(0, mono_ms - self._opened_mono_ms))
        self.outbox.append(self.emitter.run_end(wall_ms, status, summary, of_run is not None, ended_by))

    def take(self) -> bytes:
        """The events that have gathered since the last time, as JSONL."""
        text = "".join(self.outbox)
        self.outbox.clear()
        try:
            return text.encode()
        except UnicodeEncodeError:  # a lone surrogate in an ambiguous name: the line must still be written
            return text.encode("utf-8", "replace")

    # -- policy -----------------------------------------------------------------------------------------------

    def use_stack(self, stack: Stack) -> None:
        self.stack = stack
        stack.judge_schemas_by(self.schemas)

    def use_policies(self, stack: Stack, origin: str, wall_ms: int) -> None:
        self.use_stack(stack)
        self._refuse_all = None if self._refused_server is None else self._refused_server[2]
        self._refuses_others = False
        self.policy_note(stack.policies[0], True, origin, None, wall_ms)

    def refuse_all(self, reason: str) -> None:
        """No policy could be loaded: that is never "no policy". Every call is refused until one loads."""
        self._refuse_all = reason
        self._refuses_others = True

    def refuse_server(self, server_name: str, reason_code: str, reason: str) -> None:
        """Whatever policies say: nothing of this server is to be carried out here. All others are judged."""
        self._refused_server = (server_name, reason_code, reason)
        self._refuse_all = self._refuse_all or reason

    def policy_note(self, policy: PolicyRef, ok: bool, origin: str, error: str | None, wall_ms: int) -> None:
        self.outbox.append(self.emitter.policy_loaded(wall_ms, policy, ok, origin, error))

    @property
    def may_refuse(self) -> bool:
        """Whether any call could be refused now: if not, large messages need not wait for judgement."""
        return self.stack.mode != "observe" or self._refuse_all is not None or self.state.terminated is not None

    def secret_note(self, injection: dict[str, Any], wall_ms: int) -> None:
        """`injection`: inject_as, secret_ref, source, success. Metadata only (§4.1)."""
        self.outbox.append(self.emitter.secret_injection(wall_ms, **injection))

    def settings_note(self, source: str, refused: bool, path: str, wall_ms: int) -> None:
        """Settings of the client changed while it ran: `source` in its own word, and in which file, if it says so."""
        self.outbox.append(self.emitter.settings_change(wall_ms, source, refused, path))

    def usage_note(self, usage: dict[str, Any], wall_ms: int) -> None:
        """A message of a model has passed; `usage`: what its provider states of it, by the names of `model_message`."""
        from subluminal.core.gate.usage import stated  # not in a shim

        self.outbox.append(self.emitter.model_message(wall_ms, stated(usage, self._redactor)))

    def agent_note(self, agent: str, wall_ms: int) -> None:
        """`agent` is a rendered AgentEvent: what the agent itself reported, masked by whoever read it."""
        self.outbox.append(self.emitter.agent_event(wall_ms, agent))

    def tools_note(self, seen: dict[str, Any], wall_ms: int) -> None:
        """What a server says that was not known; `seen` is masked, but for names."""
        self.outbox.append(self.emitter.tools_seen(wall_ms, self.masking.value(seen)))

    def promote_note(self, promote: dict[str, Any], wall_ms: int) -> None:
        """A person has changed what becomes of a call; masked, but for names."""
        self.outbox.append(self.emitter.promote(wall_ms, self.masking.value(promote)))

    @property
    def listing(self) -> Listing:
        """What the policies in force make of a list of tools."""
        return self.stack.listing

    def hides(self, server_name: str, tool_name: str, risk_classes: frozenset[str] | None) -> bool:
        """Whether this tool is left out of the list that the client gets."""
        return self.stack.listing.hides(ToolCall(server_name, tool_name, None, 0, risk_classes=risk_classes))

    def health_note(self, health: dict[str, int], wall_ms: int) -> None:
        self.outbox.append(self.emitter.shim_health(wall_ms, health))

    def owns(self, record: CallRecord) -> bool:
        return record.call_id.startswith(self._call_prefix)

    # -- a call -----------------------------------------------------------------------------------------------

    def judge(self, call: ToolCall, wall_ms: int, mono_ms: int) -> CallRecord:
        counts, masking, name = self.counts, self.masking, call.tool_name
        counts.total = number = counts.total + 1
        record = CallRecord(call, f"{self._call_prefix}{number}", mono_ms)
        self._decide(record, call, wall_ms, mono_ms)
        if record.decision.action == ALLOW:
            counts.allowed += 1
        else:
            counts.decided(record.decision.action)
        # From here on the call is only written down.
        shown = masking.names.get(name) or masking.name(name)
        if shown is not name:
            call.tool_name = shown
        if call.call_context:
            call.call_context = masking.value(call.call_context)
        return record

    def judge_again(self, record: CallRecord, call: ToolCall, wall_ms: int, mono_ms: int) -> None:
        """A further leg of the same call: policy is asked again, and only the new decision is announced."""
        call.continues = record.call_id
        record.args = None
        record.legs = call.leg = record.legs + 1
        seq, earlier = record.verdict.seq, record.decision.action
        self._decide(record, call, wall_ms, mono_ms)
        record.verdict.seq = seq
        self.counts.decided_again(earlier, record.decision.action)
        if record.ref:
            self._announce_decision(record, wall_ms)
        record.args = call.args_raw = None

    def _decide(self, record: CallRecord, call: ToolCall, wall_ms: int, mono_ms: int) -> None:
        """`record` has no arguments yet."""
        value = None
        if call.args_raw is not None:
            try:
                record.args = args = read_args(call.args_raw)
                value = args[0]
            except CanonicalError as fault:
                if fault.kind not in _AMBIGUOUS_KINDS:
                    call.args_raw_hash = sha256_hex(call.args_raw)
                elif call.ambiguous is None:
                    call.ambiguous = "arguments: " + fault.kind
        if self._refuse_all is not None and self.state.terminated is None:
            if self._refuses_others or self._refused_server is None:
                self._refuse(record, POLICY_INVALID, self._refuse_all)
                return
            if call.server_name == self._refused_server[0]:
                self._refuse(record, *self._refused_server[1:])
                return
        if call.too_large is not None and self.state.terminated is None:
            summary = f"{call.tool_name} on {call.server_name} was refused: its message is {call.too_large}."
            self._refuse(record, MESSAGE_TOO_LARGE, f"{summary} Send less at once, or a reference instead of content.")
            return
        held = value if value.__class__ is dict else None
        try:
            verdict = self.stack.judge(
                call, record.read_args, record.read_args_hash, self.state, wall_ms, mono_ms, None, held
            )
        except Exception as fault:  # a fault of ours must not take the tool down: `decision_on_error` says what holds
            verdict = self.stack.judge_after_fault(call, self.state, type(fault).__name__, wall_ms, mono_ms)
        record.decision = verdict.decision
        record.verdict = verdict

    def _refuse(self, record: CallRecord, reason_code: str, summary: str) -> None:
        """Refused before any rule is asked."""
        seq = self.state.next_seq()
        decision = Decision(BLOCK, None, "critical", reason_code, summary, policy=self.stack.policies[0])
        record.decision = Decision.of_carried_out(decision) if record.call.observed else decision
        record.verdict = Verdict(record.decision, [], [], None, seq)

    def announce(self, record: CallRecord, wall_ms: int) -> None:
        """The start and decision events (and the hint and breaker trips that go with them)."""
        if record.ref:
            return
        call, verdict, emitter, outbox = record.call, record.verdict, self.emitter, self.outbox
        line, ref = emitter.tool_call_start(
            wall_ms,
            call,
            record.call_id,
            record.args_hash or record.read_args_hash(),
            verdict.seq,
            self._preview(call.args_raw),
            verdict.tags,
        )
        record.ref = ref
        outbox.append(line)
        # A call may be open for long, and many of them: what its end does not need goes.
        record.args = call.args_raw = None
        decision = record.decision
        if decision.action != ALLOW or decision.would is not None or decision.hint is not None or verdict.trips:
            self._announce_decision(record, wall_ms)
        else:
            outbox.append(emitter.tool_call_decision(wall_ms, ref, decision))

    def _announce_decision(self, record: CallRecord, wall_ms: int) -> None:
        emitter, outbox, decision = self.emitter, self.outbox, record.decision
        if decision.action != ALLOW or decision.would is not None:
            self.masking.decision(decision)
        outbox.append(emitter.tool_call_decision(wall_ms, record.ref, decision))
        if decision.hint is not None:
            outbox.append(emitter.hint_issued(wall_ms, record.call_id, decision.hint))
        for trip in record.verdict.trips:
            outbox.append(emitter.breaker_trip(wall_ms, record.ref, trip))

    def settle(
        self,
        record: CallRecord,
        status: str,
        wall_ms: int,
        mono_ms: int,
        latency_ms: int,
        bytes_out: int = 0,
        result_raw: bytes | None = b"",
        result_stream_hash: str | None = None,
        error: dict[str, Any] | None = None,
        overhead_us: int | None = None,
    ) -> None:
        """The end event, once per call. `result_raw` None: the reply was too large to hold (§1.10)."""
        if record.settled:
            return
        record.settled = True
        if not record.ref:
            self.announce(record, wall_ms)
        if error is not None:
            self.masking.error(error)
        if status != "OK":
            self.counts.ended(record.decision.action, status)
        kept = None if self.results is None else self.results.keep(record, status, result_raw, bytes_out)
        self.outbox.append(
            self.emitter.tool_call_end(
                wall_ms,
                record.ref,
                status,
                latency_ms,
                bytes_out,
                self._preview(result_raw),
                error,
                result_stream_hash,
                overhead_us,
                record.waited_ms,
                kept,
            )
        )
        watch = record.verdict.watch
        if watch is not None:
            for trip in self.stack.settle(watch, status == "OK", latency_ms, self.state, mono_ms):
                self.outbox.append(self.emitter.breaker_trip(wall_ms, record.ref, trip))

    def settling_needs_state(self, record: CallRecord, may_have_failed: bool) -> bool:
        """Whether `settle` may have to change the run's state: where this can be said before."""
        watch = record.verdict.watch
        return watch is not None and self.stack.watches(watch, may_have_failed)

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
        self.masking.decision(decision)
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
