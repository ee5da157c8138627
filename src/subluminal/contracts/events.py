"""Contract A as msgspec types: for everyone who reads or checks events.

The shim writes events from templates (`core/emit.py`) without these types; a test proves that both give the same
bytes. Key order is the field order here, `type` first. Unknown fields are ignored on reading (§0.2). Fields marked
"additive" are ours; all others are named by the interface pack.
"""

# Annotations are values here and not texts, which msgspec would compile again in every process.
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from subluminal.contracts.agent_event import AgentEvent
from subluminal.contracts.terms import (
    Action,
    Client,
    Count,
    Env,
    ErrorClass,
    HintKind,
    Mode,
    RunStatus,
    SecretSource,
    Severity,
    Status,
    Timestamp,
    Transport,
)


class Source(Struct, omit_defaults=True):
    host_id: str
    proc_id: str
    shim_id: str
    seq: Count | UnsetType = UNSET  # additive: number of this event within its shim, from 1; makes ingestion idempotent


class PolicyRef(Struct):
    policy_id: str
    policy_version: str
    policy_hash: str


class RunStarted(Struct):
    started_at: Timestamp
    mode: Mode
    policy: PolicyRef
    policies: list[PolicyRef] | UnsetType = UNSET  # additive: every bundle in force, where there are several
    meta: dict[str, Any] | UnsetType = UNSET


class ArgsPreview(Struct):
    truncated: bool
    args_preview: str | UnsetType = UNSET
    redaction_flags: list[str] | UnsetType = UNSET  # additive: what kinds of secret were masked
    shed: bool | UnsetType = UNSET  # additive: the preview was given up under back-pressure


class ResultPreview(Struct):
    truncated: bool
    result_preview: str | UnsetType = UNSET
    redaction_flags: list[str] | UnsetType = UNSET
    shed: bool | UnsetType = UNSET


class CallStarted(Struct):
    call_id: str
    server_name: str
    tool_name: str
    transport: Transport
    args_hash: str  # empty when the arguments were too large to hash canonically; args_stream_hash stands instead
    bytes_in: Count
    preview: ArgsPreview
    seq: Annotated[int, Meta(ge=1)]
    tags: list[str] | UnsetType = UNSET
    timeout_ms: Count | UnsetType = UNSET
    args_stream_hash: str | UnsetType = UNSET
    args_raw_hash: str | UnsetType = UNSET  # additive: SHA-256 of the arguments' own bytes, where args_hash is empty
    ambiguous: str | UnsetType = UNSET  # additive: why two parsers could read this message differently
    continues: str | UnsetType = UNSET  # additive: call_id of the call this leg continues
    observed: bool | UnsetType = UNSET  # additive: it had been carried out, elsewhere, when it was judged
    call_context: dict[str, Any] | UnsetType = UNSET  # §7.1: the client's own ids for this call


class CallRef(Struct):
    call_id: str
    server_name: str
    tool_name: str
    args_hash: str


class Explain(Struct):
    summary: str
    reason_code: str


class Hint(Struct):
    hint_text: str
    suggested_args: dict[str, Any] | None
    retry_advice: str | None
    hint_kind: HintKind


class Terminate(Struct):
    terminate_code: str
    terminate_message: str


class WouldDecide(Struct):
    """Additive, in observe mode and of calls that were only observed: what enforcement would have done."""

    action: Action
    rule_id: str | None
    severity: Severity
    explain: Explain


class DecisionTaken(Struct):
    action: Action
    rule_id: str | None
    severity: Severity
    explain: Explain
    policy: PolicyRef
    backoff_ms: Count | UnsetType = UNSET
    hint: Hint | UnsetType = UNSET
    terminate: Terminate | UnsetType = UNSET
    would: WouldDecide | UnsetType = UNSET


class ErrorDetail(Struct):
    class_: ErrorClass = msgspec.field(name="class")
    message: str | UnsetType = UNSET
    code: str | int | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET


