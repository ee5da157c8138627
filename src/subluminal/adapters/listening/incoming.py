"""A request on its way in: its body is gathered, in memory or, where it is too large for that, in an unlinked file, and
what it says is judged as a whole. What passes on the server's answer hears of the client from here on."""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from subluminal.host.config import Config
    from subluminal.host.oversize import Oversize
    from subluminal.http.inbound import Visit
    from subluminal.producer.producer import Producer


class Judging(Protocol):
    """Where it is judged. `unjudged` counts requests that have begun to come: their run must not end before."""

    producer: Producer
    config: Config
    unjudged: int


class Replying(Protocol):
    """What passes on a server's answer to one request."""

    def give_up(self) -> None:
        """The client has left."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


D = TypeVar("D", bound=Judging)


class Incoming(Generic[D]):
    """To be inherited; listener of its visit. `big`: a body that is not held; else `whole` has it."""

    __slots__ = ("_is_judged", "_pieces", "_replies", "big", "desk", "size", "visit")

    def __init__(self, visit: Visit, desk: D) -> None:
        self.visit = visit
        self.desk = desk
        self.big: Oversize | None = None
        self.size = 0
        self._pieces: list[bytes] = []
        self._replies: Replying | None = None
        self._is_judged = False
        desk.unjudged += 1
        visit.when_over(self.over)

    def data(self, data: bytes) -> None:
        self.size += len(data)
        if self.big is not None:
            self.big.feed(data)
            return
        self._pieces.append(data)
        config = self.desk.config
        if self.size > config.max_inspect_bytes:
            from subluminal.host.oversize import Oversize  # few have such a body

            self.big = Oversize(True, config.max_message_bytes)
            for piece in self._pieces:
                self.big.feed(piece)
            self._pieces = []

    def whole(self) -> bytes:
        """The body, once."""
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def complete(self) -> int:
        """It is all there, since the moment that is returned, and judged by the policies of that moment."""
        read_ns = monotonic_ns()
        producer = self.desk.producer
        if read_ns >= producer.check_at_ns:
            producer.check_policies(read_ns, time_ns() // 1_000_000)
        return read_ns

    def judged(self) -> None:
        if not self._is_judged:
            self._is_judged = True
            self.desk.unjudged -= 1

    def gone(self) -> None:
        """The client has left: so does the server see it. What this means is a matter of the protocol."""
        if self._replies is not None:
            self._replies.give_up()

    def full(self) -> None:
        if self._replies is not None:
            self._replies.pause()

    def room(self) -> None:
        if self._replies is not None:
            self._replies.resume()

    def over(self) -> None:
        """However it ended: nothing is kept of it."""
        if not self._is_judged:
            self.judged()
        self._pieces = []
        if self.big is not None:
            self.big.drop()
