"""What a server behind a URL is shown with every request: headers given to us for it, or the token of a login."""

from __future__ import annotations

import asyncio
from functools import partial
from time import time
from typing import TYPE_CHECKING

from subluminal.contracts.errors import SubluminalError
from subluminal.logins.tokens import find

if TYPE_CHECKING:
    from subluminal.adapters.upstream.reach import Reach
    from subluminal.http.heads import Headers


LEAST_BYTES = 8


class Shown:
    """A login's token is asked for with every request, because another process may have renewed it.

    Without a credential of its own, a login that is made while we run is found when the server asks for one.
    """

    def __init__(self, reach: Reach) -> None:
        self._headers: Headers = [
            (name.encode("ascii"), value.encode("latin-1")) for name, value in reach.resolved.headers.items()
        ]
        self._has_own = any(name.lower() == b"authorization" for name, _ in self._headers)
        self._login = None if self._has_own else reach.login
        self._find = partial(find, reach.name, reach.url, reach.heard)
        self._last: str | None = None
        self._known = reach.resolved.secrets
        self._newest: list[str] = []
        self._as_bytes: tuple[int, list[bytes]] = (-1, [])

    @property
    def can_renew(self) -> bool:
        return not self._has_own

    def headers(self) -> Headers:
        if self._login is None:
            return self._headers
        try:
            self._last = self._login.access_token(time())
        except SubluminalError:
            self._last = None
        if self._last is None:
            return self._headers
        return [*self._headers, (b"authorization", b"Bearer " + self._last.encode("ascii", "replace"))]

    def without(self, headers: Headers) -> Headers:
        """Headers of an answer, but for those that repeat what we showed."""
        secrets = self._secrets()
        if not secrets:
            return headers
        return [(name, value) for name, value in headers if not any(secret in value for secret in secrets)]

    def _secrets(self) -> list[bytes]:
        """Short ones would be found where they do not stand."""
        known = self._known
        if self._as_bytes[0] != len(known) or known[-1:] != self._newest:
            self._newest = known[-1:]
            values = [s.encode("utf-8", "surrogateescape") if isinstance(s, str) else bytes(s) for s in known]
            self._as_bytes = (len(known), [value for value in values if len(value) >= LEAST_BYTES])
        return self._as_bytes[1]

    async def renew(self) -> bool:
        """Whether there is another token than the one that was shown last. One refresh at a time over all processes."""
        loop = asyncio.get_running_loop()
        try:
            if self._login is None:
                self._login = await loop.run_in_executor(None, self._find)
            if self._login is None:
                return False
            token = await loop.run_in_executor(None, self._login.refresh, time(), self._last)
        except SubluminalError:
            return False
        return token != self._last
