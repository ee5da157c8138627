"""Requests of one turn of the loop: one lock and one store for up to eight, and none goes anywhere before. Step by
step, with the run's own state and journal."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness.engine import compiled, rule, tools
from harness.in_process import isolate
from harness.state_holder import holding
from harness.waiting import wait_for_async
from subluminal.adapters.http.desk import Desk
from subluminal.adapters.http.gathering import REQUESTS_PER_LOCK
from subluminal.adapters.http.posting import Posting
from subluminal.host.config import Config
from subluminal.host.run import table
from subluminal.host.run.state import SharedState
from subluminal.http.inbound import Inbound, Visit
from subluminal.http.serving import Serving
from subluminal.http.together import FEW
from subluminal.producer import state_queue
from subluminal.producer.producer import Producer, assemble

DENY = rule("no", "deny", tools("rm"))
CROWD = 2 * REQUESTS_PER_LOCK + 3


class Pipe(asyncio.Transport):
    """The client's end of one connection."""

    def __init__(self, steps: list[str], number: int) -> None:
        super().__init__()
        self._steps = steps
        self._number = number
        self.answers: list[Any] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.answers.append(json.loads(bytes(data).partition(b"\r\n\r\n")[2]))
        self._steps.append(f"answer {self._number}")

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Stores:
    """`os` for the table: every store is noted; one with a `fault` raises it instead."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps
        self.fault: BaseException | None = None
        self.pread = os.pread
        self.close = os.close

    def pwrite(self, fd: int, raw: bytes, offset: int) -> int:
        if self.fault is not None:
            raise self.fault
        self._steps.append("store")
        return os.pwrite(fd, raw, offset)


class Bench:
    """A desk between clients that send when they are told to and a server that notes what it is sent."""

    def __init__(self, producer: Producer, steps: list[str], count: int) -> None:
        self.steps = steps
        self.stores = Stores(steps)
        self.postings: list[Posting] = []
        self.server_fails_at = -1
        self.desk = Desk(producer, Config({}).server("srv"), Config({}))
        self.serving = Serving(self._arrived)
        self.pipes = [Pipe(steps, number) for number in range(count)]
        self.clients = [Inbound(self.serving) for _ in self.pipes]
        for client, pipe in zip(self.clients, self.pipes, strict=True):
            client.connection_made(pipe)
        written = producer.sink.write

        def write(lines: bytes) -> None:
            kinds = [json.loads(line)["type"].removeprefix("tool_call_") for line in lines.splitlines()]
            steps.append("hand over " + " ".join(kinds))
            written(lines)

        producer.sink.write = write  # type: ignore[method-assign]

    def _arrived(self, visit: Visit) -> None:
        posting = Posting(self, visit, self.desk, self.desk.exchange(b"session"), b"session")
        self.postings.append(posting)
        visit.listen(posting)

    def begin(self, posting: Posting, message: Any) -> Any:
        number = json.loads(message)["id"]
        if number == self.server_fails_at:
            raise RuntimeError("a fault of ours")
        self.steps.append(f"forward {number}")
        return self

    def recorded(self) -> None: ...
    def give_up(self) -> None: ...

    def sends(self, number: int, tool: str = "a") -> None:
        call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
        body = json.dumps(call).encode()
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.clients[number].data_received(head % len(body) + body)

    async def turn(self) -> list[str]:
        """What was done by the end of this turn."""
        await asyncio.sleep(0)
        done, self.steps[:] = self.steps[:], []
        return done


def forwards(*numbers: int) -> list[str]:
    return [f"forward {number}" for number in numbers]


def recorded(count: int) -> str:
    return "hand over " + " ".join(["start decision"] * count)


Case = Callable[[Bench], Coroutine[Any, Any, None]]


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    isolate(tmp_path, monkeypatch)
    (tmp_path / "journals").mkdir()

    def play(case: Case, *rules: dict[str, Any], limit: int = 1000) -> None:
        budget = rule("b", "budget", scope="run", limit_calls=limit, on_exceed="BLOCK")
        environ = {**os.environ, "SUB_RUN_ID": "r"}
        policy = compiled(*(rules or (DENY, budget)))
        producer = assemble(environ, events=f"dir:{tmp_path / 'journals'}", policy=policy)
        producer.open({})

        async def run() -> None:
            bench = Bench(producer, [], CROWD)
            monkeypatch.setattr(table, "os", bench.stores)
            await case(bench)

        asyncio.run(run())

    return play


async def crowded(bench: Bench) -> None:
    """So many are under way from here on that others gather."""
    for number in range(FEW - 1):
        bench.sends(number)
    await bench.turn()


def crowd(count: int) -> range:
    return range(FEW - 1, FEW - 1 + count)


def test_a_few_are_judged_as_they_come(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        bench.sends(0)
        await bench.turn()
        bench.sends(1)
        assert bench.steps == ["store", "forward 1"]
        assert await bench.turn() == ["store", "forward 1", recorded(1)]

    plays(case)


@pytest.mark.parametrize("count", [1, 2, REQUESTS_PER_LOCK, REQUESTS_PER_LOCK + 3])
def test_those_of_one_turn_are_stored_at_once_before_any_goes_on(plays: Callable[..., None], count: int) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(count):
            bench.sends(number)
        expected: list[str] = []
        for first in range(0, count, REQUESTS_PER_LOCK):
            expected += ["store", *forwards(*crowd(count)[first : first + REQUESTS_PER_LOCK])]
        assert await bench.turn() == [*expected, recorded(count)]
        assert bench.desk.unjudged == 0
        assert [posting.reading is not None for posting in bench.postings] == [True] * (FEW - 1 + count)

    plays(case)


def test_refusals_among_them_are_on_record_before_anybody_hears_of_them(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(6):
            bench.sends(number, "rm" if number in (4, 6) else "a")
        assert await bench.turn() == [
            "store",
            *forwards(3),
            "hand over " + "start decision " * 2 + "end",
            "answer 4",
            *forwards(5),
            "hand over " + "start decision " * 2 + "end",
            "answer 6",
            *forwards(7, 8),
            recorded(2),
        ]
        assert [pipe.answers[0]["error"]["code"] for pipe in bench.pipes if pipe.answers] == [-32081, -32081]

    plays(case)


def test_a_budget_is_exact_within_a_turn(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(12):
            bench.sends(number)
        done = await bench.turn()
        assert [step for step in done if "forward" in step] == forwards(*range(FEW - 1, 10))
        refused = [number for number, pipe in enumerate(bench.pipes) if pipe.answers]
        assert refused == list(range(10, FEW - 1 + 12))

    plays(case, limit=10)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("count", [2, REQUESTS_PER_LOCK])
def test_a_process_that_dies_at_the_store_has_sent_nothing_on_and_left_nothing(
    plays: Callable[..., None], count: int
) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        bench.stores.fault = Killed()
        with pytest.raises(Killed):
            for number in crowd(count):
                bench.sends(number)
            bench.desk.gathering.judge()
        assert bench.steps == []
        bench.desk.producer.close_state()
        survivor = SharedState.open("r")
        bench.stores.fault = None
        assert survivor.next_seq() == FEW, "those before, and none of these"

    plays(case)


def test_where_the_store_fails_the_next_are_decided_without(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        bench.stores.fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for number in crowd(3):
            bench.sends(number)
        done = await bench.turn()
        assert [step for step in done if "forward" in step] == forwards(3, 4), "judged before it was to be stored"
        assert bench.pipes[5].answers[0]["error"]["code"] == -32081
        for number in range(6, 9):
            bench.sends(number)
        done = await bench.turn()
        assert not [step for step in done if "forward" in step]
        assert [pipe.answers[0]["error"]["code"] for pipe in bench.pipes[6:9]] == [-32081] * 3
        bench.stores.fault = None
        for number in range(9, 12):
            bench.sends(number)
        assert [step for step in await bench.turn() if "forward" in step] == forwards(9, 10, 11)

    plays(case)


def test_while_another_process_holds_the_state_the_loop_goes_on_and_they_wait_in_order(
    plays: Callable[..., None],
) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        with holding("r") as holder:
            for number in crowd(11):
                bench.sends(number)
            assert await bench.turn() == []
            assert bench.desk.is_busy and bench.desk.unjudged == 11
            holder.let_go()
            await wait_for_async(lambda: not bench.desk.unjudged, what="all to be judged")
        done = await bench.turn()
        assert [step for step in done if "forward" in step] == forwards(*crowd(11))
        assert done.count("store") == 2

    plays(case)


def test_whoever_has_waited_in_vain_is_decided_without_the_state(
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_queue, "LOCK_WAIT_SECONDS", 0.05)

    async def case(bench: Bench) -> None:
        await crowded(bench)
        with holding("r"):
            for number in crowd(5):
                bench.sends(number)
            await wait_for_async(lambda: not bench.desk.unjudged, what="all to be judged")
        await bench.turn()
        assert not [step for step in bench.steps if "forward" in step]
        assert all(pipe.answers[0]["error"]["code"] == -32081 for pipe in bench.pipes[3:8])

    plays(case)


def test_where_the_state_is_lost_in_between_the_rest_waits_for_it_and_stays_in_order(
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        producer, asked = bench.desk.producer, 0
        try_state = producer.try_state

        def not_the_second_time() -> bool:
            nonlocal asked
            asked += 1
            return asked != 2 and try_state()

        monkeypatch.setattr(producer, "try_state", not_the_second_time)
        for number in crowd(6):
            bench.sends(number, "b" if number == 5 else "a")
        bench.desk.gathering.judge()
        assert [step for step in bench.steps if "forward" in step] == forwards(3, 4, 5), "it is let go with its number"
        bench.sends(9)
        await wait_for_async(lambda: not bench.desk.unjudged, what="all to be judged")
        assert [step for step in bench.steps if "forward" in step] == forwards(3, 4, 5, 6, 7, 8, 9)

    plays(case, rule("b", "budget", tools("a"), scope="run", limit_calls=100, on_exceed="BLOCK"))


def test_calls_that_change_nothing_of_the_state_have_their_numbers_all_the_same(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(REQUESTS_PER_LOCK):
            bench.sends(number)
        assert [step for step in await bench.turn() if "forward" in step] == forwards(*crowd(REQUESTS_PER_LOCK))
        assert SharedState.open("r").next_seq() == FEW + REQUESTS_PER_LOCK

    plays(case, DENY)


def test_whoever_has_left_by_then_is_not_judged(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(4):
            bench.sends(number)
        bench.clients[4].connection_lost(None)
        assert await bench.turn() == ["store", *forwards(3, 5, 6), recorded(3)]
        assert bench.desk.unjudged == 0

    plays(case)


def test_a_fault_of_ours_ends_one_connection_and_the_others_go_on(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        await crowded(bench)
        bench.server_fails_at = 4
        for number in crowd(4):
            bench.sends(number)
        assert await bench.turn() == ["store", *forwards(3, 5, 6), recorded(4)]
        assert [pipe.closed for pipe in bench.pipes[3:7]] == [False, True, False, False]
        assert len(told) == 1 and bench.desk.unjudged == 0

    plays(case)


def test_what_ends_a_session_comes_after_those_that_came_before_it(plays: Callable[..., None]) -> None:
    async def case(bench: Bench) -> None:
        await crowded(bench)
        for number in crowd(2):
            bench.sends(number)
        bench.desk.end_session(b"session", "it ended")
        assert bench.desk.calls_open == 0
        assert [step for step in await bench.turn() if "forward" in step] == forwards(3, 4)

    plays(case)
