"""A thousandth of the fleet against a real collector: how long an outage takes to make good, there and in the model.

`bench/scale.py --against URL --token-env NAME` runs it. The machines are tasks of this process; each has a run of its
own, whose lines a real gate has judged, and ships as shippers do: full segments while it is behind, then once a second.
The outage is on their side: they begin with what has gathered in it. They share the cores with the collector.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from dataclasses import dataclass, field, replace
from time import monotonic

import aiohttp
import figures
import recorded
import scale_model as model
from scale_model import Fleet

from subluminal.fleet.segments import CONTENT_TYPE, Segment, encode
from subluminal.fleet.waiting import wait_s

SCALE = 1_000
STEADY_S = 15.0


@dataclass
class Seen:
    began: float = 0.0
    acked: int = 0
    refused: int = 0
    catching_up_ms: list[float] = field(default_factory=list)
    steady_ms: list[float] = field(default_factory=list)
    caught_up: list[float] = field(default_factory=list)
    acked_by_then: int = 0


class Machine:
    """`lines`: its whole run; those of the outage are cut into segments beforehand."""

    def __init__(self, number: int, lines: list[bytes], rate: float, fleet: Fleet, down_s: float) -> None:
        self.run_id, self.shim_id = f"scale-{number}", f"scale-shim-{number}"
        self.lines, self.rate, self.down_s = lines, rate, down_s
        self.sent = 0
        self.most = int(fleet.segment_events)
        behind = int(rate * down_s)
        self.ready = [self.cut(at, min(at + self.most, behind)) for at in range(0, behind, self.most)]

    def cut(self, begin: int, end: int) -> tuple[int, bytes]:
        part = self.lines[begin:end]
        return end, encode(Segment(self.run_id, self.shim_id, begin + 1, part, [(begin + 1, len(part))]))

    def made(self, now_s: float) -> int:
        return min(len(self.lines), int(self.rate * (self.down_s + now_s)))

    def next(self, now_s: float) -> tuple[int, bytes] | None:
        if self.ready:
            return self.ready.pop(0)
        made = self.made(now_s)
        return self.cut(self.sent, min(made, self.sent + self.most)) if made > self.sent else None


async def ship(machine: Machine, session: aiohttp.ClientSession, url: str, seen: Seen, until: asyncio.Event) -> None:
    dice = random.Random(machine.run_id)
    await asyncio.sleep(dice.random() * 0.05)
    is_behind = True
    while not until.is_set():
        began = monotonic()
        segment = machine.next(began - seen.began)
        if segment is not None:
            await _send(segment[1], session, url, seen, dice)
            seen.acked += segment[0] - machine.sent
            machine.sent = segment[0]
            (seen.catching_up_ms if is_behind else seen.steady_ms).append((monotonic() - began) * 1000)
        now_s = monotonic() - seen.began
        left = machine.made(now_s) - machine.sent
        if is_behind and not machine.ready and left <= machine.rate * 2:
            is_behind = False
            seen.caught_up.append(now_s)
            seen.acked_by_then = seen.acked
        if not machine.ready and left < machine.most:
            await asyncio.sleep(max(0.0, began + 1.0 - monotonic()))


async def _send(body: bytes, session: aiohttp.ClientSession, url: str, seen: Seen, dice: random.Random) -> None:
    refused = 0
    while True:
        async with session.post(f"{url}/v1/segments", data=body, headers={"Content-Type": CONTENT_TYPE}) as answer:
            await answer.read()
            if answer.status == 200:
                return
            if answer.status not in (429, 503):
                raise SystemExit(f"scale: the collector answered {answer.status}")
            seen.refused += 1
            refused += 1
            told_s = float(answer.headers.get("Retry-After", "0"))
        await asyncio.sleep(wait_s(refused, told_s, dice))


async def _run(machines: list[Machine], url: str, token: str) -> Seen:
    seen, until = Seen(), asyncio.Event()
    connector = aiohttp.TCPConnector(limit=len(machines))
    async with aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"}) as session:
        seen.began = monotonic()
        tasks = [asyncio.ensure_future(ship(machine, session, url, seen, until)) for machine in machines]
        while len(seen.caught_up) < len(machines):
            done = [task for task in tasks if task.done()]
            if done:
                await done[0]
            await asyncio.sleep(0.05)
        await asyncio.sleep(STEADY_S)
        until.set()
        await asyncio.gather(*tasks)
    return seen


def against(fleet: Fleet, url: str, token: str, down_s: float, seed: int) -> str:
    small = replace(
        fleet,
        agents=fleet.agents // SCALE,
        calls_per_s=fleet.calls_per_s / SCALE,
        machines=max(1, fleet.machines // SCALE),
    )
    rate = small.machine_events_per_s
    each = int(rate * (down_s * 3 + 120) / 3)
    machines = []
    for number in range(small.machines):
        lines = list(recorded.calls(f"scale-{number}", f"scale-shim-{number}", each, seed + number))
        machines.append(Machine(number, [one for line in lines for one in line.splitlines()], rate, small, down_s))
    seen = asyncio.run(_run(machines, url.rstrip("/"), token))
    drained_s = max(seen.caught_up)
    capacity = seen.acked_by_then / drained_s
    found = _modelled(small, capacity, down_s, seed)
    given = _modelled(small, fleet.collector_events_per_s, down_s, seed)
    rows = [
        ("events a second while catching up", f"{capacity:,.0f}", f"{fleet.collector_events_per_s:,.0f} (given)"),
        (
            f"all caught up after {down_s:g} s of outage",
            f"{drained_s:.1f} s",
            f"{found:.1f} s with the measured rate, {given:.1f} s with the given one",
        ),
        ("refused meanwhile", f"{seen.refused}", "not modelled: nobody is turned away"),
        ("ack while catching up, p50 / p99", _quantiles(seen.catching_up_ms), "not modelled"),
        ("ack afterwards, p50 / p99", _quantiles(seen.steady_ms), "not modelled"),
        ("events acknowledged in all", f"{seen.acked:,}", ""),
    ]
    return figures.table((f"1/{SCALE:,} of the fleet: {small.machines} machines", "real collector", "model"), rows)


def _modelled(small: Fleet, capacity: float, down_s: float, seed: int) -> float:
    """Seconds until all have caught up. They come at once, and wait in the collector's queue."""
    told = replace(small, collector_events_per_s=capacity, queue_s=1e9)
    headroom = capacity / small.events_per_s
    wait = "1 s, always"
    return model.outage(
        told, down_s=down_s, headroom=headroom, wait=wait, simulated=small.machines, seed=seed
    ).drained_s


def _quantiles(values: list[float]) -> str:
    if len(values) < 2:
        return "too few"
    cuts = statistics.quantiles(values, n=100)
    return f"{cuts[49]:.0f} / {cuts[98]:.0f} ms"
