// Made by tools/generate_web_types.py from the OpenAPI document. Do not edit.

export type CallRow = { call_id: string; run_id: string; server_name: string; tool_name: string; args_hash: string; decision: "ALLOW" | "BLOCK" | "THROTTLE" | "REJECT_WITH_HINT" | "TERMINATE_RUN" | null; rule_id: string | null; status: "OK" | "ERROR" | "TIMEOUT" | "CANCELLED" | null; latency_ms: number | null; bytes_in: number | null; bytes_out: number | null; preview_truncated: boolean; created_at: string; seq: number | null; transport: string | null; severity: string | null; reason_code: string | null; summary: string | null; backoff_ms: number | null; would_action: string | null; would_rule_id: string | null; would_reason_code: string | null; error_class: string | null; error_code: string | null; error_message: string | null; ended_at: string | null; overhead_us: number | null; waited_ms: number | null; args_stream_hash: string | null; result_stream_hash: string | null; ambiguous: string | null; continues: string | null; observed: boolean; tool_use_id: string | null; shim_id: string | null; tags: Array<string>; cursor: string };

export type RunRow = { run_id: string; agent_id: string; client: string; env: string; principal: string | null; started_at: string; ended_at: string | null; status: string; mode: string | null; policy_id: string | null; policy_version: string | null; policy_hash: string | null; calls_total: number; calls_allowed: number; calls_blocked: number; calls_throttled: number; errors_total: number; event_count: number; meta: Record<string, unknown> | null; workload: Record<string, unknown> | null; usage: Record<string, unknown> | null };

export type Changes = { after: number; rows: Array<{ call_id: string; run_id: string; server_name: string; tool_name: string; args_hash: string; decision: "ALLOW" | "BLOCK" | "THROTTLE" | "REJECT_WITH_HINT" | "TERMINATE_RUN" | null; rule_id: string | null; status: "OK" | "ERROR" | "TIMEOUT" | "CANCELLED" | null; latency_ms: number | null; bytes_in: number | null; bytes_out: number | null; preview_truncated: boolean; created_at: string; seq: number | null; transport: string | null; severity: string | null; reason_code: string | null; summary: string | null; backoff_ms: number | null; would_action: string | null; would_rule_id: string | null; would_reason_code: string | null; error_class: string | null; error_code: string | null; error_message: string | null; ended_at: string | null; overhead_us: number | null; waited_ms: number | null; args_stream_hash: string | null; result_stream_hash: string | null; ambiguous: string | null; continues: string | null; observed: boolean; tool_use_id: string | null; shim_id: string | null; tags: Array<string>; cursor: string }>; gone: Array<string>; runs: Array<string>; reset: boolean };

export type RunPage = { rows: Array<{ run_id: string; agent_id: string; client: string; env: string; principal: string | null; started_at: string; ended_at: string | null; status: string; mode: string | null; policy_id: string | null; policy_version: string | null; policy_hash: string | null; calls_total: number; calls_allowed: number; calls_blocked: number; calls_throttled: number; errors_total: number; event_count: number; meta: Record<string, unknown> | null; workload: Record<string, unknown> | null; usage: Record<string, unknown> | null }>; next_cursor: string | null };

export type WholeRun = { run_id: string; agent_id: string; client: string; env: string; principal: string | null; started_at: string; ended_at: string | null; status: string; mode: string | null; policy_id: string | null; policy_version: string | null; policy_hash: string | null; calls_total: number; calls_allowed: number; calls_blocked: number; calls_throttled: number; errors_total: number; event_count: number; meta: Record<string, unknown> | null; workload: Record<string, unknown> | null; usage: Record<string, unknown> | null; producers: Array<{ shim_id: string; host_id: string; proc_id: string; started_at: string }> };

export type Timeline = { items: Array<{ at: string; kind: string; call_id?: string; server_name?: string }>; whole: boolean };

export type Sparks = { sparks: Array<{ run_id: string; calls: Array<number> | null }> };

export type Recoveries = { runs: Array<{ run_id: string; corrected: number | null; counted: number | null; recovery_rate: number | null }> };

