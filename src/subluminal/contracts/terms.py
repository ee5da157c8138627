"""The words and small types that events and policies have in common.

Apart from both: a policy is read without the types of events, which take longer to make than most policies to read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

Client = Literal["claude", "codex", "headless", "custom", "unknown"]
Env = Literal["dev", "ci", "prod", "unknown"]
Mode = Literal["observe", "guardrails", "control"]
Transport = Literal["mcp_stdio", "mcp_http", "http", "messages_api", "in_process", "unknown", "hook"]
Action = Literal["ALLOW", "BLOCK", "THROTTLE", "REJECT_WITH_HINT", "TERMINATE_RUN"]
Severity = Literal["info", "warn", "critical"]
Status = Literal["OK", "ERROR", "TIMEOUT", "CANCELLED"]
RunStatus = Literal["SUCCEEDED", "FAILED", "TERMINATED", "CANCELLED"]
ErrorClass = Literal["upstream_error", "policy_block", "timeout", "transport", "unknown"]
HintKind = Literal["ARG_FIX", "BUDGET", "RATE", "SAFETY", "OTHER"]
SecretSource = Literal["env", "keychain", "file"]
Count = Annotated[int, Meta(ge=0)]
# Patterns are read by Python and by JSON Schema: `[0-9]`, for Python's `\d` takes the digits of every script, and
# `$(?!\n)`, for Python's `$` alone lets a final newline pass.
Timestamp = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$(?!\n)")]
