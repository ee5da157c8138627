"""The words and numbers of the contracts, stated once. Plain constants: the shim imports this at start-up."""

from __future__ import annotations

INTERFACE_VERSION = "0.2.0"

# Contract A, §1.10: bounded inspection.
MAX_INSPECT_BYTES = 1_048_576
MAX_PREVIEW_BYTES = 16_384
TRUNCATED = "[TRUNCATED]"

# Contract A: events.
REQUIRED_EVENT_TYPES = ("run_start", "tool_call_start", "tool_call_decision", "tool_call_end", "run_end")
OPTIONAL_EVENT_TYPES = ("hint_issued", "policy_loaded", "secret_injection", "shim_health", "breaker_trip")
EVENT_TYPES = REQUIRED_EVENT_TYPES + OPTIONAL_EVENT_TYPES
# Ours: what the agent itself reported, that a client's settings changed while it ran, what a model's provider states of
# a message, and what a server says of its tools that was not known.
ADDITIVE_EVENT_TYPES = ("agent_event", "settings_change", "model_message", "tools_seen", "promote")
CLIENTS = ("claude", "codex", "headless", "custom", "unknown")
ENVS = ("dev", "ci", "prod", "unknown")
MODES = ("observe", "guardrails", "control")
# "messages_api" is an adapter identifier of §7.1; "in_process" and "hook" are our additive values. A later one goes to
# the end: the place of each is a bit in the state of runs (`core.engine.claims`).
TRANSPORTS = ("mcp_stdio", "mcp_http", "http", "messages_api", "in_process", "unknown", "hook")
# Server names that are reserved, for rules that speak of no MCP server: a client's own tools, and those that the
# model's provider runs itself. CONNECTOR_TOOL is that the provider may reach a server at all.
BUILTIN_SERVER = "builtin"
PROVIDER_SERVER = "provider"
CONNECTOR_TOOL = "(connector)"
# Stands among paths that a door has read out of a text, where there may be others: whoever asks cannot be answered.
UNREAD_PATH = "(unread)"
STATUSES = ("OK", "ERROR", "TIMEOUT", "CANCELLED")
ERROR_CLASSES = ("upstream_error", "policy_block", "timeout", "transport", "unknown")
RUN_STATUSES = ("SUCCEEDED", "FAILED", "TERMINATED", "CANCELLED")
# The ledger merges the run_end of several shims: the worst status wins, in this order.
RUN_STATUS_SEVERITY = ("TERMINATED", "FAILED", "CANCELLED", "SUCCEEDED")

# Contract B: policy.
RULE_KINDS = ("allow", "deny", "budget", "rate_limit", "breaker", "dedupe", "tag")
SCOPES = ("run", "server", "tool", "server_tool", "agent", "principal", "machine")
SEVERITIES = ("info", "warn", "critical")
RISK_CLASSES = ("read_like", "write_like", "network_like")  # examples of the pack; any other word is allowed
ANNOTATED_CLASSES = frozenset(("write_like", "network_like"))  # those that a server's annotations can give
# Those that come from what a server says, held against what is known of it (`surface.standing`, `surface.texts`).
NEW, CHANGED, UNPINNED, SHADOWED = "new", "changed", "unpinned", "shadowed"
HIDDEN_TEXT, INJECTION_LIKE = "hidden_text", "injection_like"
# Of a tool that only the repository's lock has approved: the user's own rules mean these too.
CHANGED_FOR_USER, UNPINNED_BY_USER = "changed_for_user", "unpinned_by_user"
SURFACE_CLASSES = frozenset(
    (NEW, CHANGED, UNPINNED, SHADOWED, HIDDEN_TEXT, INJECTION_LIKE, CHANGED_FOR_USER, UNPINNED_BY_USER)
)
LISTED_CLASSES = ANNOTATED_CLASSES | SURFACE_CLASSES  # what nobody knows of a tool that was not listed
MAX_LEGS = 32  # of one multi-round-trip call, where `defaults.max_legs` says nothing else

# Contract C: decisions and error shapes.
ALLOW = "ALLOW"
BLOCK = "BLOCK"
THROTTLE = "THROTTLE"
REJECT_WITH_HINT = "REJECT_WITH_HINT"
TERMINATE_RUN = "TERMINATE_RUN"
ACTIONS = (ALLOW, BLOCK, THROTTLE, REJECT_WITH_HINT, TERMINATE_RUN)
# The strictest of several bundles' decisions wins.
ACTION_STRICTNESS = {ALLOW: 0, THROTTLE: 1, REJECT_WITH_HINT: 2, BLOCK: 3, TERMINATE_RUN: 4}
HINT_KINDS = ("ARG_FIX", "BUDGET", "RATE", "SAFETY", "OTHER")
ERROR_CODES = {BLOCK: -32081, THROTTLE: -32082, REJECT_WITH_HINT: -32083, TERMINATE_RUN: -32084}

# §4: secrets; §5: identity.
SECRET_SOURCES = ("env", "keychain", "file")
IDENTITY_VARIABLES = ("SUB_RUN_ID", "SUB_AGENT_ID", "SUB_ENV", "SUB_CLIENT", "SUB_PRINCIPAL")

# Reason codes: stable words, documented one by one in docs/reason-codes.md.
DEFAULT_ALLOW = "DEFAULT_ALLOW"
ALLOWLIST_MATCH = "ALLOWLIST_MATCH"
DENYLIST_MATCH = "DENYLIST_MATCH"
BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
RATE_LIMITED = "RATE_LIMITED"
BREAKER_ERRORS = "BREAKER_ERRORS"
BREAKER_REPEAT = "BREAKER_REPEAT"
BREAKER_LATENCY = "BREAKER_LATENCY"
DUPLICATE_CALL = "DUPLICATE_CALL"
RUN_TERMINATED = "RUN_TERMINATED"
AMBIGUOUS_MESSAGE = "AMBIGUOUS_MESSAGE"
POLICY_INVALID = "POLICY_INVALID"
EVALUATION_ERROR = "EVALUATION_ERROR"
UNINSPECTED_ARGS = "UNINSPECTED_ARGS"
UNJUDGED_ARGS = "UNJUDGED_ARGS"
MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
TOOL_NOT_LISTED = "TOOL_NOT_LISTED"
LEGS_EXCEEDED = "LEGS_EXCEEDED"
TOOL_QUARANTINED = "TOOL_QUARANTINED"
PROMOTED = "PROMOTED"
REPLAYED = "REPLAYED"
SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
POLICY_OVERDUE = "POLICY_OVERDUE"
FLEET_STOP = "FLEET_STOP"
REASON_CODES = (
    DEFAULT_ALLOW, ALLOWLIST_MATCH, DENYLIST_MATCH, BUDGET_EXCEEDED, RATE_LIMITED, BREAKER_ERRORS, BREAKER_REPEAT,
    BREAKER_LATENCY, DUPLICATE_CALL, RUN_TERMINATED, AMBIGUOUS_MESSAGE, POLICY_INVALID, EVALUATION_ERROR,
    UNINSPECTED_ARGS, UNJUDGED_ARGS, MESSAGE_TOO_LARGE, TOOL_NOT_LISTED, LEGS_EXCEEDED,
    TOOL_QUARANTINED, PROMOTED, REPLAYED, SCHEMA_MISMATCH, POLICY_OVERDUE, FLEET_STOP,
)  # fmt: skip
