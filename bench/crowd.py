"""Many shims on one run, beside as many in runs of their own: what sharing a run's state costs.

    python bench/crowd.py [--shims 1,8,64] [--seconds 2] [--rounds 12] [--rate CALLS] [--sub PATH ...]

Real shims before C echo servers, five rules with run-scoped state. Saturated: four calls outstanding at each shim. Open
loop: calls are sent at times fixed beforehand, at half the rate that saturates one shim (or at `--rate`), and each is
timed from when it was due.

The speed of a machine changes from second to second, by more than what is looked for. So all crowds of one size are
there at once, and warm; they are measured in turn for a short time each, in many rounds, every second one in the other
order; and each when the machine has come to rest, so that none waits for what another left to the ledger's daemon.
Figures are of all calls of all rounds: nothing slow is left out. Beside a ratio stand the quartiles of the rounds' own.
With one shim both crowds are the same, and how far its ratios are from 1 is noise. `--sub` names further installations
to be measured in the same rounds, for before and after. Needs a C compiler.
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
from statistics import mean, median

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
REST_S, REST_SHARE, MOST_REST_S = 0.2, 0.9, 10.0


class Crowd:
    def __init__(self, sub: str, shims: int, one_run: bool) -> None:
        self.sub = sub
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        policy = Path(self.home.name) / "crowd.yaml"
        policy.write_text(json.dumps({**POLICY, "defaults": {"decision_on_error": "BLOCK"}}), encoding="utf-8")
        self.environ = {**os.environ, "SUB_HOME": self.home.name, "SUB_LEDGER_IDLE_S": "2"}
        self.processes = []
        self.poll = select.epoll()
        self.by_fd: dict[int, int] = {}
        self.parts = [b""] * shims
        self.calls = self.lost = 0
        self.open: set[int] = set()
        for number in range(shims):
            environ = {**self.environ, "SUB_RUN_ID": "crowd" if one_run else f"alone-{number}"}
            command = [sub, "shim", "--server-name", f"s{number}", "--policy", str(policy), "--", str(BUILD / "echo")]
            process = subprocess.Popen(command, env=environ, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self.by_fd[process.stdout.fileno()] = number
            self.poll.register(process.stdout.fileno(), select.EPOLLIN)
            self.processes.append(process)
        for number in range(shims):
            self.send(number)
        self.drain(60)
        if self.lost:
            sys.exit(f"bench: {self.lost} shims did not start")

    def send(self, shim: int) -> int:
        stdin = self.processes[shim].stdin
        assert stdin is not None
        self.calls = call = self.calls + 1
        self.open.add(call)
        params = b'{"name":"echo","arguments":{"text":"%d %s"}}' % (call, b"x" * 60)
        os.write(stdin.fileno(), b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}\n' % (call, params))
        return call

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
                if call in self.open:
                    self.open.remove(call)
                    self.lost += b'"error":' in line
                    found.append((shim, call))
        return found

    def drain(self, seconds: float) -> None:
        """Until every call is answered; those that are not by then are lost."""
        give_up = time.monotonic() + seconds
        while self.open and time.monotonic() < give_up:
            self.replies(0.2)
        self.lost += len(self.open)
        self.open.clear()

    def open_loop(self, rate: float, seconds: float) -> list[float]:
        """How many milliseconds after it was due each call was answered."""
        calls = int(rate * seconds)
        due: dict[int, float] = {}
        late: list[float] = []
        began, sent = time.monotonic(), 0
        while len(late) < calls:
            now = time.monotonic() - began
            while sent < calls and sent / rate <= now:
                due[self.send(sent % len(self.processes))] = sent / rate
                sent += 1
            pause = max(0.0, sent / rate - (time.monotonic() - began)) if sent < calls else 1.0
            for _, call in self.replies(min(pause, 1.0)):
                late.append((time.monotonic() - began - due.pop(call)) * 1e3)
            if now > seconds + DRAIN_S:
                break
        self.drain(0)
        return late

    def saturated(self, seconds: float) -> float:
        """Calls in a second."""
        for shim in range(len(self.processes)):
            for _ in range(OUTSTANDING):
                self.send(shim)
        answered, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            for shim, _ in self.replies(0.2):
                answered += 1
                self.send(shim)
        rate = answered / (time.monotonic() - began)
        self.drain(DRAIN_S)
        return rate

    def end(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        subprocess.run([self.sub, "ledgerd", "--stop"], env=self.environ, capture_output=True, check=False)
        self.home.cleanup()


def idle() -> tuple[int, int]:
    """Of all processors: ticks without work, and all ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks[:8])


