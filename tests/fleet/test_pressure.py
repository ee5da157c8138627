"""Who sends too much is put off, by events and by bytes, and nobody else is: quotas, and what waits for the store."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.collector import collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from harness.stores import PostgresServer, need
from harness.waiting import wait_for
from subluminal.fleet.collector.commits import MAX_PENDING_BYTES, Busy, Commits
from subluminal.fleet.collector.metrics import Metrics
from subluminal.fleet.collector.quotas import BURST_S, EVENT_BYTES, Quotas
from subluminal.fleet.collector.rows import Batch
from subluminal.fleet.collector.service import _retry_after
from subluminal.fleet.segments import MAX_BODY_BYTES, Segment, encode
from subluminal.fleet.stores.base import open_store

MIB = 1 << 20


def a_run(number: int, calls: int = 2) -> Segment:
    return segment_of(EventMaker(run_id(number), shim_id(number)).whole_run(calls), run_id(number), shim_id(number))


def heavy_run(number: int, size: int) -> Segment:
    """One event of that many bytes, which do not compress."""
    maker = EventMaker(run_id(number), shim_id(number))
    preview = random.Random(number).randbytes(size // 2).hex()
    return segment_of([maker.start(preview=preview)], run_id(number), shim_id(number))


def test_usual_lines_are_charged_by_their_number_and_large_ones_by_their_bytes() -> None:
    quotas = Quotas(10)
    quotas.charge("usual", int(10 * BURST_S) - 1, 800 * int(10 * BURST_S), 0.0)
    assert quotas.wait_s("usual", 0.0) == 0.0
    quotas.charge("heavy", 1, int(10 * BURST_S) * EVENT_BYTES + EVENT_BYTES, 0.0)
    assert 0 < quotas.wait_s("heavy", 0.0) <= 1.0
    assert quotas.wait_s("heavy", 1.0) == 0.0


def test_a_tenant_that_sends_few_but_huge_lines_is_put_off_as_one_that_sends_many(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store, "--quota", "10") as fleet:
        heavy, modest = fleet.token("heavy", "m1"), fleet.token("acme", "m1")
        statuses = [fleet.send(heavy_run(number, MIB - 4096), heavy) for number in range(1, 5)]
        assert statuses == [200, 200, 429, 429]  # two of them are more than 300 times 4 KiB
        assert fleet.send(a_run(9), modest) == 200


def of(tenant_bytes: int) -> Batch:
    batch = Batch()
    batch.bytes = tenant_bytes
    return batch


def test_no_tenant_has_more_than_twice_as_much_waiting_as_there_is_room_left() -> None:
    need("zstandard")

    async def scene() -> None:
        commits = Commits(None, Metrics(), 0.1)  # type: ignore[arg-type]  # nothing is written: the store is behind
        waiting = []

        async def taken(tenant: str, size: int) -> bool:
            put = asyncio.ensure_future(commits.put(of(size), tenant))
            await asyncio.sleep(0)
            waiting.append(put)
            return not (put.done() and isinstance(put.exception(), Busy))

        alone = 0
        while await taken("greedy", MIB):
            alone += 1
        assert alone == MAX_PENDING_BYTES // MIB * 2 // 3
        second = 0
        while await taken("second", MIB):
            second += 1
        assert alone // 4 < second < alone // 2
        assert await taken("modest", MIB) and not await taken("greedy", MIB)
        assert not await taken("modest", MAX_PENDING_BYTES)
        for put in waiting:
            put.cancel()
        commits.close()

    asyncio.run(scene())


def test_what_was_written_makes_room_again(one_store: str) -> None:
    opened = open_store(one_store)
    opened.migrate(0)

    async def scene() -> None:
        commits = Commits(opened, Metrics(), 0.01)
        first = asyncio.ensure_future(commits.put(of(MAX_PENDING_BYTES // 3 * 2), "acme"))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="has its share"):
            await commits.put(of(MIB), "acme")
        running = asyncio.ensure_future(commits.run())
        await first
        await commits.put(of(MAX_PENDING_BYTES // 3 * 2), "acme")
        running.cancel()
        commits.close()

    asyncio.run(scene())
    opened.close()


def test_a_body_that_is_larger_than_any_segment_is_refused_and_counted(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        token = fleet.token("acme", "m1")
        status, _, told = fleet.ask("/v1/segments", token, b"x" * (MAX_BODY_BYTES + 1))
        assert (status, told["reason"]) == (413, "size") and "at most" in told["error"]
        assert fleet.metric('subluminal_collector_rejected_segments_total{reason="size"}') == 1
        status, _, told = fleet.ask("/v1/segments", token, b"x" * MAX_BODY_BYTES)
        assert (status, told["reason"]) == (422, "zstd")
        assert fleet.send(a_run(1), token) == 200


def test_machines_are_told_to_come_again_at_different_times_within_bounds() -> None:
    for seconds in (0.0, 0.2, 2.0, 60.0):
        told = [int(_retry_after(seconds)["Retry-After"]) for _ in range(500)]
        assert max(1, round(seconds)) <= min(told) and max(told) <= max(1, round(3 * seconds))
    assert len({_retry_after(60.0)["Retry-After"] for _ in range(500)}) > 50
    assert len({_retry_after(2.0)["Retry-After"] for _ in range(500)}) >= 4


def test_a_store_that_is_behind_is_told_as_503_and_counted(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Commits wait for a lock, and segments gather until there is no room for another of their tenant."""
    import psycopg

    dsn = postgres_server.database()
    with collector(tmp_path / "collector", dsn) as fleet, ThreadPoolExecutor(160) as threads:
        token, other = fleet.token("acme", "m1"), fleet.token("other", "m1")
        with psycopg.connect(dsn) as connection:
            connection.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            body = encode(repetitive_run())
            sent = [threads.submit(fleet.ask, "/v1/segments", token, body) for _ in range(80)]
            wait_for(lambda: any(each.done() for each in sent), 60, what="a segment that is put off")
            status, headers, told = next(each.result() for each in sent if each.done())
            assert status == 503 and 2 <= int(headers["Retry-After"]) <= 6
            assert told["error"] == "The store is behind, and acme has its share of what waits for it."
            waits = threads.submit(fleet.send, a_run(2), other)
        assert waits.result() == 200
        assert {each.result()[0] for each in sent} == {200, 503}
        assert fleet.metric('subluminal_collector_segments_total{outcome="busy"}') >= 1


def repetitive_run() -> Segment:
    """Of two MiB, which take little on their way."""
    maker = EventMaker(run_id(1), shim_id(1))
    return segment_of([maker.start(preview="x" * (MIB - 4096)) for _ in range(2)], run_id(1), shim_id(1))


def test_a_tenant_may_have_a_quota_of_its_own(one_store: str, tmp_path: Path) -> None:
    options = ("--quota", "1", "--tenant-quota", "large=10000", "--tenant-quota", "free=0")
    with collector(tmp_path / "collector", one_store, *options) as fleet:
        for tenant, second in (("large", 200), ("free", 200), ("acme", 429)):
            token = fleet.token(tenant, "m1")
            assert [fleet.send(a_run(number, calls=20), token) for number in (1, 2)] == [200, second]
