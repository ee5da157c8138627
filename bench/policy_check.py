"""`sub policy check` over a large recording: the whole command, from a bundle's events and from a ledger.

    python bench/policy_check.py [--calls 100000] [--runs 100]

The policy has ten rules, with budgets, a bucket, a breaker, dedupe and a predicate on arguments. One JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import save, table

BASE_MS = 1_700_000_000_000


def stamp(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


def events(run: int, calls: int) -> list[bytes]:
    """The events of one run as a shim writes them: start, decision and end of every call."""
    policy = {"policy_id": "old", "policy_version": "1", "policy_hash": "0" * 64}
    lines: list[dict[str, Any]] = []
    at = BASE_MS + run * 86_400_000

    def add(kind: str, ms: int, **members: Any) -> None:
        source = {"host_id": "h", "proc_id": "p", "shim_id": f"s{run}", "seq": len(lines) + 1}
        envelope = {"type": kind, "v": "0.1.0", "ts": stamp(ms), "run_id": f"run-{run}", "agent_id": "a"}
        lines.append({**envelope, "client": "claude", "env": "ci", "source": source, **members})

    add("run_start", at, run={"started_at": stamp(at), "mode": "guardrails", "policy": policy})
    for number in range(calls):
        at += 40
        args = json.dumps({"number": number % 50, "path": f"/src/file{number % 20}"}, separators=(",", ":"))
        name = {"call_id": f"s{run}-{number}", "server_name": "fs", "tool_name": f"tool{number % 8}"}
        name["args_hash"] = hashlib.sha256(args.encode()).hexdigest()
        preview = {"truncated": False, "args_preview": args}
        start = {**name, "transport": "mcp_stdio", "bytes_in": 150, "preview": preview, "seq": number + 1}
        explain = {"summary": "Allowed.", "reason_code": "DEFAULT_ALLOW"}
        decision = {"action": "ALLOW", "rule_id": None, "severity": "info", "explain": explain, "policy": policy}
        add("tool_call_start", at, call=start)
        add("tool_call_decision", at, call=name, decision=decision)
        status = "ERROR" if number % 97 == 0 else "OK"
        end = {"status": status, "latency_ms": 5, "bytes_out": 20, "preview": {"truncated": False}}
        add("tool_call_end", at + 5, call=name, **end)
    return [json.dumps(line, separators=(",", ":")).encode() for line in lines]


def policy() -> dict[str, Any]:
    def rule(rule_id: str, kind: str, match: dict[str, Any], **effect: Any) -> dict[str, Any]:
        body = effect if kind in ("allow", "deny") else {kind: effect}
        head = {"rule_id": rule_id, "kind": kind, "enabled": True, "severity": "warn"}
        return {**head, "match": match, "effect": body}

    def tool(glob: str) -> dict[str, Any]:
        return {"tool_name": {"glob": [glob]}}

    late = {**tool("tool3"), "args": {"numeric_range": {"number": {"min": 40}}}}
    bucket = {"capacity": 50, "refill_tokens": 10, "refill_period_ms": 1000, "backoff_ms": 100}
    rules = [
        rule("no-drop", "deny", tool("drop*"), action="BLOCK"),
        rule("late", "deny", late, action="BLOCK"),
        rule("all", "budget", {}, scope="run", limit_calls=900, on_exceed="BLOCK"),
        rule("each", "budget", {}, scope="tool", limit_calls=200, on_exceed="BLOCK"),
        rule("rate", "rate_limit", {}, scope="run", on_limit="THROTTLE", **bucket),
        rule("errors", "breaker", {}, scope="tool", error_threshold=5, window_ms=60_000, on_trip="BLOCK"),
        rule("loop", "breaker", {}, scope="run", repeat_threshold=30, repeat_window_ms=10_000, on_trip="BLOCK"),
        rule("twice", "dedupe", tool("tool7"), scope="tool", window_ms=500, on_duplicate="BLOCK"),
        rule("fs", "allow", {"server_name": {"glob": ["fs"]}}, action="ALLOW"),
        rule("rest", "deny", {}, action="BLOCK"),
    ]
    head = {"policy_id": "new", "version": "2", "mode": "guardrails", "selectors": {}}
    return {**head, "defaults": {"decision_on_error": "BLOCK"}, "rules": rules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    figures: dict[str, Any] = {"calls": given.calls, "runs": given.runs}
    with tempfile.TemporaryDirectory(prefix="sub-bench-check-") as folder:
        root = Path(folder)
        (root / "policy.json").write_text(json.dumps(policy()))
        lines = [line for run in range(given.runs) for line in events(run, given.calls // given.runs)]
        (root / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        from subluminal.ledger.store.writer import Store

        store = Store(str(root / "ledger.db"))
        for first in range(0, len(lines), 4096):
            store.write(lambda first=first: [store.add(line) for line in lines[first : first + 4096]])
        store.close()
        env = {**os.environ, "SUB_HOME": str(root / "home"), "HOME": str(root)}
        answers = []
        for source in ("events.jsonl", "ledger.db"):
            command = [sys.executable, "-m", "subluminal", "policy", "check", str(root / "policy.json"), "--json"]
            started, before = time.monotonic(), os.times()
            done = subprocess.run([*command, "--against", str(root / source)], env=env, capture_output=True, check=True)
            figures[f"{source}_s"] = round(time.monotonic() - started, 2)
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            figures[f"{source}_cpu_s"] = round(cpu, 2)
            answer = json.loads(done.stdout)
            answers.append({name: value for name, value in answer.items() if name not in ("against", "policy")})
        figures["differing"] = [name for name, value in answers[0].items() if answers[1][name] != value]
        for name in ("calls", "new_blocks", "unknown_total", "still_allowed"):
            figures[f"judged_{name}"] = answers[0][name]
    print(json.dumps(figures, indent=2))
    save("policy_check", table(("what", "figure"), figures.items()))


if __name__ == "__main__":
    main()