export type CallPage = { rows: Array<{ call_id: string; run_id: string; server_name: string; tool_name: string; args_hash: string; decision: "ALLOW" | "BLOCK" | "THROTTLE" | "REJECT_WITH_HINT" | "TERMINATE_RUN" | null; rule_id: string | null; status: "OK" | "ERROR" | "TIMEOUT" | "CANCELLED" | null; latency_ms: number | null; bytes_in: number | null; bytes_out: number | null; preview_truncated: boolean; created_at: string; seq: number | null; transport: string | null; severity: string | null; reason_code: string | null; summary: string | null; backoff_ms: number | null; would_action: string | null; would_rule_id: string | null; would_reason_code: string | null; error_class: string | null; error_code: string | null; error_message: string | null; ended_at: string | null; overhead_us: number | null; waited_ms: number | null; args_stream_hash: string | null; result_stream_hash: string | null; ambiguous: string | null; continues: string | null; observed: boolean; tool_use_id: string | null; shim_id: string | null; tags: Array<string>; cursor: string }>; next_cursor: string | null };

export type WholeCall = { call_id: string; run_id: string; server_name: string; tool_name: string; args_hash: string; decision: "ALLOW" | "BLOCK" | "THROTTLE" | "REJECT_WITH_HINT" | "TERMINATE_RUN" | null; rule_id: string | null; status: "OK" | "ERROR" | "TIMEOUT" | "CANCELLED" | null; latency_ms: number | null; bytes_in: number | null; bytes_out: number | null; preview_truncated: boolean; created_at: string; seq: number | null; transport: string | null; severity: string | null; reason_code: string | null; summary: string | null; backoff_ms: number | null; would_action: string | null; would_rule_id: string | null; would_reason_code: string | null; error_class: string | null; error_code: string | null; error_message: string | null; ended_at: string | null; overhead_us: number | null; waited_ms: number | null; args_stream_hash: string | null; result_stream_hash: string | null; ambiguous: string | null; continues: string | null; observed: boolean; tool_use_id: string | null; shim_id: string | null; tags: Array<string>; args_preview: string | null; result_preview: string | null; redaction_flags: Array<string>; hint: { hint_text?: string; hint_kind?: string; retry_advice?: string | null; suggested_args?: unknown } | null; events: Array<Record<string, unknown>>; agent_id: string; client: string; env: string; principal: string | null; mode: string | null; policy: { policy_id?: string; policy_version?: string; policy_hash?: string } | null; rule: Record<string, unknown> | null; call_context: Record<string, unknown> | null; doors: Array<{ transport: string | null; call_id: string; decision: string | null; status: string | null }> };

export type Explained = { policies: Array<Record<string, unknown>>; unknown: Array<string> };

export type Groups = { groups: Array<{ calls: number; allowed: number; blocked: number; throttled: number; errors: number; latency_ms_avg: number | null; latency_ms_p50: number | null; latency_ms_p95: number | null; latency_ms_max: number | null; run_id?: string | null; agent_id?: string | null; client?: string | null; env?: string | null; principal?: string | null; server_name?: string | null; tool_name?: string | null; decision?: string | null; would_action?: string | null; status?: string | null; rule_id?: string | null; reason_code?: string | null; severity?: string | null; error_class?: string | null; args_hash?: string | null; day?: string | null; hour?: string | null; minute?: string | null }> };

export type Hints = { rules: Array<{ rule_id: string | null; reason_code: string; refused: number; outcomes: { corrected: number; repeated: number; other_tool: number; gave_up: number; ended: number; promoted: number; open: number }; counted: number; as_hinted: number; recovery_rate: number | null; calls_to_recovery: number | null; runs: number; by_time: number; first_at: string; last_at: string; actions: Record<string, unknown>; agents: Array<{ agent_id: string; refused: number }>; tools: Array<{ tool: string; refused: number }>; hints: Array<{ hint_text: string; hint_kind: string; refused: number; outcomes: { corrected: number; repeated: number; other_tool: number; gave_up: number; ended: number; promoted: number; open: number }; counted: number; as_hinted: number; recovery_rate: number | null; calls_to_recovery: number | null }>; examples: Array<{ call_id: string; run_id: string; shim_id: string; agent_id: string; at: string; tool: string; summary: string | null; outcome: "corrected" | "repeated" | "other_tool" | "gave_up" | "ended" | "promoted" | "open"; by: "ids" | "time"; calls_to_recovery: number | null; next_call_id: string | null; next_tool: string | null }> }> };

