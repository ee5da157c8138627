"""What one machine sends costs nobody else: names of any length, ids that no index takes, rows that no store holds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from harness.collector import Machine, collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters
from subluminal.fleet.collector.commits import Commits
from subluminal.fleet.collector.metrics import Metrics
from subluminal.fleet.collector.rows import MAX_CALL_ID_BYTES, Batch, rows_of
from subluminal.fleet.segments import MAX_ID_BYTES, BadSegment, Segment, encode
from subluminal.fleet.stores.base import open_store
from subluminal.fleet.stores.reading import Reader
from subluminal.fleet.stores.tables import CALLS

NOW_MS = 1_700_000_100_000


def unlike_anything(characters: int) -> str:
    """Text that no index compresses."""
    chance = random.Random(11)
    return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(characters))


def a_run(number: int) -> Segment:
    return segment_of(EventMaker(run_id(number), shim_id(number)).whole_run(2), run_id(number), shim_id(number))


def with_call_ids(number: int, *call_ids: str) -> Segment:
    maker = EventMaker(run_id(number), shim_id(number))
    lines = [maker.run_start()]
    for call_id in call_ids:
        lines.append(maker.start(call_id=call_id))
        maker.reference["call_id"] = call_id
        lines += [maker.decision(), maker.end()]
    return segment_of(lines, run_id(number), shim_id(number))


def test_a_call_of_a_tool_with_an_endless_name_is_stored_and_found(store: str, tmp_path: Path) -> None:
    name = unlike_anything(5000)
    maker = EventMaker(run_id(1), shim_id(1))
    lines = [maker.run_start(), *maker.call(tool=name, server=name), *maker.call(), maker.run_end()]
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        assert fleet.send(segment_of(lines, run_id(1), shim_id(1)), token) == 200
        rows = fleet.rows("query", "--limit", "0")
        assert [row["tool_name"] for row in rows] == ["git_status", name]
        assert fleet.rows("query", "--count", "--tool", f"{name[:20]}*") == [{"count": 1}]
        assert fleet.rows("verify", run_id(1))[0]["ok"]
    opened = open_store(store)
    assert Reader(opened, "acme").count(Filters(tool_name=[name])) == 1
    opened.close()


@pytest.mark.parametrize("what", ["run", "shim"])
def test_the_longest_id_is_taken_and_a_longer_one_is_refused_in_bytes(store: str, tmp_path: Path, what: str) -> None:
    def named(name: str) -> Segment:
        run, shim = (name, shim_id(1)) if what == "run" else (run_id(1), name)
        return segment_of(EventMaker(run, shim).whole_run(1), run, shim)

    longest = unlike_anything(MAX_ID_BYTES // 3)
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("acme", "m1")
        status, _, told = fleet.ask("/v1/segments", token, encode(named(longest + "語")))
        assert (status, told["reason"]) == (422, "header")
        assert fleet.ask(f"/v1/cursor?run_id=a%00&shim_id={shim_id(1)}", token)[0] == 400
        assert fleet.send(named(longest), token) == 200


def test_the_longest_ids_of_everything_together_make_a_key_that_every_store_takes(store: str, tmp_path: Path) -> None:
    run, shim = unlike_anything(MAX_ID_BYTES // 3), unlike_anything(MAX_ID_BYTES // 3)
    call = unlike_anything(MAX_CALL_ID_BYTES // 3)
    maker = EventMaker(run, shim)
    context = {"callId": unlike_anything(256)}
    lines = [maker.run_start(), maker.start(call_id=call, call_context=context), maker.decision()]
    with collector(tmp_path / "collector", store) as fleet:
        token = fleet.token("a" * 200, "m" * 200)
        segment = segment_of(lines, run, shim)
        assert fleet.send(segment, token) == 200
        segment.lines[2] = lines[2].replace(b'"ALLOW"', b'"BLOCK"')
        assert fleet.send(segment, token) == 200


@pytest.mark.parametrize("call_ids", [("x\0", "x�"), ("x" * (MAX_CALL_ID_BYTES + 1),)])
def test_a_call_id_that_cannot_be_a_key_is_refused_and_others_are_stored(
    store: str, tmp_path: Path, call_ids: tuple[str, ...]
) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        token, other = fleet.token("acme", "m1"), fleet.token("other", "m1")
        status, _, told = fleet.ask("/v1/segments", token, encode(with_call_ids(1, *call_ids)))
        assert (status, told["reason"]) == (422, "event")
        assert fleet.send(a_run(2), other) == 200


def test_a_machine_sets_aside_the_call_that_is_refused_and_ships_the_rest(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(with_call_ids(1, "good", "bad\0", "good-too").lines)
        assert machine.ship().returncode == 0
        assert machine.standing()["refused"] == 3
        assert [row["call_id"] for row in fleet.rows("query")] == ["good-too", "good"]


def unstorable(segment: Segment, tenant: str) -> Batch:
    """A row that got past every check of ours."""
    batch = rows_of(segment, tenant, "m1", NOW_MS)
    for row in batch.calls.values():
        row[CALLS.names.index("latency_ms")] = 1 << 70
    return batch


def test_a_row_that_no_store_holds_is_refused_alone_and_what_came_with_it_is_stored(store: str) -> None:
    opened = open_store(store)
    opened.migrate(0)

    async def scene() -> list[object]:
        commits = Commits(opened, Metrics(), 0.01)
        puts = [
            commits.put(rows_of(a_run(1), "acme", "m1", NOW_MS), "acme"),
            commits.put(unstorable(a_run(2), "mallory"), "mallory"),
            commits.put(rows_of(a_run(3), "other", "m1", NOW_MS), "other"),
        ]
        running = asyncio.ensure_future(commits.run())
        done = await asyncio.gather(*puts, return_exceptions=True)
        assert not commits.is_down
        running.cancel()
        commits.close()
        return list(done)

    done = asyncio.run(scene())
    assert done[0] is None and done[2] is None
    assert isinstance(done[1], BadSegment) and done[1].word == "store"
    told = [Reader(opened, tenant).count(Filters()) for tenant in ("acme", "mallory", "other")]
    assert told[0] == told[2] == 2
    opened.close()
