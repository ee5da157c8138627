"""The provider behind the door: its address, what it is shown, and the connections to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.adapters.listening.onward import onward
from subluminal.adapters.messages_api.targets import joined
from subluminal.http.heads import Headers, RequestHead, request_lines
from subluminal.http.pool import Pool

if TYPE_CHECKING:
    from subluminal.adapters.upstream.shown import Shown
    from subluminal.http.inbound import Visit
    from subluminal.http.urls import ServerUrl
    from subluminal.model.words import Api

JSON_TYPE: Headers = [(b"content-type", b"application/json")]
# How clients show a key. Where we have one, theirs stays here, in whichever of these they sent it.
_KEYS = frozenset((b"x-api-key", b"authorization", b"api-key"))
# Of all requests that are being read at once, and of all answers that wait for the end of a call.
MAX_HELD_BYTES = 256 * 1024 * 1024


class Provider:
    def __init__(self, name: str, url: ServerUrl, shown: Shown) -> None:
        self.name = name
        self.pool = Pool(url.origin)
        self._authority = url.origin.authority
        self._base = url.target.encode().rstrip(b"/")
        self._shown = shown
        self._held = 0

    def target(self, head: RequestHead) -> bytes:
        return joined(self._base, head.target)

    def request_lines(self, head: RequestHead) -> bytes:
        """The head of a request as the provider gets it, but for its length."""
        injected = self._shown.headers()
        kept_here = _KEYS if any(name.lower() in _KEYS for name, _ in injected) else ()
        return request_lines(head.method, self.target(head), onward(head, self._authority, injected, kept_here))

    def unshown(self, headers: Headers) -> Headers:
        """Headers of an answer without those that repeat what only the provider was shown."""
        return self._shown.without(headers)

    # -- what is being read ---------------------------------------------------------------------------------------

    def hold(self, size: int) -> bool:
        """Whether so much more may be kept in memory."""
        if self._held + size > MAX_HELD_BYTES:
            return False
        self._held += size
        return True

    def let_go(self, size: int) -> None:
        self._held -= size

    async def close(self) -> None:
        await self.pool.close()


def refuse(visit: Visit, api: Api, status: int, why: str, data: dict[str, Any] | None = None) -> None:
    """In the form in which the API tells of errors, so that the client shows it."""
    visit.answer(status, JSON_TYPE, api.error(status, as_sentence(why), data))


def as_sentence(why: str) -> str:
    text = why[:1].upper() + why[1:]
    return text if text.endswith((".", "!", "?", "…")) else text + "."