export type OverTime = { from_ms: number; step_ms: number; exact: boolean; parts: Array<{ at_ms: number; calls: number; allowed: number; blocked: number; throttled: number; errors: number; latency_ms_avg: number | null; latency_ms_p50: number | null; latency_ms_p95: number | null; latency_ms_max: number | null }> };

export type Policies = { directory: string; policies: Array<{ order: number; origin: string; path: string | null; valid: boolean; policy_id: string | null; policy_version: string | null; policy_hash: string | null; mode: string | null; applies: boolean; left_out: string | null; error: string | null; findings: Array<{ level: string; code: string; message: string; fix: string; line: number }>; parts: Array<{ rule_id: string | null; line: number; text: string; deeds: { decided: number; refused: number; trips: number; would: number | null; last: string | null } | null }> }>; versions: Array<{ policy_id: string; policy_version: string; mode: string | null; policy_hash: string; created_at: string; stored: boolean }> };

export type PolicyDiff = { old: { policy_id: string; policy_version: string; policy_hash: string }; new: { policy_id: string; policy_version: string; policy_hash: string }; changes: Array<{ severity: string; direction: string; change: string; rule_id: string | null; summary: string }>; lines: Array<string> };

export type Tools = { directory: string; tools: Array<{ server_name: string; key: string; kind: string; name: string; state: string; why: string; classes: Record<string, unknown>; fingerprint: string; pinned_by: Array<string>; unsteady: boolean; changed: boolean; first_seen: string; last_seen: string; calls?: number; refused?: number; launch?: string }> };

export type WholeTool = { server_name: string; key: string; kind: string; name: string; state: string; why: string; classes: Record<string, unknown>; fingerprint: string; pinned_by: Array<string>; unsteady: boolean; changed: boolean; first_seen: string; last_seen: string; lines: Array<string>; diff: Array<string>; findings: Array<{ class: string; where: string; what: string }>; versions: Array<{ at: string; run_id: string; client: string; fingerprint: string; lines: Array<string> }> };

export type Proposal = { promote_id: string; call_id: string; run_id: string; policy_id: string; rule_id: string | null; above: string | null; rule: Record<string, unknown> | null; limits: Record<string, unknown> | null; summary: string; notes: Array<string>; scope: string; file?: string; text_diff?: string; lint?: Array<Record<string, unknown>>; diff?: Array<Record<string, unknown>>; tests?: number; tests_failed?: Array<string>; past?: Record<string, unknown>; seen: string };

export type Session = { csrf: string; version: string; home: string; directory: string; now_ms: number; fleet?: string };

export type Filter = { name: string; word: string; help: string; many: boolean; number: boolean; words: string[] };

