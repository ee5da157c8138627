"""Many headless runs at once on one machine: `sub run --strict --bundle` around an agent with two servers.

    python bench/ci.py [--runs 100] [--calls 200] [--plain] [--keep DIR] [--json]

Each run makes its calls through two shims under one guardrails policy: a denied tool, a budget for the whole run over
both servers, the rest allowed. Afterwards every bundle is checked: complete, of this run only, counts and budget exact,
sealed and verified; and no process is left. `--plain` also runs the same agents without Subluminal, for the ratio of
wall time and peak memory (PSS, sampled), and keeps the table. The exit code is 1 if any check fails.

The agent and the servers are this file as well (`--as agent`, `--as server`): standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SUB = [sys.executable, "-m", "subluminal"]
SELF = [sys.executable, "-S", "-E", str(HERE)]
MARKER = "SUB_BENCH_MARKER"  # an inherited variable finds every process of the bench, re-parented or not
SERVERS = ("alpha", "beta")
BUDGET_SHARE = 3  # a third of the calls may be writes; half of them are


def policy(calls: int) -> dict[str, Any]:
    def rule(rule_id: str, kind: str, tool: str, effect: dict[str, Any]) -> dict[str, Any]:
        match = {"tool_name": {"glob": [tool]}}
        return {
            "rule_id": rule_id,
            "kind": kind,
            "enabled": True,
            "severity": "critical",
            "match": match,
            "effect": effect,
        }

    budget = {"scope": "run", "limit_calls": calls // BUDGET_SHARE, "on_exceed": "BLOCK"}
    return {
        "policy_id": "ci-bench",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {"env": ["ci"]},
        "rules": [
            rule("no-drop", "deny", "drop_*", {"action": "BLOCK", "message": "nothing is dropped in CI"}),
            rule("write-budget", "budget", "write", {"budget": budget}),
        ],
    }


def tool_of(number: int) -> str:
    return "drop_table" if number % 10 == 9 else "write" if number % 2 == 0 else "read"


def expected(calls: int) -> dict[str, int]:
    tools = [tool_of(number) for number in range(calls)]
    writes, limit = tools.count("write"), calls // BUDGET_SHARE
    refused = tools.count("drop_table") + max(0, writes - limit)
    return {"calls": calls, "allowed": calls - refused, "refused": refused, "writes": min(writes, limit)}


# -- the agent and its servers ----------------------------------------------------------------------------------------


def server() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
        if message["method"] == "initialize":
            info = {"name": "bench", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()


def agent(run: int, calls: int, shimmed: bool) -> None:
    """Exits 0 whatever is refused, as agents do."""
    processes = []
    for name in SERVERS:
        command = [*SELF, "--as", "server"]
        if shimmed:
            command = [*SUB, "shim", "--server-name", name, "--", *command]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    for process in processes:
        ask(process, 0, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}})
    refused = 0
    for number in range(calls):
        arguments = {"run": run, "number": number}
        answer = ask(processes[number % 2], number + 1, "tools/call", {"name": tool_of(number), "arguments": arguments})
        refused += "error" in answer
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        process.wait()
    print(json.dumps({"run": run, "refused": refused}))


def ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
    )
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


# -- running ----------------------------------------------------------------------------------------------------------


def run_all(root: Path, runs: int, calls: int, shimmed: bool) -> dict[str, Any]:
    name = "shimmed" if shimmed else "plain"
    folder = root / name
    folder.mkdir(parents=True)
    (root / "policy.json").write_text(json.dumps(policy(calls)), encoding="utf-8")
    marker = f"{os.getpid()}-{name}"
    started = time.monotonic()
    processes = [_start(root, folder, number, calls, shimmed, marker) for number in range(runs)]
    peak = 0
    while any(process.poll() is None for process in processes):
        peak = max(peak, sum(_pss_kib(pid) for pid in marked(marker)))
        time.sleep(0.25)
    seconds = time.monotonic() - started
    return {
        "wall_s": round(seconds, 2),
        "peak_pss_mib": round(peak / 1024),
        "calls_per_s": round(runs * calls / seconds),
        "exit_codes": sorted({process.returncode for process in processes}),
        "left": len(_still_there(marker)),
    }


def _start(root: Path, folder: Path, number: int, calls: int, shimmed: bool, marker: str) -> subprocess.Popen[bytes]:
    command = [*SELF, "--as", "agent", "--run", str(number), "--calls", str(calls)]
    if shimmed:
        flags = ["--strict", "--policy", str(root / "policy.json"), "--bundle", str(folder / f"run-{number}")]
        command = [*SUB, "run", *flags, "--run-id", f"ci-{number}", "--agent-id", f"agent-{number}", "--", *command]
        command.append("--shimmed")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    env = {**kept, "HOME": str(root), "SUB_HOME": str(root / "home"), "CI": "true", MARKER: marker}
    env.update(GITHUB_ACTIONS="true", GITHUB_RUN_ID=f"job-{number}", GITHUB_ACTOR="octo", GITHUB_REPOSITORY="o/r")
    with open(folder / f"out-{number}", "wb") as out, open(folder / f"err-{number}", "wb") as err:
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=root)


def marked(marker: str) -> list[int]:
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


def _still_there(marker: str) -> list[int]:
    """Processes left behind; watchdogs may need a moment to see that their work is done."""
    give_up = time.monotonic() + 10
    while (left := marked(marker)) and time.monotonic() < give_up:
        time.sleep(0.05)
    return left


def _pss_kib(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0


# -- checking ---------------------------------------------------------------------------------------------------------


def check(root: Path, runs: int, calls: int) -> list[str]:
    """What is wrong with the bundles of a shimmed round; empty if nothing is."""
    from subluminal.ledger.trace.bundle import open_bundle
    from subluminal.ledger.trace.bundle_proof import verify_bundle

    wanted = expected(calls)
    faults = []
    seen: set[str] = set()
    for number in range(runs):
        path = root / "shimmed" / f"run-{number}"
        report = verify_bundle(str(path))
        if not report.ok:
            faults.append(f"run {number}: {report.faults[0].what}")
            continue
        with open_bundle(str(path)) as bundle:
            events = [json.loads(line) for line in bundle.lines()]
        got = _figures(events)
        if got != wanted:
            faults.append(f"run {number}: {got} instead of {wanted}")
        foreign = [
            event["type"]
            for event in events
            if event["run_id"] != f"ci-{number}"
            or event["env"] != "ci"
            or event["workload"]["job_id"] != f"job-{number}"
            or (
                event["type"] == "tool_call_start"
                and f'"run": {number},' not in event["call"]["preview"]["args_preview"]
            )
        ]
        if foreign:
            faults.append(f"run {number}: {len(foreign)} events of another run, the first a {foreign[0]}")
        ids = {event["call"]["call_id"] for event in events if event["type"] == "tool_call_start"}
        if ids & seen:
            faults.append(f"run {number}: call ids of another run")
        seen |= ids
        faults += _told(root, number, wanted)
    return faults


def _figures(events: list[dict[str, Any]]) -> dict[str, int]:
    decisions = [event for event in events if event["type"] == "tool_call_decision"]
    allowed = [event for event in decisions if event["decision"]["action"] == "ALLOW"]
    return {
        "calls": sum(event["type"] == "tool_call_end" for event in events),
        "allowed": len(allowed),
        "refused": len(decisions) - len(allowed),
        "writes": sum(event["call"]["tool_name"] == "write" for event in allowed),
    }


def _told(root: Path, number: int, wanted: dict[str, int]) -> list[str]:
    """What the agent met and what the summary says."""
    faults = []
    said = json.loads((root / "shimmed" / f"out-{number}").read_text())
    if said != {"run": number, "refused": wanted["refused"]}:
        faults.append(f"run {number}: the agent met {said['refused']} refusals")
    summary = json.loads((root / "shimmed" / f"run-{number}" / "summary.json").read_text())
    figures = (summary["calls_total"], summary["calls_blocked"], summary["problems"], summary["exit_code"])
    if figures != (wanted["calls"], wanted["refused"], [], 1 if wanted["refused"] else 0):
        faults.append(f"run {number}: summary.json says {figures}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--plain", action="store_true", help="also without Subluminal, for the ratio")
    parser.add_argument("--keep", metavar="DIR", help="keep the bundles and logs there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as", dest="role", choices=("agent", "server"), help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--shimmed", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "server":
        server()
        return 0
    if given.role == "agent":
        agent(given.run, given.calls, given.shimmed)
        return 0
    with tempfile.TemporaryDirectory(prefix="sub-bench-ci-") as scratch:
        root = Path(given.keep or scratch).resolve()
        report: dict[str, Any] = {"runs": given.runs, "calls_each": given.calls}
        report["shimmed"] = run_all(root, given.runs, given.calls, True)
        if given.plain:
            report["plain"] = run_all(root, given.runs, given.calls, False)
        faults = check(root, given.runs, given.calls)
    if report["shimmed"]["left"]:
        faults.append(f"{report['shimmed']['left']} processes were left behind")
    report["faults"] = faults
    print(json.dumps(report) if given.json else json.dumps(report, indent=2))
    if given.plain:
        keep_table(report)
    return 1 if faults else 0


def keep_table(report: dict[str, Any]) -> None:
    import figures

    names = {"wall_s": "whole time, s", "calls_per_s": "calls/s", "peak_pss_mib": "peak memory (PSS), MiB"}
    rows = []
    for key, name in names.items():
        plain, shimmed = report["plain"][key], report["shimmed"][key]
        rows.append((name, f"{plain:,}", f"{shimmed:,}", f"{shimmed / plain:.2f}x"))
    rows.append(("processes left", report["plain"]["left"], report["shimmed"]["left"], ""))
    rows.append(("faults in records, counts and seals", "", len(report["faults"]), ""))
    what = f"{report['runs']} runs at once, {report['calls_each']} calls each"
    load = f"Load average at the end, on {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}."
    figures.save("ci", f"{figures.table((what, 'without', 'with', ''), rows)}\n\n{load}")


if __name__ == "__main__":
    sys.exit(main())
