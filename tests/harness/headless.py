"""`sub run --headless` as a CI job starts it: its own home, the variables of a provider, a scripted agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.ci_agent import ci_agent
from harness.fake_server import fake_server
from harness.shim import isolated_env, shim_command, write_policy

GITHUB = {
    "CI": "true",
    "GITHUB_ACTIONS": "true",
    "GITHUB_RUN_ID": "4711",
    "GITHUB_REPOSITORY": "octo/hello",
    "GITHUB_REF_NAME": "main",
    "GITHUB_ACTOR": "octocat",
}
SERVER = fake_server(tools={"*": {"echo": True}})


def rule(rule_id: str, kind: str, tool: str, severity: str = "critical", **effect: Any) -> dict[str, Any]:
    body = effect if kind in ("allow", "deny") else {kind: effect}
    match = {"tool_name": {"glob": [tool]}}
    return {
        "rule_id": rule_id,
        "kind": kind,
        "enabled": True,
        "severity": severity,
        "match": match,
        "effect": body,
    }


def bundle_of(*rules: dict[str, Any], mode: str = "guardrails") -> dict[str, Any]:
    return {
        "policy_id": "ci",
        "version": "1",
        "mode": mode,
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": list(rules),
    }


NO_DELETE = bundle_of(rule("no-delete", "deny", "delete*", action="BLOCK", message="files are kept"))


class Job:
    """One job to be: `run()` waits for it, `start()` gives the process."""

    def __init__(self, folder: Path, *flags: str, policy: dict[str, Any] | None = None, **spec: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.env = isolated_env(folder, **GITHUB)
        servers = spec.pop("servers", ("fs",))
        spec["servers"] = {name: shim_command(name, SERVER) for name in servers}
        more = [] if policy is None else ["--policy", str(write_policy(folder, policy))]
        self.command = [sys.executable, "-m", "subluminal", "run", *flags, *more, "--", *ci_agent(**spec)]

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command,
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )


def json_lines(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def decisions(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (event["call"]["tool_name"], event["decision"]["action"])
        for event in events
        if event["type"] == "tool_call_decision"
    ]
