"""A question that takes long is given up, and while it lasts nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.collector import collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from harness.stores import PostgresServer
from harness.waiting import wait_for
from subluminal.fleet.collector.turns import MOST_WAITING, TooMany, Turns
from subluminal.fleet.segments import Segment
from subluminal.fleet.stores.asked import Asked
from subluminal.fleet.stores.base import TooLong, open_store

CURSOR = f"/v1/cursor?run_id={run_id(1)}&shim_id={shim_id(1)}"
LINES = f"/v1/lines?run_id={run_id(1)}"


def a_run(number: int) -> Segment:
    return segment_of(EventMaker(run_id(number), shim_id(number)).whole_run(2), run_id(number), shim_id(number))


@contextmanager
def stalled(dsn: str) -> Iterator[None]:
    """Whoever reads calls waits until this has ended."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        connection.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
        yield


def is_waiting(dsn: str) -> bool:
    """Whether the store has a question that waits for that."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return bool(row and row[0])


def test_a_statement_of_a_question_is_given_up_by_the_engine_and_the_next_one_is_answered(store: str) -> None:
    endless = (
        "SELECT pg_sleep(600)" if store.startswith("postgres") else "SELECT sum(sipHash64(number)) FROM numbers(1e15)"
    )
    opened = open_store(store)
    opened.migrate(0)
    for quick in (False, True):
        with pytest.raises(TooLong, match=r"longer than 1 s and was given up\. Ask for less"):
            Asked(opened, 1, quick=quick).select(endless, {})
        assert opened.select("SELECT 1", {}, 30) == [(1,)]
    opened.close()


def test_the_statements_of_a_question_have_its_time_together(one_store: str) -> None:
    opened = open_store(one_store)
    asked = Asked(opened, 0.05)
    with pytest.raises(TooLong, match=r"0\.05 s"):
        while True:
            asked.select("SELECT 1", {})
    opened.close()


def test_a_long_question_holds_up_no_machine_and_no_other_tenant(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = postgres_server.database()
    with collector(tmp_path / "collector", dsn) as fleet, ThreadPoolExecutor(1) as threads:
        token, other = fleet.token("acme", "m1"), fleet.token("other", "m1")
        other_reader = fleet.token("other", "reader", may_read=True)
        assert fleet.send(a_run(1), token) == fleet.send(a_run(1), other) == 200
        with stalled(dsn):
            long = threads.submit(fleet.ask, "/v1/count", fleet.reader)
            wait_for(lambda: is_waiting(dsn), what="the long question to be asked")
            assert fleet.ask(CURSOR, token)[2] == {"seq": 8}
            status, _, told = fleet.ask(LINES, other_reader)
            assert status == 200 and len(told["lines"]) == 8
            assert not long.done()
        assert long.result()[2] == {"count": 2}


def test_a_question_that_took_too_long_is_told_in_a_sentence(postgres_server: PostgresServer, tmp_path: Path) -> None:
    dsn = postgres_server.database()
    with collector(tmp_path / "collector", dsn, "--question-s", "1") as fleet:
        assert fleet.send(a_run(1), fleet.token("acme", "m1")) == 200
        with stalled(dsn):
            status, _, told = fleet.ask("/v1/count", fleet.reader)
            assert (status, told["error"].partition(" and")[0]) == (504, "The question took longer than 1 s")
            done = fleet.sub("query", "--count")
            assert done.returncode == 2 and "took longer than 1 s and was given up" in done.stderr
        assert fleet.rows("query", "--count") == [{"count": 2}]


def test_more_questions_than_may_wait_are_put_off_and_the_others_are_answered_in_turn(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = postgres_server.database()
    with collector(tmp_path / "collector", dsn) as fleet, ThreadPoolExecutor(MOST_WAITING + 20) as threads:
        assert fleet.send(a_run(1), fleet.token("acme", "m1")) == 200
        with stalled(dsn):
            asked = [threads.submit(fleet.ask, "/v1/count", fleet.reader) for _ in range(MOST_WAITING + 20)]
            wait_for(lambda: sum(each.done() for each in asked) >= 19, what="those beyond the bound to be put off")
            put_off = [each.result() for each in asked if each.done()]
        answers = [each.result() for each in asked]
        assert all(status == 429 and int(headers["Retry-After"]) >= 1 for status, headers, _ in put_off)
        assert all("asks too many questions at once" in told["error"] for _, _, told in put_off)
        assert [told for status, _, told in answers if status == 200] == [{"count": 2}] * (MOST_WAITING + 1)


def test_questions_of_a_tenant_are_asked_one_at_a_time_and_wait_no_longer_than_they_may() -> None:
    async def scene() -> None:
        turns, at_once, most = Turns(wait_s=0.05), 0, 0

        async def ask(tenant: str) -> None:
            nonlocal at_once, most
            async with turns.of(tenant):
                at_once += 1
                most = max(most, at_once)
                await asyncio.sleep(0)
                at_once -= 1

        await asyncio.gather(*(ask("acme") for _ in range(20)))
        assert most == 1
        async with turns.of("acme"):
            await ask("other")
            with pytest.raises(TooMany, match=r"waited for 0\.05 s"):
                await ask("acme")
        await ask("acme")
        assert not turns._tenants

    asyncio.run(scene())