class RunSummary(Struct):
    calls_total: Count
    calls_allowed: Count
    calls_blocked: Count
    calls_throttled: Count
    errors_total: Count
    duration_ms: Count


class RunEnded(Struct):
    ended_at: Timestamp
    status: RunStatus
    summary: RunSummary
    # Additive: whose calls the summary counts. Absent: those of this producer; `run`: those of all producers of the run
    # while this one, which made none itself (`sub run`), kept it. Whoever adds summaries up leaves these out.
    counts: Literal["run"] | UnsetType = UNSET
    # Additive: the client did not end the run. `idle`: nobody asked anything for long, or others needed the room. A
    # client that comes back goes on with the same run, under another producer.
    ended_by: Literal["idle"] | UnsetType = UNSET


class HintedCall(Struct):
    call_id: str


class PolicyLoad(Struct):
    """Additive detail of `policy_loaded`: a load that failed keeps the last good policy, and says so."""

    ok: bool
    origin: str
    error: str | UnsetType = UNSET


class SecretInjected(Struct):
    inject_as: str
    secret_ref: str
    source: SecretSource
    success: bool


class Health(Struct):
    uptime_ms: Count
    calls_total: Count
    calls_pending: Count
    events_held: Count
    previews_shed: Count


class BreakerTripped(Struct):
    rule_id: str
    reason_code: str
    scope: Literal["run", "server", "tool", "server_tool", "agent", "principal", "machine"]
    threshold: Count
    window_ms: Count


class SettingsChanged(Struct):
    """`refused`: the client was told to keep those that it had."""

    source: str
    refused: bool
    path: str | UnsetType = UNSET


class MessageStated(Struct):
    """As the provider states it, in its own numbers. What it did not state is absent, never zero."""

    message_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    stop_reason: str | UnsetType = UNSET
    input_tokens: Count | UnsetType = UNSET
    output_tokens: Count | UnsetType = UNSET
    cache_creation_input_tokens: Count | UnsetType = UNSET
    cache_read_input_tokens: Count | UnsetType = UNSET
    reasoning_tokens: Count | UnsetType = UNSET
    server_tool_requests: Count | UnsetType = UNSET
    cached_in_input: bool | UnsetType = UNSET  # whether `input_tokens` includes the cached ones
    api: str | UnsetType = UNSET


class ItemSeen(Struct):
    """One thing that a server says, which is new here or differs from what was seen before.

    `fields`: the first 16 digits of the SHA-256 of each of its members, in canonical form. `was`: the fingerprint seen
    before. `definition`: canonical JSON, masked, where it is not more than 16 KiB.
    """

    kind: Literal["tool", "prompt", "resource_template", "instructions", "server"]
    name: str
    fingerprint: str
    state: Literal["new", "seen", "pinned", "changed", "quarantined"]
    classes: list[str]
    fields: dict[str, Any] | UnsetType = UNSET
    was: str | UnsetType = UNSET
    changed: list[str] | UnsetType = UNSET  # the members that differ
    why: str | UnsetType = UNSET  # against what it has changed
    pinned: bool | UnsetType = UNSET  # it differs from a pin
    findings: list[str] | UnsetType = UNSET  # what makes it `hidden_text` or `injection_like`, and where
    definition: str | UnsetType = UNSET
    was_definition: str | UnsetType = UNSET  # of what it differs from, where it is pinned


class ResultKept(Struct):
    """What `record.results` made of a result. `bytes`: its size as it passed.

    `hash`: the chain of the producer's kept results up to this one (SHA-256), where it is kept. So the record vouches
    for what stands beside it, and can lose it without a gap of its own.
    """

    state: Literal["whole", "masked", "too_large", "no_room"]
    bytes: Count
    hash: str | UnsetType = UNSET


class ToolsListed(Struct):
    """`launch` tells servers of one name apart that are started or reached in different ways."""

    server_name: str
    launch: str
    items: list[ItemSeen]


