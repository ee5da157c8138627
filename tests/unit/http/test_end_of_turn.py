"""The end of a turn of the loop: its stages in order, whatever was left first, and none lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.web import LOOPS, run_on
from subluminal.http.end_of_turn import ANSWER, FORWARD, JUDGE, RECORD, end_of_turn

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def test_what_was_left_is_done_stage_by_stage_before_the_loop_goes_on(loop: str) -> None:
    async def main() -> None:
        done: list[str] = []
        end = end_of_turn()
        assert end is end_of_turn()
        end.leave(ANSWER, lambda: done.append("answer"))
        end.leave(RECORD, lambda: done.append("record"))
        end.leave(FORWARD, lambda: done.append("forward"))
        end.leave(JUDGE, lambda: end.leave(FORWARD, lambda: done.append("of what was judged")))
        asyncio.get_running_loop().call_soon(done.append, "the next callback")
        assert done == []
        await asyncio.sleep(0)
        assert done == ["forward", "of what was judged", "record", "answer", "the next callback"]

    run_on(loop, main())


def test_what_a_late_stage_leaves_for_an_early_one_is_done_in_the_next_turn(loop: str) -> None:
    async def main() -> None:
        done: list[str] = []
        end = end_of_turn()
        end.leave(ANSWER, lambda: end.leave(JUDGE, lambda: done.append("judge")))
        await asyncio.sleep(0)
        assert done == []
        await asyncio.sleep(0)
        assert done == ["judge"]

    run_on(loop, main())


def test_one_that_fails_takes_nothing_from_the_others(loop: str) -> None:
    async def main() -> None:
        done: list[str] = []
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        end = end_of_turn()
        for _ in range(2):
            end.leave(RECORD, lambda: [][0])
            end.leave(RECORD, lambda: done.append("record"))
            end.leave(ANSWER, lambda: done.append("answer"))
            await asyncio.sleep(0)
        assert done == ["record", "answer"] * 2
        assert [type(fault) for fault in told] == [IndexError] * 2

    run_on(loop, main())


def test_each_loop_has_its_own(loop: str) -> None:
    ends: list[Any] = []

    async def main() -> None:
        ends.append(end_of_turn())

    run_on(loop, main())
    run_on(loop, main())
    assert ends[0] is not ends[1]
