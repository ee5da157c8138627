"""Many shims on one run, beside as many in runs of their own: what sharing a run's state costs.

    python bench/crowd.py [--shims 1,8,64] [--seconds 8] [--rounds 3] [--sub PATH ...]

Real shims before C echo servers, five rules with run-scoped state. Open loop: calls are sent at times fixed beforehand,
half of what one shim can do, and each is timed from when it was due. Saturated: four calls outstanding at each shim.
`--sub` names further installations to be measured in turn, for before and after. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from figures import save, table
from shim import BUILD, SUB, build

MANY = 1_000_000_000
EFFECTS: dict[str, dict[str, object]] = {
    "budget": {"limit_calls": MANY, "on_exceed": "BLOCK"},
    "rate_limit": {
        "capacity": MANY, "refill_tokens": MANY, "refill_period_ms": 1, "on_limit": "THROTTLE", "backoff_ms": 100
    },
    "breaker": {"error_threshold": 5, "window_ms": 1000, "on_trip": "BLOCK"},
}  # fmt: skip
RULES = [
    {
        "rule_id": f"{kind}-{number}",
        "kind": kind,
        "enabled": True,
        "severity": "warn",
        "match": {},
        "effect": {kind: {"scope": "run", **EFFECTS[kind]}},
    }
    for number, kind in enumerate(("budget", "budget", "budget", "rate_limit", "breaker"))
]
POLICY = {"policy_id": "crowd", "version": "1", "mode": "guardrails", "selectors": {}, "rules": RULES}
OUTSTANDING = 4
DRAIN_S = 20.0


class Crowd:
    def __init__(self, sub: str, shims: int, one_run: bool, home: str) -> None:
        policy = Path(home) / "crowd.yaml"
        policy.write_text(json.dumps({**POLICY, "defaults": {"decision_on_error": "BLOCK"}}), encoding="utf-8")
        self.processes = []
        self.poll = select.epoll()
        self.by_fd: dict[int, int] = {}
        self.parts = [b""] * shims
        self.refused = 0
        for number in range(shims):
            run_id = "crowd" if one_run else f"alone-{number}"
            environ = {**os.environ, "SUB_HOME": home, "SUB_RUN_ID": run_id, "SUB_LEDGER_IDLE_S": "2"}
            command = [sub, "shim", "--server-name", f"s{number}", "--policy", str(policy), "--", str(BUILD / "echo")]
            process = subprocess.Popen(command, env=environ, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self.by_fd[process.stdout.fileno()] = number
            self.poll.register(process.stdout.fileno(), select.EPOLLIN)
            self.processes.append(process)
        for number in range(shims):
            self.send(number, 0)
        self.wait_for(set(range(shims)), 60)

    def send(self, shim: int, call: int) -> None:
        stdin = self.processes[shim].stdin
        assert stdin is not None
        params = b'{"name":"echo","arguments":{"text":"%d %s"}}' % (call, b"x" * 60)
        os.write(stdin.fileno(), b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}\n' % (call, params))

    def replies(self, timeout: float) -> list[tuple[int, int]]:
        """(shim, call) of what has come."""
        found = []
        for fd, _ in self.poll.poll(timeout):
            shim = self.by_fd[fd]
            data = os.read(fd, 1 << 16)
            if not data:
                self.poll.unregister(fd)
                continue
            *lines, self.parts[shim] = (self.parts[shim] + data).split(b"\n")
            for line in lines:
                at = line.find(b'"id":')
                call = int(line[at + 5 :].split(b",")[0].split(b"}")[0])
                self.refused += b'"error":' in line
                found.append((shim, call))
        return found

    def wait_for(self, shims: set[int], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while shims and time.monotonic() < give_up:
            shims -= {shim for shim, _ in self.replies(0.5)}
        if shims:
            sys.exit(f"bench: {len(shims)} shims did not start")

    def open_loop(self, rate: float, seconds: float) -> dict[str, float]:
        self.refused = 0
        calls = int(rate * seconds)
        due: dict[int, float] = {}
        late: list[float] = []
        began, sent = time.monotonic(), 0
        while len(late) < calls:
            now = time.monotonic() - began
            while sent < calls and sent / rate <= now:
                sent += 1
                due[sent] = (sent - 1) / rate
                self.send(sent % len(self.processes), sent)
            pause = max(0.0, sent / rate - (time.monotonic() - began)) if sent < calls else 1.0
            for _, call in self.replies(min(pause, 1.0)):
                late.append(time.monotonic() - began - due.pop(call))
            if now > seconds + DRAIN_S:
                break
        late.sort()
        unanswered = calls - len(late)
        return {
            "p50_ms": late[len(late) // 2] * 1e3,
            "p99_ms": late[int(len(late) * 0.99)] * 1e3,
            "lost": self.refused + unanswered,
        }

    def saturated(self, seconds: float) -> dict[str, float]:
        self.refused = 0
        call = 1_000_000
        for shim in range(len(self.processes)):
            for _ in range(OUTSTANDING):
                call += 1
                self.send(shim, call)
        answered, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            for shim, _ in self.replies(0.2):
                answered += 1
                call += 1
                self.send(shim, call)
        return {"calls_per_s": answered / (time.monotonic() - began), "refused": self.refused}

    def end(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def measure(sub: str, shims: int, one_run: bool, rate: float, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        crowd = Crowd(sub, shims, one_run, home)
        try:
            figures = crowd.saturated(seconds / 2)
            crowd_rate = rate or figures["calls_per_s"] / 2
            crowd.wait_for(set(range(shims)), 20)
            while crowd.replies(0.5):
                pass
            figures |= crowd.open_loop(crowd_rate, seconds)
        finally:
            crowd.end()
            subprocess.run([sub, "ledgerd", "--stop"], env={**os.environ, "SUB_HOME": home}, capture_output=True)
    return {**figures, "rate": crowd_rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shims", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sub", action="append", default=[])
    arguments = parser.parse_args()
    build()
    rows = []
    for sub in [*arguments.sub, str(SUB)]:
        rate = 0.0
        for shims in map(int, arguments.shims.split(",")):
            found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
            for _ in range(arguments.rounds):
                for one_run in (False, True):
                    found[one_run].append(measure(sub, shims, one_run, rate, arguments.seconds))
            if not rate:
                rate = median(figures["calls_per_s"] for figures in found[True]) / 2
            middle = {kind: {key: median(f[key] for f in found[kind]) for key in found[kind][0]} for kind in found}
            alone, shared = middle[False], middle[True]
            rows.append(
                (
                    f"{shims} ({sub})" if arguments.sub else shims,
                    f"{rate:,.0f}",
                    *(f"{shared[key]:,.2f} / {alone[key]:,.2f}" for key in ("p50_ms", "p99_ms")),
                    f"{shared['p99_ms'] / alone['p99_ms']:.2f}x",
                    f"{shared['calls_per_s']:,.0f} / {alone['calls_per_s']:,.0f}",
                    f"{shared['calls_per_s'] / alone['calls_per_s']:.2f}x",
                    f"{sum(f['lost'] + f['refused'] for f in found[True]):.0f}",
                )
            )
            print(rows[-1], flush=True)
    header = ("shims", "calls/s offered", "p50 ms, one run / own runs", "p99 ms", "", "saturated calls/s", "", "lost")
    text = table(header, rows)
    print(text)
    save("crowd", text)


if __name__ == "__main__":
    main()