class Promoted(Struct):
    """`scope`: for the run, or in `file` for good. `change`: the rule that was put in, or the limits that were raised.

    `call_id` and `rule_id`: the call that was promoted, and the rule that had decided it.
    """

    promote_id: str
    call_id: str
    scope: Literal["session", "persist"]
    policy_id: str
    by: str
    summary: str
    change: dict[str, Any]
    rule_id: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    policy_hash: str | UnsetType = UNSET  # of the policy as it was written


class Envelope(Struct, kw_only=True, tag_field="type"):
    v: str
    ts: Timestamp
    run_id: str
    agent_id: str
    client: Client
    env: Env
    source: Source
    principal: str | UnsetType = UNSET
    workload: dict[str, Any] | UnsetType = UNSET


class RunStart(Envelope, tag="run_start", kw_only=True):
    run: RunStarted


class ToolCallStart(Envelope, tag="tool_call_start", kw_only=True):
    call: CallStarted


class ToolCallDecision(Envelope, tag="tool_call_decision", kw_only=True):
    call: CallRef
    decision: DecisionTaken


class ToolCallEnd(Envelope, tag="tool_call_end", kw_only=True):
    call: CallRef
    status: Status
    latency_ms: Count
    bytes_out: Count
    preview: ResultPreview
    error: ErrorDetail | UnsetType = UNSET
    result_stream_hash: str | UnsetType = UNSET
    overhead_us: Count | UnsetType = UNSET  # additive: the shim's own time on this call
    waited_ms: Count | UnsetType = UNSET  # additive: time between the legs of a multi-round-trip call
    result_kept: ResultKept | UnsetType = UNSET  # additive: what of the result is kept beside the record


class RunEnd(Envelope, tag="run_end", kw_only=True):
    run: RunEnded


class HintIssued(Envelope, tag="hint_issued", kw_only=True):
    call: HintedCall
    hint: Hint


class PolicyLoaded(Envelope, tag="policy_loaded", kw_only=True):
    policy: PolicyRef
    load: PolicyLoad


class SecretInjection(Envelope, tag="secret_injection", kw_only=True):
    secret: SecretInjected


class ShimHealth(Envelope, tag="shim_health", kw_only=True):
    health: Health


class BreakerTrip(Envelope, tag="breaker_trip", kw_only=True):
    call: CallRef
    breaker: BreakerTripped


class AgentEventRecorded(Envelope, tag="agent_event", kw_only=True):
    """Additive: what the agent itself reported, in the words of `contracts.agent_event`."""

    agent: AgentEvent


class SettingsChange(Envelope, tag="settings_change", kw_only=True):
    """Additive: settings of the client, which can turn its hooks off, changed while a session was on."""

    settings: SettingsChanged


class ModelMessage(Envelope, tag="model_message", kw_only=True):
    """Additive: a message of a model has passed."""

    model: MessageStated


class ToolsSeen(Envelope, tag="tools_seen", kw_only=True):
    """Additive: what a server says of itself and its tools that was not known, or has changed."""

    tools: ToolsListed


class Promote(Envelope, tag="promote", kw_only=True):
    """Additive: a person has let a call through that was refused, or refuses calls like one that was not."""

    promote: Promoted


Event = (
    RunStart
    | ToolCallStart
    | ToolCallDecision
    | ToolCallEnd
    | RunEnd
    | HintIssued
    | PolicyLoaded
    | SecretInjection
    | ShimHealth
    | BreakerTrip
    | AgentEventRecorded
    | SettingsChange
    | ModelMessage
    | ToolsSeen
    | Promote
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """One line of UTF-8 JSON, newline included (§1.1)."""
    return _encoder.encode(event) + b"\n"


def decode_event(line: bytes) -> Event:
    """Read one line; raises `msgspec.ValidationError` or `msgspec.DecodeError` with the place of the fault."""
    return _decoder.decode(line)
