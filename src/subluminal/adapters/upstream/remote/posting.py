"""One message to the server and what follows: its reply, a stream of messages, a refusal, a session begun again.

A message is sent again only where the server has said that it did not take it: 404 for a session that it has forgotten,
a redirect within the origin, a login that had to be renewed.
"""

from __future__ import annotations

import asyncio

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.asking import Asking
from subluminal.adapters.upstream.remote.faults import Fault, NoAnswer
from subluminal.adapters.upstream.remote.legacy import LegacyStream
from subluminal.adapters.upstream.remote.limits import MAX_FAILURES, MAX_REFUSAL_BYTES, REFUSAL_SECONDS
from subluminal.adapters.upstream.remote.listening import Listening
from subluminal.adapters.upstream.remote.messages import CANCELLED, DISCOVER, INITIALIZE, error_in
from subluminal.adapters.upstream.remote.replies import Post, Replies
from subluminal.adapters.upstream.remote.session import Session
from subluminal.adapters.upstream.remote.streams import ACCEPT_STREAM, EVENT_STREAM, Place, StreamReader
from subluminal.http.heads import Headers, values

_JSON = b"application/json"
_HEADERS: Headers = [(b"accept", b"application/json, text/event-stream"), (b"content-type", _JSON)]
_METHOD_NOT_FOUND = -32601
# What a server of the transport of 2024-11-05 says to a message that is posted to its stream.
_OLD_SERVER = (400, 404, 405)


