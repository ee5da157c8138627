"""The fleet at the size of a million agents, as a small simulation: what `bench/scale.py` prints.

Machines, collectors and the store are a few numbers each. A simulated machine stands for many; what they share (the
pool of collectors) is scaled by the same number, so that ratios, waits and lags are those of the whole. Everything is
drawn from one seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from subluminal.fleet.keeper.keeper import JITTER
from subluminal.fleet.keeper.keeper import RETRY_S as POLL_AGAIN_S
from subluminal.fleet.segments import TARGET_BYTES
from subluminal.fleet.shipping.task import IDLE_S
from subluminal.fleet.waiting import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    RETRY_S,
    RETRY_SPREAD,
    retry_after_s,
    wait_s,
)

GB = 1e9


@dataclass(frozen=True)
class Fleet:
    """Measured here where it says so; every field is an option of `bench/scale.py`."""

    agents: int = 1_000_000
    calls_per_s: float = 1_000_000.0
    machines: int = 100_000
    events_per_call: float = 3.0
    event_bytes: float = 790.0  # measured: an event as JSON
    wire_bytes: float = 35.0  # measured: zstd, 300 lines together; real data are less alike
    wire_factor: float = 3.0  # what to plan for instead
    stored_bytes: float = 54.0  # measured: ClickHouse, the exact line kept
    stored_factor: float = 2.5
    collector_events_per_s: float = 30_000.0  # measured: one collector, two cores
    store_mb_per_core_s: float = 30.0  # measured: chDB, not replicated
    planned_mb_per_core_s: float = 10.0  # ClickStack's own advice, replicas and merges included
    segment_events: float = float(TARGET_BYTES // 790)
    ship_every_s: float = IDLE_S
    queue_s: float = 2.0  # what a pool of collectors takes on before it answers 503
    reject_ms: float = 0.2  # assumed: what a 503 costs a collector
    price_gb_month: float = 0.023  # assumed: object storage

    @property
    def events_per_s(self) -> float:
        return self.calls_per_s * self.events_per_call

    @property
    def collectors(self) -> int:
        return -int(-self.events_per_s // self.collector_events_per_s)

    @property
    def machine_events_per_s(self) -> float:
        return self.events_per_s / self.machines


# How long a shipper waits after its n-th refusal in a row (from 1).
Wait = Callable[[Random, int], float]
IN_STEP = f"doubling to {LONGEST_WAIT_S:g} s"
TOLD = f"Retry-After of {RETRY_S:g} to {RETRY_S * RETRY_SPREAD:g} s"
JITTERED = f"ours: {TOLD} at least, {IN_STEP}, jittered"
WAITS: dict[str, Wait] = {
    "1 s, always": lambda dice, n: 1.0,
    IN_STEP: lambda dice, n: min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(n, 16)),
    f"{TOLD} alone": lambda dice, n: retry_after_s(dice=dice),
    JITTERED: lambda dice, n: wait_s(n, retry_after_s(dice=dice), dice) * dice.uniform(1 - JITTER, 1),
}


# As long as any shipper may wait.
LOOK_S = 2 * LONGEST_WAIT_S


class Pool:
    """All collectors as one queue of work, in seconds of the whole pool."""

    def __init__(self, fleet: Fleet, simulated: int, headroom: float) -> None:
        stands_for = fleet.machines / simulated
        self._events_per_s = simulated * fleet.machine_events_per_s * headroom
        self._reject_s = stands_for * fleet.reject_ms / 1000 / (fleet.collectors * headroom)
        self._queue_s = fleet.queue_s
        self._busy_until = 0.0

    def offer(self, now: float, events: float, is_down: bool) -> float | None:
        """When the segment is acknowledged; None: 503."""
        busy = max(now, self._busy_until)
        if is_down or busy - now > self._queue_s:
            self._busy_until = busy + self._reject_s
            return None
        self._busy_until = busy + events / self._events_per_s
        return self._busy_until


@dataclass
class Recovery:
    """`drained_s`: after the store is back. `requests_per_s`: of the whole fleet, of those who were refused before, in
    the worst tenth of a second of the `LOOK_S` after that."""

    spool_bytes: float
    drained_s: float
    requests_per_s: float
    refused: float  # of all requests after the store was back
    goodput: float  # of what the pool could have taken in the first five minutes after


class _Machine:
    __slots__ = ("refusals", "sent")

    def __init__(self) -> None:
        self.sent = 0.0  # events that were acknowledged
        self.refusals = 0


def outage(
    fleet: Fleet, *, down_s: float, headroom: float, wait: str, simulated: int, seed: int, limit_s: float = 40_000.0
) -> Recovery:
    """The store is away from 0 to `down_s`; every machine goes on making events, and ships them when it can.

    All of them notice within 50 ms, as when a load balancer drops every connection: without jitter they stay in step.
    """
    dice = Random(f"{seed} outage {wait} {headroom}")
    pool, rate = Pool(fleet, simulated, headroom), fleet.machine_events_per_s
    machines = [_Machine() for _ in range(simulated)]
    due = [(dice.random() * 0.05, number) for number in range(simulated)]
    heapq.heapify(due)
    behind, drained_at, taken_soon, requests, refused = simulated, 0.0, 0.0, 0, 0
    caught_up = [False] * simulated
    tenths = [0] * int(LOOK_S * 10)
    while due and behind and due[0][0] < limit_s:
        now, number = heapq.heappop(due)
        machine = machines[number]
        events = min(fleet.segment_events, rate * now - machine.sent)
        acked = pool.offer(now, events, now < down_s)
        if now >= down_s:
            requests += 1
            if machine.refusals and now < down_s + LOOK_S:
                tenths[int((now - down_s) * 10)] += 1
        if acked is None:
            refused += now >= down_s
            machine.refusals += 1
            heapq.heappush(due, (now + WAITS[wait](dice, machine.refusals), number))
            continue
        machine.refusals = 0
        machine.sent += events
        if acked < down_s + 300:
            taken_soon += events
        if not caught_up[number] and rate * acked - machine.sent <= rate * 2 * fleet.ship_every_s:
            caught_up[number], behind, drained_at = True, behind - 1, max(drained_at, acked)
        more = rate * acked - machine.sent >= fleet.segment_events
        heapq.heappush(due, (acked if more else max(acked, now + fleet.ship_every_s), number))
    worst = max(tenths) * 10 * fleet.machines / simulated
    possible = simulated * rate * min(headroom * 300.0, down_s + 300.0)
    return Recovery(
        spool_bytes=rate * down_s * fleet.event_bytes,
        drained_s=(drained_at - down_s) if not behind else float("inf"),
        requests_per_s=worst,
        refused=refused / max(1, requests),
        goodput=taken_soon / possible,
    )


@dataclass
class Reach:
    half_s: float
    most_s: float
    nearly_all_s: float
    requests_per_s: float


def stop_reach(fleet: Fleet, *, poll_s: float, cached_s: float, failing: float, simulated: int, seed: int) -> Reach:
    """Seconds until 50, 99 and 99.9 % of the machines obey a stop. Each polls at a phase of its own; edges keep what
    they have for up to `cached_s`; a poll fails by chance, and the next one comes as the keeper has it."""
    dice = Random(f"{seed} stop {poll_s} {cached_s} {failing}")
    times = []
    for _ in range(simulated):
        visible = dice.random() * cached_s
        at = dice.random() * poll_s
        while (failed := dice.random() < failing) or at < visible:
            at += (min(poll_s, POLL_AGAIN_S) if failed else poll_s) * dice.uniform(1 - JITTER, 1)
        times.append(at + dice.expovariate(1 / 0.1))
    times.sort()
    return Reach(
        times[simulated // 2], times[int(simulated * 0.99)], times[int(simulated * 0.999)], fleet.machines / poll_s
    )


@dataclass
class Shards:
    worst: float  # of what one shard can take
    overloaded: int
    lag_min_per_h: float


def hot_tenant(
    *, shards: int, headroom: float, by_run: bool, hot_tenant: float, hot_run: float, seed: int, runs: int = 20_000
) -> Shards:
    """`hot_tenant`, `hot_run`: their part of everything that comes in. The rest is of 1,000 tenants by Zipf's law."""
    dice = Random(f"{seed} shards {by_run} {hot_tenant} {hot_run}")
    weights = [1 / (rank + 1) for rank in range(1_000)]
    home = [dice.randrange(shards) for _ in weights]
    load = [0.0] * shards
    rest = 1.0 - hot_tenant - hot_run
    sizes = [dice.expovariate(1.0) for _ in range(runs)]
    owners = dice.choices(range(len(weights)), weights, k=runs)
    each = rest / sum(sizes)
    for size, owner in zip(sizes, owners, strict=True):
        load[dice.randrange(shards) if by_run else home[owner]] += each * size
    if by_run:
        for _ in range(runs // 10):
            load[dice.randrange(shards)] += hot_tenant / (runs // 10)
    else:
        load[0] += hot_tenant
    load[1] += hot_run
    worst = max(load) * shards / headroom
    overloaded = sum(part * shards / headroom > 1 for part in load)
    return Shards(worst, overloaded, max(0.0, worst - 1) * 60)


@dataclass
class Rollout:
    resent_events: float
    duplicate_events: float
    lost_events: float
    wait_p99_s: float


def rolling_restart(fleet: Fleet, *, drained: bool, group_s: float, commit_s: float, seed: int) -> Rollout:
    """Every collector once. What one has not acknowledged is sent again, to another; what the store had taken by then
    is there twice, and merged away. Drained: it takes nothing new, commits, answers, and only then ends."""
    dice = Random(f"{seed} restart {drained}")
    per_collector = fleet.events_per_s / fleet.collectors
    resent = duplicate = 0.0
    waits: list[float] = []
    for _ in range(fleet.collectors):
        phase = dice.random() * (group_s + commit_s)
        gathered = per_collector * min(phase, group_s)
        committing = per_collector * (group_s + commit_s) if phase > group_s else 0.0
        if drained:
            waits.append(max(0.0, group_s + commit_s - phase))
            continue
        resent += gathered + committing
        duplicate += committing  # the insert is under way: the store ends it without us
        waits.append(phase + wait_s(1, 0.0, dice) + group_s + commit_s)  # nobody answers; then another does
    waits.sort()
    return Rollout(resent, duplicate, 0.0, waits[int(len(waits) * 0.99)])


def storage_bytes(fleet: Fleet, days: float, *, planned: bool) -> float:
    each = fleet.stored_bytes * (fleet.stored_factor if planned else 1.0)
    return fleet.events_per_s * 86_400 * days * each
