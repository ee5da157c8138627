"""Spans by the names of the GenAI and MCP conventions (schema 1.44.0), from what the ledger knows of calls and runs.

A value is exported if it is a word of the contract, a name of a server, tool, rule or policy, an id, or a number.
Nothing else: summaries, hints and messages of errors may repeat arguments, and a hash of a short argument tells it.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from subluminal.contracts.moments import epoch_ms
from subluminal.fleet.telemetry.ids import call_span_id, parent_of, run_span_id, trace_id

# Names of tools come from clients, and there is no bound on them in the protocol.
MAX_NAME_CHARS = 256
_TRANSPORTS = {"mcp_stdio": "pipe", "mcp_http": "tcp", "http": "tcp", "messages_api": "tcp"}

Row = dict[str, Any]


def attributes(values: Row) -> list[KeyValue]:
    """What is not known is absent."""
    return [KeyValue(key=name, value=_value(value)) for name, value in values.items() if value is not None]


def _value(value: str | int | bool) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=_writable(value))


def _writable(text: str) -> str:
    return text[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()


def call_span(call: Row) -> Span:
    """`call` as `Ledger.call` tells it, of one that has ended."""
    events = {event["type"]: event for event in call["events"]}
    context = events.get("tool_call_start", {}).get("call", {}).get("call_context") or {}
    policy = events.get("tool_call_decision", {}).get("decision", {}).get("policy") or {}
    parent = parent_of(call["run_id"], context.get("traceparent"))
    is_mcp = (call["transport"] or "").startswith("mcp_")
    start, end = _nanoseconds(call["created_at"]), _nanoseconds(call["ended_at"])
    error = error_type(call)
    return Span(
        trace_id=parent.trace_id,
        span_id=call_span_id(call["run_id"], call["shim_id"] or "", call["call_id"]),
        parent_span_id=parent.span_id,
        name=_writable(f"{'tools/call' if is_mcp else 'execute_tool'} {call['tool_name']}"),
        kind=Span.SPAN_KIND_CLIENT if is_mcp else Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=max(start, end),
        status=Status(code=Status.STATUS_CODE_ERROR) if error else Status(),
        attributes=attributes(
            {
                "mcp.method.name": "tools/call" if is_mcp else None,
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call["tool_name"],
                "gen_ai.tool.call.id": call["tool_use_id"],
                "network.transport": _TRANSPORTS.get(call["transport"] or ""),
                "rpc.response.status_code": _code(call) if is_mcp else None,
                "error.type": error,
                "security_rule.name": call["rule_id"],
                "security_rule.ruleset.name": policy.get("policy_id") if call["rule_id"] else None,
                "security_rule.version": policy.get("policy_version") if call["rule_id"] else None,
                **_own(call),
            }
        ),
    )


def _own(call: Row) -> Row:
    return {
        "subluminal.run.id": call["run_id"],
        "subluminal.call.id": call["call_id"],
        "subluminal.server.name": call["server_name"],
        "subluminal.transport": call["transport"],
        "subluminal.decision": call["decision"],
        "subluminal.decision.reason_code": call["reason_code"],
        "subluminal.decision.severity": call["severity"],
        "subluminal.would.decision": call["would_action"],
        "subluminal.would.rule": call["would_rule_id"],
        "subluminal.status": call["status"],
        "subluminal.latency_ms": call["latency_ms"],
        "subluminal.overhead_us": call["overhead_us"],
        "subluminal.observed": True if call["observed"] else None,
    }


def run_span(run: Row) -> Span:
    """Of a run that has ended: the root of its calls."""
    start, end = _nanoseconds(run["started_at"]), _nanoseconds(run["ended_at"])
    failed = run["status"] != "SUCCEEDED"
    return Span(
        trace_id=trace_id(run["run_id"]),
        span_id=run_span_id(run["run_id"]),
        name=_writable(f"invoke_agent {run['agent_id']}"),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=max(start, end),
        status=Status(code=Status.STATUS_CODE_ERROR) if failed else Status(),
        attributes=attributes(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": run["agent_id"],
                "deployment.environment.name": run["env"],
                "error.type": run["status"].lower() if failed else None,
                "subluminal.run.id": run["run_id"],
                "subluminal.client": run["client"],
                "subluminal.mode": run["mode"],
                "subluminal.status": run["status"],
                **{f"subluminal.{name}": run[name] for name in _COUNTS},
            }
        ),
    )


_COUNTS = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")


def error_type(call: Row) -> str | None:
    """A word of few: a reason code of the contract, the number of a JSON-RPC error, `tool_error`, a class of ours."""
    if call["status"] == "OK":
        return None
    if call["error_class"] == "policy_block":
        return str(call["reason_code"] or "policy_block")
    if call["error_class"] == "upstream_error":
        # A result with isError has no code; what a server calls a code and is no number is its own text.
        return _code(call) or "tool_error"
    return str(call["error_class"] or (call["status"] or "unknown").lower())


def _code(call: Row) -> str | None:
    code = str(call["error_code"] or "")
    is_number = call["error_class"] == "upstream_error" and len(code) < 12 and code.removeprefix("-").isdecimal()
    return code if is_number and code.isascii() else None


def _nanoseconds(ts: str) -> int:
    return max(0, epoch_ms(ts)) * 1_000_000
