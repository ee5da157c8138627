"""A policy, a run state and a clock in one hand: states what a history of calls is judged to be."""

from __future__ import annotations

import hashlib
import json
import posixpath
from typing import Any

from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack, Verdict
from subluminal.core.engine.state import LocalState
from subluminal.policy.compile.bundle import compile_bundle


def rule(rule_id: str, kind: str, match: dict[str, Any] | None = None, **effect: Any) -> dict[str, Any]:
    """A rule of a bundle. For kinds with an object of their own, the keywords are its members."""
    if kind in ("allow", "deny"):
        effect.setdefault("action", "ALLOW" if kind == "allow" else "BLOCK")
    else:
        effect = {kind: effect}
    return {
        "rule_id": rule_id,
        "kind": kind,
        "enabled": True,
        "severity": "warn",
        "match": match or {},
        "effect": effect,
    }


def tools(*globs: str) -> dict[str, Any]:
    return {"tool_name": {"glob": list(globs)}}


def compiled(
    *rules: dict[str, Any], mode: str = "guardrails", on_error: str = "BLOCK", **members: Any
) -> dict[str, Any]:
    """The snapshot that the project's own compiler makes of these rules."""
    bundle = {
        "policy_id": "p",
        "version": "1",
        "mode": mode,
        "defaults": {"decision_on_error": on_error},
        "selectors": {},
        "rules": list(rules),
        **members,
    }
    return compile_bundle(json.dumps(bundle).encode(), "policy.json")


def hash_of(args: Any) -> str:
    return hashlib.sha256(json.dumps(args, sort_keys=True, default=str).encode()).hexdigest()


class FlatPlaces:
    """A machine without links, for `path_within`: what a path says is where it leads."""

    home = "/home/me"
    root = "/work"
    starts = ("/work",)
    homes = ("/home/me",)

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def home_of(self, user: str) -> str | None:
        return None

    def variable(self, name: str) -> str | None:
        return None

    def real(self, base: str, path: str) -> str:
        return posixpath.normpath(posixpath.join(base, path))

    def exists(self, path: str) -> bool:
        return True

    def same(self, path: str, other: str) -> bool:
        return path == other


class Run:
    """Judges calls one after another. `at` is the time of the next call in milliseconds."""

    def __init__(
        self,
        *snapshots: dict[str, Any],
        state: Any = None,
        identity: Identity | None = None,
        places: Any = None,
    ) -> None:
        who = identity or Identity("run")
        self.stack = Stack([Engine(snapshot, who, places) for snapshot in snapshots])
        self.state = state if state is not None else LocalState()
        self.at = 1_000_000
        self.wall = 1_700_000_000_000

    def call(
        self,
        tool: str = "t",
        args: Any = None,
        *,
        server: str = "s",
        trace: list[dict[str, Any]] | None = None,
        uninspected: bool = False,
        **call: Any,
    ) -> Verdict:
        value = {} if args is None else args
        read = (lambda: None) if uninspected else (lambda: value)
        digest = (lambda: "") if uninspected else (lambda: hash_of(value))
        raw = None if uninspected else json.dumps(value, default=str).encode()
        call.setdefault("bytes_in", len(raw or b""))
        made = ToolCall(server, tool, raw, **call)
        return self.stack.judge(made, read, digest, self.state, self.wall, self.at, trace)

    def action(self, tool: str = "t", args: Any = None, **call: Any) -> str:
        return self.call(tool, args, **call).decision.action

    def end(self, verdict: Verdict, ok: bool = True, latency_ms: int = 1) -> list[dict[str, Any]]:
        return self.stack.settle(verdict.watch, ok, latency_ms, self.state, self.at)

    def failing(self, tool: str = "t", args: Any = None, **call: Any) -> str:
        """A call that is judged and, if it goes through, fails."""
        verdict = self.call(tool, args, **call)
        self.end(verdict, ok=False)
        return verdict.decision.action
