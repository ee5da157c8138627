"""The door: who sends a request, at which desk it is served, and what it is read as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.adapters.http_api.desk import Desk
from subluminal.adapters.http_api.reading import read_target
from subluminal.adapters.http_api.refusals import own_answer
from subluminal.adapters.http_api.request import Request
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import HttpFault
from subluminal.producer.pool import NoRoom
from subluminal.producer.visitor import VisitorRefused

if TYPE_CHECKING:
    from collections.abc import Hashable

    from subluminal.adapters.http_api.api import Api
    from subluminal.adapters.http_api.mapping import Mapping
    from subluminal.adapters.listening.callers import Caller
    from subluminal.adapters.listening.front import Front
    from subluminal.host.config import Config
    from subluminal.http.inbound import Visit
    from subluminal.producer.producer import Producer
    from subluminal.producer.visitors import Visitors


class Door:
    def __init__(
        self, mapping: Mapping, api: Api, front: Front, visitors: Visitors, config: Config, urls: dict[str, str]
    ) -> None:
        self.urls = urls
        self._mapping = mapping
        self._api = api
        self._front = front
        self._visitors = visitors
        self._config = config
        self._desks: dict[Hashable, Desk] = {}

    # -- requests -------------------------------------------------------------------------------------------------

    def arrived(self, visit: Visit) -> None:
        try:
            self._admit(visit)
        except HttpFault as fault:
            own_answer(fault.status, f"{fault.why}.").give(visit)
        except VisitorRefused as refused:
            own_answer(400, f"{refused.why}.").give(visit)
        except NoRoom:
            own_answer(503, "too many runs have calls open here; try again later.").give(visit)
        except (SubluminalError, OSError) as fault:  # its run can have no record here
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            own_answer(503, f"calls cannot be recorded here: {why}.").give(visit)

    def _admit(self, visit: Visit) -> None:
        inbound = visit.inbound
        assert inbound is not None
        caller: Caller = inbound.notes
        self._front.admit(visit.head)
        if not self._front.knows(caller.peer):
            raise HttpFault(403, "this address serves the user who started it, and nobody else")
        desk = self._desk(visit, caller)
        reading = read_target(self._mapping, visit.head, self._api.inner_target(visit.head.target))
        visit.listen(Request(self._api, visit, desk, reading))

    def _desk(self, visit: Visit, caller: Caller) -> Desk:
        """The run that this request belongs to."""
        visitor = caller.acting(visit)
        producer = self._visitors.producer_for(visitor)
        key = self._visitors.recognise(visitor)
        desk = self._desks.get(key)
        if desk is None:
            desk = self._desks[key] = Desk(producer, self._config.server(self._mapping.server), self._config)
        elif desk.producer is not producer:  # its run has ended meanwhile, and goes on
            desk.take_up(producer)
        return desk

    # -- now and then, and at the end -----------------------------------------------------------------------------

    def calls_open(self, producer: Producer) -> int:
        desks = [desk for desk in self._desks.values() if desk.producer is producer]
        return sum(desk.calls_open for desk in desks) or int(any(desk.is_busy for desk in desks))

    def ended(self, producer: Producer) -> None:
        """A run has ended, with nothing of it open."""
        for key, desk in list(self._desks.items()):
            if desk.producer is producer:
                del self._desks[key]

    def tick(self, now_ns: int) -> None:
        for desk in list(self._desks.values()):
            desk.tick(now_ns)

    def keep_alive(self) -> None:
        """Answers are the server's own: nothing is put between them."""

    async def close(self) -> None:
        await self._api.close()
        for desk in self._desks.values():
            desk.close("the proxy ended")
        self._desks.clear()
