"""The model API's door: who sends a request, what it asks for, and at which desk it is served."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from subluminal.adapters.listening.front import check_body
from subluminal.adapters.messages_api.asking import Asking
from subluminal.adapters.messages_api.desk import Desk
from subluminal.adapters.messages_api.provider import refuse
from subluminal.adapters.messages_api.targets import api_of, operation
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import HttpFault, values
from subluminal.producer.pool import NoRoom
from subluminal.producer.visitor import VisitorRefused

if TYPE_CHECKING:
    from collections.abc import Hashable

    from subluminal.adapters.listening.callers import Caller
    from subluminal.adapters.listening.front import Front
    from subluminal.adapters.messages_api.provider import Provider
    from subluminal.host.config import Config
    from subluminal.http.inbound import Visit
    from subluminal.producer.producer import Producer
    from subluminal.producer.visitors import Visitors

# Headers that may stand once: readers differ in which of two they take.
OF_MESSAGE = (b"x-api-key", b"api-key")


class Door:
    def __init__(
        self, provider: Provider, front: Front, visitors: Visitors, config: Config, urls: dict[str, str]
    ) -> None:
        self.urls = urls
        self._provider = provider
        self._front = front
        self._visitors = visitors
        self._config = config
        self._desks: OrderedDict[Hashable, Desk] = OrderedDict()

    # -- requests -------------------------------------------------------------------------------------------------

    def arrived(self, visit: Visit) -> None:
        try:
            self._admit(visit)
        except HttpFault as fault:
            self._refuse(visit, fault.status, fault.why)
        except VisitorRefused as refused:
            self._refuse(visit, 400, refused.why)
        except NoRoom:
            self._refuse(visit, 503, "too many runs have calls open here; try again later")
        except (SubluminalError, OSError) as fault:  # its run can have no record here
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            self._refuse(visit, 503, f"calls cannot be recorded here: {why}")

    def _admit(self, visit: Visit) -> None:
        head = visit.head
        inbound = visit.inbound
        assert inbound is not None
        caller: Caller = inbound.notes
        self._front.admit(head)
        if not self._front.knows(caller.peer):
            raise HttpFault(403, "this address serves the user who started it, and nobody else")
        if values(head.headers, b"upgrade"):
            raise HttpFault(426, "nothing but HTTP/1.1 is spoken here; ask without an upgrade")
        asked = operation(head.method, head.target)
        desk = self._desk(visit, caller)
        if not asked.known and desk.may_refuse:
            raise HttpFault(404, "tool calls in answers to such a request could not be judged here")
        if asked.reads_request:
            check_body(head)
        asking = Asking(self._provider, visit, desk, asked)
        if not asking.refuse_ended():
            visit.listen(asking)

    def _desk(self, visit: Visit, caller: Caller) -> Desk:
        """The run that this request belongs to."""
        visitor = caller.acting(visit)
        producer = self._visitors.producer_for(visitor)
        acting = self._visitors.recognise(visitor)
        desk = self._desks.get(acting)
        if desk is None:
            desk = self._desks[acting] = Desk(producer, self._config, acting.directory, self._visitors.learn)
        elif desk.producer is not producer:
            desk.take_up(producer)
        return desk

    @staticmethod
    def _refuse(visit: Visit, status: int, why: str) -> None:
        refuse(visit, api_of(visit.head.target), status, why)

    # -- now and then, and at the end -----------------------------------------------------------------------------

    def calls_open(self, producer: Producer) -> int:
        """Or 1, where none is, but something must still be judged."""
        desks = [desk for desk in self._desks.values() if desk.producer is producer]
        return sum(desk.calls_open for desk in desks) or int(any(desk.is_busy for desk in desks))

    def ended(self, producer: Producer) -> None:
        """A run has ended, with no call of it open."""
        for acting, desk in list(self._desks.items()):
            if desk.producer is producer:
                del self._desks[acting]

    def tick(self, now_ns: int) -> None:
        for desk in list(self._desks.values()):
            desk.tick(now_ns)

    def keep_alive(self) -> None:
        """Providers keep their streams alive themselves."""

    async def close(self) -> None:
        await self._provider.close()
        for desk in self._desks.values():
            desk.close()
