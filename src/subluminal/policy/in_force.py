"""Which policies a run that is started here would obey, which of them apply to it, and which cannot be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from subluminal.contracts.errors import PolicyError
from subluminal.contracts.identity import Identity
from subluminal.policy.lint.findings import ERROR, Finding, InvalidPolicy
from subluminal.policy.selectors import left_out
from subluminal.policy.sources import NAMING_VARIABLES, PolicySource, find_policies


class InForce(Struct, eq=False):
    """One policy. Either `snapshot` or `fault` is there; `left_out` says why it does not apply to this run."""

    source: PolicySource
    snapshot: dict[str, Any] | None = None
    fault: PolicyError | None = None
    left_out: str | None = None

    @property
    def errors(self) -> list[Finding]:
        findings = self.fault.findings if isinstance(self.fault, InvalidPolicy) else []
        return [finding for finding in findings if finding.level == ERROR]

    def as_dict(self) -> dict[str, Any]:
        snapshot = self.snapshot or {}
        return {
            "origin": self.source.origin,
            "path": self.source.path,
            "valid": self.fault is None,
            "policy_id": snapshot.get("policy_id"),
            "policy_version": snapshot.get("version"),
            "policy_hash": snapshot.get("policy_hash"),
            "mode": snapshot.get("mode"),
            "rules": len(snapshot["rules"]) if snapshot else None,
            "applies": self.fault is None and self.left_out is None,
            "left_out": self.left_out,
            "error": None if self.fault is None else str(self.fault),
            "findings": [finding.as_dict() for finding in self.errors],
        }


def policies_in_force(environ: Mapping[str, str], cwd: str, identity: Identity) -> list[InForce]:
    """In the order in which they stack; empty where there is none but the built-in one, which allows and records."""
    return [_loaded(source, identity) for source in find_policies(environ, cwd) if source.origin != "builtin"]


def set_aside(environ: Mapping[str, str], cwd: str) -> list[PolicySource]:
    """Those that would be in force here if none were named (SUB_POLICY, SUB_POLICY_JSON)."""
    used = {source.path for source in find_policies(environ, cwd)}
    unnamed = {name: value for name, value in environ.items() if name not in NAMING_VARIABLES or name == "SUB_HOME"}
    others = find_policies(unnamed, cwd)
    return [source for source in others if source.path is not None and source.path not in used]


def _loaded(source: PolicySource, identity: Identity) -> InForce:
    try:
        snapshot = source.load()
    except PolicyError as fault:
        return InForce(source, fault=fault)
    return InForce(source, snapshot, left_out=left_out(snapshot["selectors"], identity))
