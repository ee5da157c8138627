"""What a fleet of a million agents needs and how it fails, simulated: docs/scale.md is what this prints.

    python bench/scale.py > docs/scale.md
    python bench/scale.py --calls-per-s 50000 --machines 4000           a fleet of another size
    python bench/scale.py --simulated 4000                              finer: more machines are simulated
    python bench/scale.py --against http://127.0.0.1:7790 --token-env TOKEN    a thousandth, against a real collector

Deterministic: the same options give the same page. The figures that it starts from were measured on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from urllib.parse import urlsplit

import figures
import scale_model as model
from scale_model import GB, JITTERED, WAITS, Fleet

from subluminal.fleet.collector.serving import Settings

GATHER_S = Settings(store="").commit_ms / 1000


def intro(fleet: Fleet, simulated: int, seed: int) -> str:
    return f"""# Scale

This page is printed by `bench/scale.py` (seed {seed}, {simulated} simulated machines); a test holds it to that. It is a
simulation, started from figures that were measured on two cores of one machine (`sub` and chDB; ± a factor of two) and
not from a cluster: replication, sharding and real networks were not available. Read the ratios, and measure your own.

The fleet: {fleet.agents:,} agents on {fleet.machines:,} machines, {fleet.calls_per_s:,.0f} tool calls a second."""


def sizing(fleet: Fleet) -> str:
    raw = fleet.events_per_s * fleet.event_bytes
    wire = fleet.events_per_s * fleet.wire_bytes
    rows = [
        ("events", f"{fleet.events_per_s:,.0f}/s", f"{fleet.events_per_call:g} for each call"),
        ("raw lines", f"{raw / GB:.2f} GB/s", f"{fleet.event_bytes:.0f} B each"),
        (
            "on the wire",
            f"{wire / GB:.2f} to {wire * fleet.wire_factor / GB:.2f} GB/s",
            f"zstd, {fleet.wire_bytes:.0f} B measured on data that are alike, and {fleet.wire_factor:g} times that",
        ),
        (
            "collectors",
            f"{fleet.collectors}",
            f"{fleet.collector_events_per_s:,.0f} events/s each on two cores; twice as many to recover (below)",
        ),
        (
            "cores of the store, ingest",
            f"{raw / 1e6 / fleet.store_mb_per_core_s:.0f} to {raw / 1e6 / fleet.planned_mb_per_core_s:.0f}",
            f"{fleet.store_mb_per_core_s:.0f} MB/s a core measured, not replicated; ClickStack plans with "
            f"{fleet.planned_mb_per_core_s:.0f}, and as much again for queries",
        ),
        (
            "one machine",
            f"{fleet.machine_events_per_s:.0f} events/s",
            f"{fleet.machine_events_per_s * fleet.event_bytes * 3600 / 1e6:.0f} MB of spool for an hour alone",
        ),
    ]
    return "## What it needs\n\n" + figures.table(("", "figure", "from"), rows)


def outages(fleet: Fleet, simulated: int, seed: int) -> str:
    rows = []
    for headroom in (1.25, 1.5, 2.0, 3.0):
        found = model.outage(fleet, down_s=3600, headroom=headroom, wait=JITTERED, simulated=simulated, seed=seed)
        rows.append(
            (
                f"{headroom:g}",
                f"{found.spool_bytes / 1e6:.0f} MB",
                f"{found.drained_s / 60:.0f} min",
                f"{(found.drained_s + 3600) / 3600:.1f} h",
            )
        )
    head = (
        "collectors and store for .. times the load", "spool of a machine", "all caught up after",
        "from failure to normal",
    )  # fmt: skip
    return (
        "## The store is away for an hour\n\nNothing is lost and no tool call waits: machines keep what they have "
        "recorded. It takes room on their disks, and\nafterwards more capacity than the usual load needs.\n\n"
        + figures.table(head, rows)
        + "\n\nRoom for 1.25 times the load makes half a day of an hour. Plan for twice the load."
    )


def storms(fleet: Fleet, simulated: int, seed: int) -> str:
    rows = []
    for wait in WAITS:
        found = model.outage(fleet, down_s=3600, headroom=2.0, wait=wait, simulated=simulated, seed=seed)
        rows.append(
            (
                wait,
                f"{found.requests_per_s:,.0f}/s",
                f"{found.refused:.0%}",
                f"{found.goodput:.0%}",
                f"{found.drained_s / 60:.0f} min",
            )
        )
    head = (
        "after a 503 a shipper waits", "retries, worst tenth of a second", "refused until caught up",
        "of the capacity used, 5 min", "all caught up after",
    )  # fmt: skip
    return (
        "## Retry storms\n\nThe same hour with twice the capacity; all machines lost their connection at the same "
        f"moment. A 503 costs a collector\n{fleet.reject_ms:g} ms (assumed).\n\n"
        + figures.table(head, rows)
        + "\n\nWhoever got in goes on with its next segment at once, so the pool stays busy as soon as some come: "
        "without\njitter all come at once or nobody does. Retries each second take a tenth of the capacity. Waits and "
        "Retry-After are\nthose of the code (`fleet/waiting.py`)."
    )


def reach(fleet: Fleet, simulated: int, seed: int) -> str:
    rows = []
    for poll_s, cached_s, failing in ((5, 1, 0.01), (10, 0, 0.01), (10, 5, 0.01), (10, 5, 0.10), (30, 5, 0.01)):
        found = model.stop_reach(
            fleet, poll_s=poll_s, cached_s=cached_s, failing=failing, simulated=simulated, seed=seed
        )
        rows.append(
            (
                f"{poll_s} s",
                f"{cached_s} s",
                f"{failing:.0%}",
                *(f"{seconds:.1f} s" for seconds in (found.half_s, found.most_s, found.nearly_all_s)),
                f"{found.requests_per_s:,.0f}/s",
            )
        )
    head = ("poll each", "kept at the edge", "polls that fail", "50 %", "99 %", "99.9 % obey within", "requests")
    return (
        "## How far a stop reaches, and when\n\nOf machines that are on and can reach the origin; the others obey when "
        "they can, or run out of `max_offline`.\n\n"
        + figures.table(head, rows)
        + "\n\nA stop is a file of under a kilobyte that any cache can serve; keep it there for at most half a poll."
    )


def hot(seed: int) -> str:
    rows = []
    for words, by_run, tenant, run in (
        ("by tenant; one tenant is 20 %", False, 0.20, 0.0),
        ("by tenant and run; one tenant is 20 %", True, 0.20, 0.0),
        ("by tenant and run; one run is 5 %", True, 0.0, 0.05),
        ("the same, held to a quota of 1 %", True, 0.0, 0.01),
    ):
        found = model.hot_tenant(shards=32, headroom=1.5, by_run=by_run, hot_tenant=tenant, hot_run=run, seed=seed)
        late = f"{found.lag_min_per_h:.0f} min/h" if found.overloaded else "not"
        rows.append((words, f"{found.worst:.0%}", found.overloaded, late))
    head = ("32 shards for 1.5 times the load", "of the fullest shard used", "shards overloaded", "it falls behind by")
    return (
        "## A hot tenant\n\n"
        + figures.table(head, rows)
        + "\n\nDuplicates of a run must meet on one shard, so a single run cannot be spread: its quota is what "
        "protects the others."
    )


def restarts(fleet: Fleet, seed: int) -> str:
    rows = []
    for words, drained in (("SIGTERM: commit, answer, end", True), ("SIGKILL", False)):
        found = model.rolling_restart(fleet, drained=drained, group_s=GATHER_S, commit_s=0.15, seed=seed)
        rows.append(
            (
                words,
                f"{found.resent_events:,.0f}",
                f"{found.duplicate_events:,.0f}",
                f"{found.lost_events:.0f}",
                f"{found.wait_p99_s:.1f} s",
            )
        )
    head = (f"all {fleet.collectors}, one by one", "events sent again", "stored twice", "lost", "ack late by, p99")
    return (
        "## New collectors, one by one\n\n"
        + figures.table(head, rows)
        + "\n\nWhat is stored twice is merged away by the store, and never seen through the view."
    )


def costs(fleet: Fleet) -> str:
    rows = []
    for days in (7, 30, 90, 365):
        measured = model.storage_bytes(fleet, days, planned=False)
        planned = model.storage_bytes(fleet, days, planned=True)
        prices = (f"${each / GB * fleet.price_gb_month:,.0f}" for each in (measured, planned))
        rows.append((days, f"{measured / 1e12:,.0f} TB", f"{planned / 1e12:,.0f} TB", *prices))
    planned_as = f"planned ({fleet.stored_factor:g} times)"
    head = ("days kept", "measured", planned_as, "a month, measured", f"a month, {planned_as}")
    return (
        f"## What keeping it costs\n\nOne copy at {fleet.stored_bytes:.0f} B for an event with its exact line, "
        f"${fleet.price_gb_month} for a GB and month (assumed).\n\n" + figures.table(head, rows)
    )


def breaks_first(fleet: Fleet) -> str:
    spool = fleet.machine_events_per_s * fleet.event_bytes * 3600
    rows = [
        (
            "the store's ingest",
            "raw bytes a second over what its cores take; collectors answer 503, machines have more to ship",
            "more shards from the next day on; meanwhile shorter lines (`max_preview_bytes`)",
        ),
        (
            "the hour after an outage",
            "less than 1.5 times the load can be taken",
            "collectors by HPA, the store by cores that queries give back",
        ),
        (
            "disks of machines and pods",
            f"{spool / 1e6:.0f} MB for each hour away; an emptyDir of 2 GB holds at least {2e9 / spool:.0f} h",
            "a larger volume, or one that outlives the pod",
        ),
        ("one run or tenant", "a shard over 100 %", "quotas; a run cannot be spread"),
        ("the bill", "90 days and more", "fewer days (`--retention-days`); an archive of your own for what must stay"),
    ]
    return "## What breaks first, and what to do then\n\n" + figures.table(("what", "seen by", "then"), rows)


# What `--against` has printed, on two cores that were shared with the machines and with other work.
CHECKED = (
    ("chDB, 60 s of outage", "33,400", "5.9 s", "5.8 s", "265 / 527 ms"),
    ("Postgres 15, 20 s of outage", "26,300", "2.5 s", "2.4 s", "264 / 1,391 ms"),
)


def checked() -> str:
    head = (
        "store",
        "events/s while catching up",
        "all caught up after",
        "model, with that rate",
        "ack after, p50 / p99",
    )
    return (
        "## Held against the real collector\n\nA thousandth of it: 100 machines, 3,000 events a second, one collector; "
        "figures of one run each (`--against`),\non two shared cores. The collector counted what was acknowledged.\n\n"
        + figures.table(head, CHECKED)
    )


def page(fleet: Fleet, simulated: int, seed: int) -> str:
    parts = (
        intro(fleet, simulated, seed),
        sizing(fleet),
        outages(fleet, simulated, seed),
        storms(fleet, simulated, seed),
        reach(fleet, simulated * 250, seed),
        hot(seed),
        restarts(fleet, seed),
        costs(fleet),
        checked(),
        breaks_first(fleet),
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Fleet):
        kind = int if isinstance(field.default, int) else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    parser.add_argument("--simulated", type=int, default=200, help="machines that are simulated")
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--against", metavar="URL", help="a collector on this machine; the page is not printed")
    parser.add_argument("--token-env", metavar="NAME", default="SUB_FLEET_TOKEN", help="what holds a token for it")
    parser.add_argument("--down-s", type=float, default=60.0, help="with --against: how long the outage was")
    options = parser.parse_args()
    fleet = Fleet(**{field.name: getattr(options, field.name) for field in fields(Fleet)})
    if options.against:
        from scale_against import against

        token = os.environ.get(options.token_env, "")
        if urlsplit(options.against).hostname not in ("127.0.0.1", "::1", "localhost") or not token:
            parser.error("--against is for a collector on this machine, with a token in --token-env")
        print(against(fleet, options.against, token, options.down_s, options.seed))
        return
    sys.stdout.write(page(fleet, options.simulated, options.seed))


if __name__ == "__main__":
    main()
