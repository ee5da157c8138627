"""Why the selectors of a policy leave a run out, in words. Whether they do is the engine's to say."""

from __future__ import annotations

from typing import Any

from subluminal.contracts.identity import Identity
from subluminal.core.engine.matchers import selectors_match
from subluminal.policy.lint.findings import shown


def left_out(selectors: dict[str, Any], identity: Identity) -> str | None:
    """A clause without a full stop; None: the policy applies to the run."""
    if selectors_match(selectors, identity):
        return None
    workload = identity.workload or {}
    facts = [(field, selectors.get(field), getattr(identity, field)) for field in ("env", "agent_id", "client")]
    for field, wanted in selectors.get("workload", {}).items():
        facts.append((f"workload.{field}", wanted, workload.get(field)))
    for field, wanted, actual in facts:
        if wanted and not _selected(wanted, actual):
            return f"selectors.{field} asks for {_words(wanted)}, and this run has {_words(actual)}"
    return "its selectors do not match this run"


def _selected(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and wanted.items() <= actual.items()
    return actual in wanted


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in sorted(value.items())) or "none"
    return " or ".join(shown(item) for item in value) if isinstance(value, list) else shown(value)
