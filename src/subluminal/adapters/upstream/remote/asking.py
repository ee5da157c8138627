"""Requests to one origin, with what proves who we are; a redirect within it is followed once, a login renewed once.

Nothing of a request ever goes to another origin.
"""

from __future__ import annotations

from urllib.parse import urljoin

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.credentials import Credentials
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.held import Message
from subluminal.adapters.upstream.remote.replies import Post
from subluminal.contracts.errors import SubluminalError
from subluminal.http.heads import Headers
from subluminal.http.pool import Origin, Pool
from subluminal.http.urls import ServerUrl, read_url

_SAME_REQUEST = (307, 308)
_REDIRECTS = (301, 302, 303, *_SAME_REQUEST)


class Asking:
    """`ask` returns an answer whose head is there; raises Fault where there is none to be had."""

    def __init__(self, url: ServerUrl, credentials: Credentials, pool: Pool, agent: bytes) -> None:
        self.url = url
        self.credentials = credentials
        self._pool = pool
        self._headers: Headers = [(b"host", url.origin.authority), (b"accept-encoding", b"identity")]
        if not credentials.has(b"user-agent"):
            self._headers.append((b"user-agent", agent))

    async def ask(
        self,
        method: bytes,
        headers: Headers,
        body: Message = b"",
        target: bytes | None = None,
        post: Post | None = None,
    ) -> Answer:
        """`post` knows its answer from the beginning, so that it can be given up at any time."""
        target = self.url.target.encode("ascii") if target is None else target
        redirected = renewed = False
        token = await self.credentials.token()
        while True:
            all_headers = [*self._headers, *headers, *self.credentials.headers(token)]
            answer = Answer(self._pool, None if post is None else post.started.set)
            if post is not None:
                post.answer = answer
            await answer.ask(method, target, all_headers, body)
            if answer.status in _REDIRECTS:
                answer.close()
                if redirected:
                    raise Fault("it redirects again and again.")
                target = self._within_origin(answer)
                redirected = True
            elif answer.status == 401 and not renewed:
                renewed = True
                other = await (self.credentials.found_since() if token is None else self.credentials.renewed(token))
                if other is None:
                    return answer
                answer.close()
                token = other
            else:
                return answer

    def resolve(self, address: str) -> ServerUrl | None:
        """Where an address of the server's own leads; None where it cannot be understood."""
        try:
            return read_url(urljoin(str(self.url), address))
        except (SubluminalError, ValueError):
            return None

    @property
    def origin(self) -> Origin:
        return self.url.origin

    def _within_origin(self, answer: Answer) -> bytes:
        location = (answer.header(b"location") or b"").decode("ascii", "replace")
        to = self.resolve(location) if location else None
        if to is None:
            raise Fault(f"it answered {answer.status}, a redirect that leads nowhere.")
        if to.origin != self.origin:
            raise Fault(
                f"it redirects to {to.origin}, another origin, where nothing is sent to. If that is the server you "
                "mean, use its address."
            )
        if answer.status not in _SAME_REQUEST:
            raise Fault(f"it answered {answer.status}, a redirect that drops the message. Use the address it leads to.")
        return to.target.encode("ascii")
