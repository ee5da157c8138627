"""How long a proposal takes that looks at 100,000 past calls: `sub promote CALL --persist --dry-run`.

    python bench/promote.py [CALLS]

Prints wall time and CPU time of the command, of `sub policy check` over the same ledger, and of `sub version` (what any
command costs). Half of the calls are of the tool that the change is about; the policy has 2,000 lines.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness.ledger import EventMaker
from subluminal.contracts.canonical import args_hash
from subluminal.ledger.store.writer import Store
from subluminal.policy.compile.bundle import compile_bundle

CALLS_A_RUN = 100


def policy_text() -> str:
    head = (
        "policy_id: mine\nversion: '1'\nmode: guardrails\ndefaults: {decision_on_error: BLOCK}\nselectors: {}\nrules:\n"
    )
    rule = (
        "  # rule {0}\n  - rule_id: r{0}\n    kind: deny\n    match: {{tool_name: {{glob: [t{0}]}}}}\n"
        "    effect: {{action: BLOCK}}\n"
    )
    main = (
        "  - rule_id: no-main\n    kind: deny\n"
        "    match: {tool_name: {glob: [push]}, args: {key_equals: {branch: main}}}\n"
        "    effect: {action: BLOCK}\n  - rule_id: often\n    kind: budget\n    match: {}\n"
        "    effect: {budget: {scope: run, limit_calls: 1000000, on_exceed: BLOCK}}\n"
    )
    return head + "".join(rule.format(number) for number in range(398)) + main


def fill(home: Path, calls: int, policy: str) -> None:
    snapshot = compile_bundle(policy.encode(), "policy.yaml")
    ref = {"policy_id": "mine", "policy_version": "1", "policy_hash": snapshot["policy_hash"]}
    store = Store(str(home / "ledger.db"))
    for number in range(calls // CALLS_A_RUN):
        maker = EventMaker(f"run-{number}", f"shim-{number}", start_ms=1_700_000_000_000 + number * 1_000_000)
        lines = [maker.run_start(policy=ref)]
        for n in range(CALLS_A_RUN):
            refused = n % 20 == 0
            args = {"branch": "main" if refused else f"b{n}", "note": "x" * 60}
            start = json.loads(maker.start("push" if n % 2 == 0 else "pull", "git", preview=json.dumps(args)))
            maker.reference["args_hash"] = start["call"]["args_hash"] = args_hash(args)
            lines.append(json.dumps(start).encode())
            lines.append(
                maker.decision("BLOCK" if refused else "ALLOW", policy=ref, rule_id="no-main" if refused else None)
            )
            lines.append(maker.end("ERROR" if refused else "OK"))
        lines.append(maker.run_end())
        store.write(lambda lines=lines: [store.add(line) for line in lines])  # type: ignore[misc]
    store.close()


def timed(home: Path, *words: str) -> tuple[float, float, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUB_")}
    env |= {"SUB_HOME": str(home), "HOME": str(home)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "subluminal", *words], env=env, cwd=home, capture_output=True, text=True, check=False
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu, done.stdout


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        policy = policy_text()
        (home / "policy.yaml").write_text(policy)
        fill(home, calls, policy)
        timed(home, "runs", "--limit", "1")
        for words in (
            ("version",),
            ("policy", "check", "policy.yaml", "--against", "ledger", "--json"),
            ("promote", "shim-0-1", "--persist", "--dry-run", "--json"),
            ("hints", "--json"),
        ):
            took, cpu, _ = timed(home, *words)
            print(f"sub {words[0]:8} {took:6.2f} s  {cpu:6.2f} s of CPU")


if __name__ == "__main__":
    main()