export const CALL_FILTERS: Filter[] = [
  {
    "name": "run_id",
    "word": "run",
    "help": "Run: its id, a beginning or end of it, last, last~1.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "agent_id",
    "word": "agent",
    "help": "Agent id.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "client",
    "word": "client",
    "help": "The client that ran the agent.",
    "many": true,
    "number": false,
    "words": [
      "claude",
      "codex",
      "headless",
      "custom",
      "unknown"
    ]
  },
  {
    "name": "env",
    "word": "env",
    "help": "Environment of the run.",
    "many": true,
    "number": false,
    "words": [
      "dev",
      "ci",
      "prod",
      "unknown"
    ]
  },
  {
    "name": "principal",
    "word": "principal",
    "help": "Principal of the run.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "server_name",
    "word": "server",
    "help": "Server name or glob.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "tool_name",
    "word": "tool",
    "help": "Tool name or glob.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "decision",
    "word": "decision",
    "help": "What the policy decided.",
    "many": true,
    "number": false,
    "words": [
      "ALLOW",
      "BLOCK",
      "THROTTLE",
      "REJECT_WITH_HINT",
      "TERMINATE_RUN"
    ]
  },
  {
    "name": "would_action",
    "word": "would",
    "help": "What a policy that only observes would have decided.",
    "many": true,
    "number": false,
    "words": [
      "BLOCK",
      "THROTTLE",
      "REJECT_WITH_HINT",
      "TERMINATE_RUN"
    ]
  },
  {
    "name": "status",
    "word": "status",
    "help": "How a call that was let through ended; PENDING: it has not.",
    "many": true,
    "number": false,
    "words": [
      "OK",
      "ERROR",
      "TIMEOUT",
      "CANCELLED",
      "PENDING"
    ]
  },
  {
    "name": "rule_id",
    "word": "rule",
    "help": "Id of the rule that decided.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "reason_code",
    "word": "reason",
    "help": "Reason code, such as BUDGET_EXCEEDED.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "severity",
    "word": "severity",
    "help": "Severity of the decision.",
    "many": true,
    "number": false,
    "words": [
      "info",
      "warn",
      "critical"
    ]
  },
  {
    "name": "error_class",
    "word": "error-class",
    "help": "What kind of error.",
    "many": true,
    "number": false,
    "words": [
      "upstream_error",
      "policy_block",
      "timeout",
      "transport",
      "unknown"
    ]
  },
  {
    "name": "args_hash",
    "word": "args-hash",
    "help": "Hash of the arguments; see `sub hash`.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "min_latency_ms",
    "word": "min-latency",
    "help": "It took at least so many milliseconds.",
    "many": false,
    "number": true,
    "words": []
  },
  {
    "name": "text",
    "word": "text",
    "help": "Text in previews, names, reasons or error messages.",
    "many": false,
    "number": false,
    "words": []
  },
  {
    "name": "since_ms",
    "word": "since",
    "help": "From then on: 15m, 2h, 3d ago, today, yesterday, a date or an RFC 3339 time.",
    "many": false,
    "number": true,
    "words": []
  },
  {
    "name": "until_ms",
    "word": "until",
    "help": "Before then.",
    "many": false,
    "number": true,
    "words": []
  }
];

export const RUN_FILTERS: Filter[] = [
  {
    "name": "run_id",
    "word": "run",
    "help": "Run: its id, a beginning or end of it, last, last~1.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "agent_id",
    "word": "agent",
    "help": "Agent id.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "client",
    "word": "client",
    "help": "The client that ran the agent.",
    "many": true,
    "number": false,
    "words": [
      "claude",
      "codex",
      "headless",
      "custom",
      "unknown"
    ]
  },
  {
    "name": "env",
    "word": "env",
    "help": "Environment of the run.",
    "many": true,
    "number": false,
    "words": [
      "dev",
      "ci",
      "prod",
      "unknown"
    ]
  },
  {
    "name": "principal",
    "word": "principal",
    "help": "Principal of the run.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "status",
    "word": "status",
    "help": "How it ended, or RUNNING.",
    "many": true,
    "number": false,
    "words": [
      "RUNNING",
      "SUCCEEDED",
      "FAILED",
      "TERMINATED",
      "CANCELLED"
    ]
  },
  {
    "name": "since_ms",
    "word": "since",
    "help": "From then on: 15m, 2h, 3d ago, today, yesterday, a date or an RFC 3339 time.",
    "many": false,
    "number": true,
    "words": []
  },
  {
    "name": "until_ms",
    "word": "until",
    "help": "Before then.",
    "many": false,
    "number": true,
    "words": []
  }
];

export const HINT_FILTERS: Filter[] = [
  {
    "name": "run_id",
    "word": "run",
    "help": "Run: its id, a beginning or end of it, last, last~1.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "rule_id",
    "word": "rule",
    "help": "Id of the rule that decided.",
    "many": true,
    "number": false,
    "words": []
  },
  {
    "name": "since_ms",
    "word": "since",
    "help": "From then on: 15m, 2h, 3d ago, today, yesterday, a date or an RFC 3339 time.",
    "many": false,
    "number": true,
    "words": []
  }
];