def come_to_rest() -> None:
    give_up = time.monotonic() + MOST_REST_S
    while time.monotonic() < give_up:
        before = idle()
        time.sleep(REST_S)
        rested, passed = (now - then for now, then in zip(idle(), before, strict=True))
        if rested >= REST_SHARE * passed:
            return
    print(f"bench: the machine did not come to rest within {MOST_REST_S:.0f} s", file=sys.stderr)


def half_of_one(sub: str, seconds: float, rounds: int) -> float:
    crowd = Crowd(sub, 1, True)
    try:
        crowd.saturated(seconds)
        return median(crowd.saturated(seconds / 2) for _ in range(rounds)) / 2
    finally:
        crowd.end()


class Figures:
    """Of one crowd: what was found in each round."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.late: list[list[float]] = []
        self.lost = 0

    def all_late(self, share: float) -> float:
        return at(share, [ms for late in self.late for ms in late])


def at(share: float, figures: list[float]) -> float:
    return sorted(figures)[int(len(figures) * share)]


def measure(subs: list[str], shims: int, rate: float, seconds: float, rounds: int) -> dict[tuple[str, bool], Figures]:
    """Of each installation, in one run and in runs of their own."""
    kinds = [(sub, one_run) for sub in subs for one_run in (False, True)]
    crowds: dict[tuple[str, bool], Crowd] = {}
    found = {kind: Figures() for kind in kinds}
    try:
        for kind in kinds:
            crowds[kind] = Crowd(kind[0], shims, kind[1])
            crowds[kind].saturated(seconds)
        for number in range(rounds):
            turns = kinds[::-1] if number % 2 else kinds
            for kind in turns:
                come_to_rest()
                found[kind].rates.append(crowds[kind].saturated(seconds / 2))
            for kind in turns:
                come_to_rest()
                found[kind].late.append(crowds[kind].open_loop(rate, seconds))
    finally:
        for kind, crowd in crowds.items():
            found[kind].lost = crowd.lost
            crowd.end()
    return found


def ratio(whole: float, shared: list[float], alone: list[float]) -> str:
    each = [one / other for one, other in zip(shared, alone, strict=True)]
    return f"{whole:.2f}x ({at(0.25, each):.2f} to {at(0.75, each):.2f})"


def row(shims: str, rate: float, shared: Figures, alone: Figures) -> list[str]:
    p50, p99 = ((shared.all_late(share), alone.all_late(share)) for share in (0.5, 0.99))
    rates = mean(shared.rates), mean(alone.rates)
    slowest = [[at(0.99, late) for late in figures.late] for figures in (shared, alone)]
    return [
        shims,
        f"{rate:,.0f}",
        *(f"{one:,.2f} / {other:,.2f}" for one, other in (p50, p99)),
        ratio(p99[0] / p99[1], *slowest),
        "{:,.0f} / {:,.0f}".format(*rates),
        ratio(rates[0] / rates[1], shared.rates, alone.rates),
        str(shared.lost),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shims", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--sub", action="append", default=[])
    arguments = parser.parse_args()
    build()
    subs = [*arguments.sub, str(SUB)]
    rate = arguments.rate or half_of_one(str(SUB), arguments.seconds, arguments.rounds)
    rows = []
    for shims in map(int, arguments.shims.split(",")):
        found = measure(subs, shims, rate, arguments.seconds, arguments.rounds)
        for sub in subs:
            name = f"{shims} ({sub})" if arguments.sub else str(shims)
            rows.append(row(name, rate, found[sub, True], found[sub, False]))
            print(rows[-1], flush=True)
    header = ("shims", "calls/s offered", "p50 ms, one run / own runs", "p99 ms", "", "saturated calls/s", "", "lost")
    text = table(header, rows)
    print(text)
    save("crowd", text)


if __name__ == "__main__":
    main()
