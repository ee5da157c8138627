"""The stream on which a server speaks unasked: opened once the session stands, opened again while it lives.

A stream that says nothing is no fault. One that ends is opened again, ever more rarely if that brings nothing, and in
the end only when the client says something: nobody is dialled for ever unasked.
"""

from __future__ import annotations

import asyncio

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.asking import Asking
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.limits import MAX_FAILURES, SHORT_STREAM_SECONDS
from subluminal.adapters.upstream.remote.session import Session
from subluminal.adapters.upstream.remote.streams import ACCEPT_STREAM, EVENT_STREAM, Place, StreamReader


class Listening:
    """One round of listening for each session. A round is never cancelled, which could tear a line that it writes."""

    def __init__(self, asking: Asking, session: Session, reader: StreamReader) -> None:
        self._asking = asking
        self._session = session
        self._reader = reader
        self._round: _Round | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """A session stands: no stream of an earlier one is gone on with."""
        self.stop()
        if self._session.endpoint is None:
            self._round = _Round()
            self._start(self._round)

    def stop(self) -> None:
        if self._round is not None:
            self._round.stop()
            self._round = None

    def wake(self) -> None:
        """The client has said something, so the server may be asked again."""
        if self._round is not None and self._round.resting:
            self._round.resting = False
            self._start(self._round)

    def _start(self, this: _Round) -> None:
        task = asyncio.get_running_loop().create_task(self._listen(this))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, this: _Round) -> None:
        loop = asyncio.get_running_loop()
        idle = 0
        while not this.stopped.is_set() and not self._session.lost:
            began, told = loop.time(), this.place.told
            if not await self._once(this):
                return
            useful = this.place.told > told or loop.time() - began >= SHORT_STREAM_SECONDS
            idle = 0 if useful else idle + 1
            if idle >= MAX_FAILURES:
                this.resting = True
                return
            try:
                async with asyncio.timeout(this.place.delay_s(idle)):
                    await this.stopped.wait()
            except TimeoutError:
                pass

    async def _once(self, this: _Round) -> bool:
        """False: the server offers no such stream, or not to us."""
        answer = None
        try:
            headers = [ACCEPT_STREAM, *self._session.headers(), *this.place.headers()]
            answer = await self._asking.ask(b"GET", headers)
            if answer.status >= 500:
                return True
            if answer.status != 200 or answer.media_type != EVENT_STREAM or answer.is_encoded:
                return False
            if this.stopped.is_set():
                return False
            this.answer = answer
            await self._reader.read(answer, this.place, None)
        except Fault:
            pass
        finally:
            this.answer = None
            if answer is not None:
                answer.close()
        return True


class _Round:
    __slots__ = ("answer", "place", "resting", "stopped")

    def __init__(self) -> None:
        self.place = Place()
        self.answer: Answer | None = None
        self.stopped = asyncio.Event()
        self.resting = False  # nothing came of it for too often

    def stop(self) -> None:
        self.resting = False
        self.stopped.set()
        if self.answer is not None:
            self.answer.close()
