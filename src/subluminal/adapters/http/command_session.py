"""One session with a server that is a process: what goes to it, and where what it says belongs.

A reply goes to the request that it answers, a word about progress or of a subscription to the request it is about.
Anything else that a server says goes to the one request that is open, else to the stream the client listens on, or,
while there is none, to the newest request.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any

from subluminal.adapters.http.answers import EVENT_STREAM, json_answer, one_body
from subluminal.adapters.http.awaiting import Awaiting, elements
from subluminal.adapters.http.posting import Posting
from subluminal.adapters.http.server_rules import Unfit, status_of, unfit_beginning, unfit_stateless
from subluminal.adapters.listening.held import Held
from subluminal.adapters.upstream.piped import PipedServer
from subluminal.contracts.event_stream import event_bytes
from subluminal.contracts.jsontext import to_json
from subluminal.mcp.faults import fault
from subluminal.mcp.headers import ParameterHeaders
from subluminal.mcp.message.reading import TOOLS_LIST, id_key, read_value
from subluminal.mcp.message.wire import read_reply
from subluminal.mcp.refusal import server_gone

if TYPE_CHECKING:
    from subluminal.adapters.http.command_server import CommandServer
    from subluminal.adapters.http.desk import Desk
    from subluminal.host.oversize import Oversize
    from subluminal.http.inbound import Visit

# What a server says while nobody listens.
MAX_KEPT = 256
MAX_KEPT_BYTES = 1024 * 1024
_PIECE = 64 * 1024
CLIENT_LEFT = "the client closed the connection"
LISTEN = "subscriptions/listen"
SUBSCRIPTION_KEY = b"io.modelcontextprotocol/subscriptionId"  # in `_meta`: the id of the request to listen
# Nobody can name it: it has a character that no header and no path may have.
STATELESS_KEY = b"stateless\n"


class CommandSession:
    """`Behind` for its requests, and the party for what the server says."""

    def __init__(self, server: CommandServer, desk: Desk, session: bytes) -> None:
        self.server = server
        self.desk = desk
        self.session = session
        self.exchange = desk.exchange(session)
        self.used = monotonic()
        self.replies_on_stream = False
        self.is_stateless = session.startswith(STATELESS_KEY)
        self._parameters = ParameterHeaders()
        self._stream: Visit | None = None
        self._waiting: dict[bytes, Awaiting] = {}
        self._refused: dict[bytes, Awaiting] = {}  # of batches whose other calls are under way
        self._later: dict[bytes, deque[_Patient]] = {}  # requests whose id another has, which is open
        self._line_said: bytes | None = None
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._big: Oversize | None = None
        self._piped = PipedServer(desk.held_bytes, self._line, self._piece, self._ended)
        self._started = False

    @property
    def is_idle(self) -> bool:
        return not self._waiting and self._stream is None

    # -- from the client ------------------------------------------------------------------------------------------

    def post(self, visit: Visit, opens: bool = False) -> None:
        if self._piped.is_full:
            json_answer(visit, 503, server_gone(b"null", "the server does not read what it is sent."))
            return
        if self.is_stateless:
            posting: Posting = _Patient(self, visit)
        else:
            posting = Posting(self, visit, self.desk, self.exchange, self.session)
        if opens:
            self.server.opened(self, visit)
        visit.listen(posting)

    def begin(self, posting: Posting, message: bytes | Held) -> Awaiting:
        unfit = self._unfit(posting, message)
        if unfit is not None:
            return Awaiting(self, posting, unfit)
        if not self._started:
            self._started = True
            asyncio.get_running_loop().create_task(self._start())
        awaiting = Awaiting(self, posting)
        for id_raw in awaiting.ids:
            self._waiting[id_key(id_raw)] = awaiting
        for id_raw in awaiting.refused:
            self._refused[id_key(id_raw)] = awaiting
        if isinstance(message, Held):
            while piece := message.read(_PIECE):
                self._piped.send_piece(piece)
            self._piped.end_line()
        else:
            self._piped.send(message)
        return awaiting

    def later(self, posting: _Patient) -> bool:
        """Whether it waits: an id of its is in flight. Each request of the stateless revision stands alone, but this
        server tells them apart by their ids."""
        key = next((id_key(id_raw) for id_raw in posting.ids if self.exchange.waits_for(id_raw)), None)
        if key is None:
            return False
        self._later.setdefault(key, deque()).append(posting)
        return True

    def _free(self, ids: Iterable[bytes]) -> None:
        """These ids are in flight no more."""
        for key in map(id_key, ids) if self._later else ():
            for posting in self._later.pop(key, ()):
                posting.go_on()  # the first begins, the others wait anew

    def _unfit(self, posting: Posting, message: bytes | Held) -> Unfit | None:
        head, reading = posting.visit.head, posting.reading
        if not self.is_stateless:
            begins = not self._started and not self.replies_on_stream
            return unfit_beginning(head, reading) if begins else None
        if reading is None or isinstance(message, Held):
            return None
        return unfit_stateless(head, reading, self._parameters)

    def refuse(self, awaiting: Awaiting, unfit: Unfit) -> None:
        self.desk.do(self._refuse_now, awaiting, unfit, needs_state=self.exchange.is_watched)

    def _refuse_now(self, awaiting: Awaiting, unfit: Unfit) -> None:
        for id_raw in awaiting.ids:
            self.exchange.unanswerable(id_raw, "ERROR", fault("upstream_error", unfit.message, unfit.code))
        self.desk.carry_out(None, monotonic_ns())
        self._free(awaiting.ids)
        awaiting.refuse(unfit)
        if not self._started:
            self.server.forget(self)
            self.desk.sessions.pop(self.session, None)

    async def _start(self) -> None:
        try:
            await self._piped.start(self.server.command, self.server.environ)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "its command or its environment cannot be passed on"
            message = f"The tool server {self.server.name} cannot be started: {why}."
            print(f"sub: {message}", file=sys.stderr, flush=True)
            self._lost(message)

    def watch(self, visit: Visit, endpoint: bytes | None = None) -> None:
        """The stream that the client listens on: one at a time, the newest."""
        if self._stream is not None:
            self._stream.end()
        visit.listen(_Watching(self, visit))
        self._stream = visit
        visit.begin(200, [*EVENT_STREAM, *([] if endpoint else [(b"mcp-session-id", self.session)])])
        if endpoint is not None:
            self.replies_on_stream = True
            visit.send(b"event: endpoint\ndata: " + endpoint + b"\n\n")
        while self._kept:
            visit.send(event_bytes(self._kept.popleft()))
        self._kept_bytes = 0

    def stream_gone(self, visit: Visit) -> None:
        self._piped.resume(visit)
        if self._stream is visit:
            self._stream = None
            if self.replies_on_stream:
                self.server.forget(self)
                asyncio.get_running_loop().create_task(self.end(CLIENT_LEFT))

    def keep_alive(self) -> None:
        for key in list(self._later):  # calls that have had their time
            for posting in self._later.pop(key):
                posting.go_on()
        if self._stream is not None:
            self._stream.send(b": \n\n")

    # -- from the server ------------------------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        self.desk.do(self._said, line, needs_state=self.exchange.needs_state(line))

    def _said(self, line: bytes) -> None:
        now_ns = monotonic_ns()
        self._line_said = line
        self.exchange.server_message(line, now_ns)
        self.desk.carry_out(self, now_ns)
        self._line_said = None
        if self._later and (reply := read_reply(line)) is not None:
            self._free([reply.id_raw])

    def forward(self, messages: list[Any]) -> None:
        """Nothing of a server's goes to a server."""

    def answer(self, messages: list[bytes]) -> None:
        for message in messages:
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        if self.replies_on_stream:
            self._asked(message)
            self._say(message)
        elif message[:1] == b"[":
            self._deliver_batch(message)
        else:
            awaiting = self._asked(message)
            if awaiting is not None:
                awaiting.reply(message)
            else:
                self._say(message)

    def _deliver_batch(self, message: bytes) -> None:
        """Replies to several requests may come in one array: each gets its own."""
        ours = message is not self._line_said
        owners: dict[Awaiting | None, list[bytes]] = {}
        for element in elements(message):
            owners.setdefault(self._asked(element, ours), []).append(element)
        if ours and len(owners) == 2 and None in owners:  # refusals with an id that stood in the batch more than once
            (owner,) = (each for each in owners if each is not None)
            owners = {owner: [*owners[owner], *owners[None]]}
        for awaiting, own in owners.items():
            whole = message if len(owners) == 1 else b"[" + b",".join(own) + b"]"
            if awaiting is not None:
                awaiting.reply(whole, len(own))
            else:
                self._say(whole)

    def _asked(self, message: bytes, ours: bool = False) -> Awaiting | None:
        """Whose request a reply answers; None for anything else. `ours`: it may be a refusal."""
        reply = read_reply(message)
        if reply is None:
            return None
        key = id_key(reply.id_raw)
        refused = self._refused.pop(key, None) if ours else None
        if refused is not None:
            return refused
        awaiting = self._waiting.pop(key, None)
        if awaiting is not None and awaiting.method == TOOLS_LIST and self.is_stateless:
            self._parameters.learn(read_value(reply.result or b"null"))
        return awaiting

    def status_of(self, replies: list[bytes]) -> int:
        """Errors have a status in the stateless revision only."""
        reply = read_reply(replies[0]) if self.is_stateless and len(replies) == 1 else None
        return 200 if reply is None else status_of(reply.error)

    def _say(self, message: bytes) -> None:
        awaiting = self._about(message) or self._likely()
        if awaiting is not None:
            awaiting.event(message)
        elif self._stream is not None:
            self._stream.send(event_bytes(message))
        elif len(self._kept) < MAX_KEPT and self._kept_bytes + len(message) <= MAX_KEPT_BYTES:
            self._kept.append(message)
            self._kept_bytes += len(message)

    def _about(self, message: bytes) -> Awaiting | None:
        """The open request that a word about progress, or of a subscription, belongs to."""
        if self.replies_on_stream or (b"progressToken" not in message and SUBSCRIPTION_KEY not in message):
            return None
        value = read_value(message)
        params = value.get("params") if isinstance(value, dict) else None
        if not isinstance(params, dict):
            return None
        token = params.get("progressToken")
        if token is not None:
            return next((each for each in self._waiting.values() if each.takes_events and each.token == token), None)
        meta = params.get("_meta")
        subscription = meta.get(SUBSCRIPTION_KEY.decode()) if isinstance(meta, dict) else None
        found = self._waiting.get(id_key(to_json(subscription).encode())) if subscription is not None else None
        return found if found is not None and found.takes_events else None

    def _likely(self) -> Awaiting | None:
        """The request that other words may be about: the only one that is open; or, if the client listens on no stream
        of its own, the newest."""
        if self.replies_on_stream:
            return None
        found = [each for each in self._waiting.values() if each.takes_events and each.method != LISTEN]
        return found[-1] if found and (len(found) == 1 or self._stream is None) else None

    # -- lines too large to hold ----------------------------------------------------------------------------------

    def _piece(self, piece: bytes, last: bool) -> None:
        if self._big is None:
            from subluminal.host.oversize import Oversize  # few have such a message

            self._big = Oversize(True, self.desk.config.max_message_bytes, strict=False)
        self._big.feed(piece)
        if last:
            big, self._big = self._big, None
            big.scan.finish()
            self.desk.do(self._said_large, big, needs_state=self.exchange.is_watched)

    def _said_large(self, big: Oversize) -> None:
        id_raw = big.scan.values.get("id") if "method" not in big.scan.values else None
        awaiting = self._waiting.pop(id_key(id_raw), None) if id_raw is not None else None
        refused = self.exchange.withheld(big.scan) if self.exchange.may_edit else []
        self.exchange.server_scanned(big.scan, big.size, big.stream_hash())
        self.desk.carry_out(self, monotonic_ns())
        self._free([] if id_raw is None else [id_raw])
        if awaiting is None or big.fault is not None or refused:
            big.drop()
            if awaiting is not None and refused:
                awaiting.reply(refused[0].data)
            elif awaiting is not None and id_raw is not None:
                awaiting.reply(server_gone(id_raw, "the server's answer is too large to be kept."))
            return
        awaiting.reply_held(Held(*big.release()))

    # -- the end --------------------------------------------------------------------------------------------------

    def _ended(self, status: int | None) -> None:
        self._lost(f"The tool server ended ({status}) before it answered.")

    def _lost(self, message: str) -> None:
        """Everything that waits is answered, and the session is over: the client begins another."""
        self.server.forget(self)
        self.desk.gathering.judge()  # what came before this
        waiting = {id(each): each for each in self._waiting.values()}
        self._waiting.clear()
        self._refused.clear()
        for awaiting in waiting.values():
            awaiting.fail(message)
        self._fail_later(message)
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.end()
        self.desk.sessions.pop(self.session, None)
        work = (self.desk.abandon, self.exchange, "ERROR", "transport", message)
        self.desk.do(*work, needs_state=self.exchange.is_watched)

    async def end(self, why: str) -> None:
        for awaiting in {id(each): each for each in self._waiting.values()}.values():
            awaiting.fail(f"The tool server did not answer: {why}.")
        self._waiting.clear()
        self._fail_later(f"The tool server did not answer: {why}.")
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.end()
        self.desk.end_session(self.session, why)
        await self._piped.end()

    def _fail_later(self, message: str) -> None:
        later, self._later = self._later, {}
        for posting in (each for queue in later.values() for each in queue):
            json_answer(posting.visit, 502, one_body([server_gone(id_raw, message) for id_raw in posting.ids]))

    def left(self, awaiting: Awaiting) -> None:
        """The client has left: replies are recorded and go nowhere. In the stateless revision this is its cancel."""
        self._piped.resume(awaiting)
        for id_raw in awaiting.refused:
            self._forget(self._refused, id_raw, awaiting)
        for id_raw in awaiting.ids:
            self._forget(self._waiting, id_raw, awaiting)
        if self.is_stateless:
            self.desk.do(self._cancel, awaiting.ids, needs_state=self.exchange.is_watched)

    def _forget(self, those: dict[bytes, Awaiting], id_raw: bytes, awaiting: Awaiting) -> None:
        """Its own entry: another request may have the id by now."""
        if those.get(id_key(id_raw)) is awaiting:
            del those[id_key(id_raw)]

    def _cancel(self, ids: list[bytes]) -> None:
        for id_raw in ids:
            if self.exchange.waits_for(id_raw):
                self.exchange.give_up(id_raw, "CANCELLED", fault("unknown", CLIENT_LEFT))
                self._piped.send(
                    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":' + id_raw + b"}}"
                )
        self.desk.carry_out(None, monotonic_ns())
        self._free(ids)

    def pause(self, reader: object) -> None:
        self._piped.pause(reader)

    def resume(self, reader: object) -> None:
        self._piped.resume(reader)


class _Patient(Posting):
    """A request of the stateless revision: while another has its id, it waits."""

    __slots__ = ("_session", "_work")

    gathers = False

    def __init__(self, session: CommandSession, visit: Visit) -> None:
        super().__init__(session, visit, session.desk, session.exchange, session.session)
        self._session = session

    def do(self, work: Callable[..., None], *args: Any, needs_state: bool) -> None:
        self._work = partial(super().do, work, *args, needs_state=needs_state)
        self.go_on()

    def go_on(self) -> None:
        if not self.visit.over and not self._session.later(self):
            self._work()


class _Watching:
    """Listener of a stream that the client listens on."""

    def __init__(self, session: CommandSession, visit: Visit) -> None:
        self._session = session
        self._visit = visit

    def data(self, data: bytes) -> None: ...
    def end(self) -> None: ...

    def gone(self) -> None:
        self._session.stream_gone(self._visit)

    def full(self) -> None:
        self._session.pause(self._visit)

    def room(self) -> None:
        self._session.resume(self._visit)