class Posting:
    """`name` is the server's in the client's configuration: the user is told how to log in there."""

    def __init__(
        self,
        name: str,
        asking: Asking,
        session: Session,
        replies: Replies,
        reader: StreamReader,
        listening: Listening,
        legacy: LegacyStream,
        transport: str,
    ) -> None:
        self._name = name
        self._asking = asking
        self._session = session
        self._replies = replies
        self._reader = reader
        self._listening = listening
        self._legacy = legacy
        self._transport = transport
        self._renewing = asyncio.Lock()
        replies.learned = self._learned

    async def carry(self, post: Post) -> None:
        """Raises Fault where the message cannot be delivered or its answer cannot be had."""
        try:
            await self._take(post, await self._send(post))
        finally:
            post.started.set()
            if post.answer is not None:
                (post.answer.close if post.open else post.answer.close_soon)()

    # -- sending --------------------------------------------------------------------------------------------------

    async def _send(self, post: Post) -> Answer:
        session, outgoing = self._session, post.outgoing
        if session.is_modern(outgoing):
            return await self._ask(post)
        if outgoing.method == INITIALIZE:
            return await self._send_initialize(post)
        if not post.ours:
            await session.steady.wait()
            if session.lost:
                await self._begin_again(session.number)
        if self._transport == "sse" and self._legacy.stream is None:
            await self._legacy.open()
        number, in_session = session.number, session.id is not None or session.endpoint is not None
        answer = await self._ask(post)
        if answer.status != 404 or not in_session:
            return answer
        answer.close()
        if post.ours or outgoing.is_answer or outgoing.method == CANCELLED:
            raise Fault("it has forgotten the session.")
        await self._begin_again(number)
        answer = await self._ask(post)
        if answer.status == 404:
            answer.close()
            session.lost = True
            raise Fault("it has forgotten the session again and again (404).")
        return answer

    async def _send_initialize(self, post: Post) -> Answer:
        """Here it shows which transport the server speaks."""
        session = self._session
        session.forget()
        if self._transport == "sse" or session.endpoint is not None:
            await self._legacy.open()
            return await self._ask(post)
        answer = await self._ask(post)
        if answer.status not in _OLD_SERVER or self._transport != "auto":
            return answer
        status, error = answer.status, await self._error(answer)
        if error is not None:
            await self._replies.refuse(post, error)
            return answer
        try:
            await self._legacy.open()
        except Fault as fault:
            raise Fault(f"it answered {status}, and as a server of 2024-11-05: {fault.sentence}") from None
        return await self._ask(post)

    async def _ask(self, post: Post) -> Answer:
        session, outgoing = self._session, post.outgoing
        headers = [*_HEADERS, *session.headers(outgoing)]
        target = None if session.is_modern(outgoing) else session.endpoint
        if target is not None:
            post.stream = self._legacy.stream
        return await self._asking.ask(b"POST", headers, outgoing.body, target, post)

    async def _begin_again(self, number: int) -> None:
        """The server has forgotten session `number`: what the client said at its beginning is said again, once."""
        session = self._session
        async with self._renewing:
            if session.number != number and not session.lost:
                return
            if session.initialize is None:
                raise Fault("it has forgotten the session.")
            session.steady.clear()
            session.lost = True
            try:
                await self._say_again(session)
            except Fault as fault:
                raise Fault(
                    f"it has forgotten the session, and a new one could not be begun: {fault.sentence}"
                ) from None
            finally:
                session.steady.set()

    async def _say_again(self, session: Session) -> None:
        assert session.initialize is not None
        first = Post(session.initialize, ours=True)
        self._replies.expect(first)
        try:
            await self.carry(first)
        finally:
            self._replies.forget(first)
        if first.result is None:
            raise Fault("it refused to initialize.")
        if session.initialized is not None:
            await self.carry(Post(session.initialized, ours=True))
            self._listening.begin()

    # -- the answer -----------------------------------------------------------------------------------------------

    async def _take(self, post: Post, answer: Answer) -> None:
        if answer.status >= 300 or answer.status < 200:
            await self._refused(post, answer)
            return
        if not post.open:
            return
        if post.stream is not None:
            await post.settled.wait()
            return
        kind = answer.media_type
        if answer.status == 202 or kind not in (_JSON, EVENT_STREAM):
            raise Fault("it accepted a request without an answer to it.")
        if answer.is_encoded:
            raise Fault("its answer is compressed, which it was asked not to do.")
        if post.outgoing.method == INITIALIZE:
            self._session.begun(answer)
        if kind == _JSON:
            await self._reader.whole(answer, post)
            if post.open:
                raise Fault("its answer is no reply to this request.")
        else:
            await self._follow(post, answer)

    async def _follow(self, post: Post, answer: Answer) -> None:
        """The stream of a request, over its cuts, until its replies have come."""
        place = Place()
        idle = 0
        while True:
            told = place.told
            why = "the stream of its answer ended without a reply."
            try:
                await self._reader.read(answer, place, post)
            except NoAnswer as fault:
                why = f"the stream of its answer was cut: {fault.sentence}."
            if not post.open or post.cancelled:
                return
            if not place.last_id or self._session.is_modern(post.outgoing):
                raise Fault(why)
            answer.close()
            idle = 0 if place.told > told else idle + 1
            answer = await self._resumed(post, place, idle, why)

    async def _resumed(self, post: Post, place: Place, idle: int, why: str) -> Answer:
        """The rest of a stream. `idle`: how often in a row it has brought nothing."""
        for failures in range(MAX_FAILURES):
            await asyncio.sleep(place.delay_s(idle, failures))
            if post.cancelled:
                break
            headers = [ACCEPT_STREAM, *self._session.headers(), *place.headers()]
            try:
                answer = await self._asking.ask(b"GET", headers, post=post)
            except NoAnswer:
                continue
            if answer.status == 200 and answer.media_type == EVENT_STREAM and not answer.is_encoded:
                return answer
            answer.close()
            if answer.status < 500:
                break
        raise Fault(why)

    # -- refusals -------------------------------------------------------------------------------------------------

    async def _refused(self, post: Post, answer: Answer) -> None:
        if not post.open:
            return
        error = await self._error(answer)
        if error is not None:
            await self._replies.refuse(post, error)
            return
        code = _METHOD_NOT_FOUND if post.outgoing.method == DISCOVER and answer.status in _OLD_SERVER else None
        raise Fault(self._sentence(answer), code)

    def _sentence(self, answer: Answer) -> str:
        status = answer.status
        own, command = self._asking.credentials.own, self._asking.credentials.login_command
        if status == 401 and own:
            return "it does not take the credential of its entry (401)."
        if status == 401:
            return f"it wants a login (401). Tell the user to run: {command}"
        if status == 403 and any(
            b"insufficient_scope" in value for value in values(answer.headers, b"www-authenticate")
        ):
            again = "" if own else f" Tell the user to log in again with the scope: {command}"
            return f"the credential lacks a scope that this needs (403).{again}"
        if status == 429 or status == 503:
            return f"it answered {status}. Try again later."
        return f"it answered {status}."

    async def _error(self, answer: Answer) -> bytes | None:
        """The JSON-RPC error in a refusal."""
        if answer.media_type != _JSON or answer.is_encoded:
            return None
        try:
            async with asyncio.timeout(REFUSAL_SECONDS):
                return error_in(await answer.first_bytes(MAX_REFUSAL_BYTES))
        except (TimeoutError, NoAnswer):
            return None

    # -- what replies say -----------------------------------------------------------------------------------------

    def _learned(self, post: Post) -> None:
        if post.result is None:
            return
        if post.outgoing.method == INITIALIZE:
            self._session.agreed(post.outgoing, post.result)
        elif post.outgoing.method == "tools/list" and post.outgoing.version:
            self._session.learn_tools(post.result)
