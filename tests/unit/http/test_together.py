"""Writes that wait for the end of a turn of the loop: none overtakes another of its connection, none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subluminal.http.end_of_turn import ANSWER
from subluminal.http.heads import response_lines
from subluminal.http.inbound import Inbound, Visit
from subluminal.http.serving import Serving
from subluminal.http.together import FEW, MOST, Together


class Notes(asyncio.Transport):
    """A transport that notes what is done with it."""

    def __init__(self, log: list[bytes] | None = None) -> None:
        super().__init__()
        self.log: list[bytes] = [] if log is None else log
        self.closing = False

    def write(self, data: Any) -> None:
        self.log.append(bytes(data))

    def close(self) -> None:
        self.closing = True
        self.log.append(b"closed")

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Patient:
    """A listener that answers when it is told to."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        visit.listen(self)

    def data(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def gone(self) -> None: ...
    def full(self) -> None: ...
    def room(self) -> None: ...

    def answer(self) -> None:
        self.visit.answer_as(response_lines(200, []), self.visit.head.target)


def get(target: bytes, more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: h\r\n%b\r\n" % (target, more)


class Crowd:
    def __init__(self, count: int) -> None:
        self.patients: list[Patient] = []
        self.serving = Serving(lambda visit: self.patients.append(Patient(visit)))
        self.inbounds = [Inbound(self.serving) for _ in range(count)]
        self.transports = [Notes() for _ in range(count)]
        for inbound, transport in zip(self.inbounds, self.transports, strict=True):
            inbound.connection_made(transport)

    def ask(self, number: int, request: bytes) -> Patient:
        self.inbounds[number].data_received(request)
        return self.patients[-1]

    def said(self, number: int) -> list[bytes]:
        return [part.rpartition(b"\r\n")[2] for part in self.transports[number].log]


def test_answers_of_a_crowd_leave_at_the_end_of_the_turn_and_those_of_a_few_at_once() -> None:
    async def main() -> None:
        crowd = Crowd(FEW + 1)
        asked = [crowd.ask(number, get(b"/%d" % number)) for number in range(FEW + 1)]
        asked[0].answer()
        assert crowd.said(0) == []
        await asyncio.sleep(0)
        assert crowd.said(0) == [b"/0"]
        for patient in asked[1:]:
            patient.answer()
        assert crowd.said(FEW) == [b"/%d" % FEW] and crowd.serving.under_way == 0

    asyncio.run(main())


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
def test_nothing_overtakes_an_answer_of_its_connection(more: bytes) -> None:
    async def main() -> None:
        crowd = Crowd(FEW + 2)
        asked = [crowd.ask(number, get(b"/%d" % number)) for number in range(FEW + 2)]
        asked[0].answer()
        second = crowd.ask(0, get(b"/second", more))  # sent before the first answer was read
        second.visit.answer(200, [], b"/second")
        await asyncio.sleep(0)
        assert crowd.said(0) == [b"/0", b"/second", *([b"closed"] if more else [])]
        assert crowd.serving.under_way == FEW + 1

    asyncio.run(main())


def test_an_answer_that_waits_leaves_before_its_connection_is_closed() -> None:
    async def main() -> None:
        crowd = Crowd(FEW + 1)
        asked = [crowd.ask(number, get(b"/%d" % number)) for number in range(FEW + 1)]
        asked[0].answer()
        crowd.inbounds[0].close_if_idle()
        assert crowd.said(0) == [b"/0", b"closed"]

    asyncio.run(main())


def test_nobody_waits_for_more_than_so_many_and_what_has_closed_is_passed_over() -> None:
    async def main() -> None:
        log: list[bytes] = []
        together = Together(ANSWER)
        gone = Notes(log)
        together.write(gone, b"to nobody")
        gone.closing = True
        for number in range(1, MOST):
            assert log == []
            together.write(Notes(log), b"%d" % number)
        assert log == [b"%d" % number for number in range(1, MOST)]
        await asyncio.sleep(0)
        assert len(log) == MOST - 1

    asyncio.run(main())
