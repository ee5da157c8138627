"""What we prove to the server who we are with: headers of the entry, or a login of ours (`sub login`).

A login's token is asked for with every request, because another process may have renewed it; where it is refused it is
renewed once. Both may wait for a disk or another server, so they are done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time
from typing import Any

from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.contracts.errors import SubluminalError
from subluminal.host.secrets.addresses import secret_parts
from subluminal.http.heads import Headers, is_value
from subluminal.logins.tokens import Login, find
from subluminal.logins.wording import login_words


class Credentials:
    """`headers` are the entry's own; one that says who we are leaves no room for a login.

    `heard`: see `logins.tokens.find`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        headers: Headers,
        login: Login | None = None,
        heard: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._name = name
        self._url = url
        self._headers = headers
        self._heard = heard
        self.own = self.has(b"authorization")
        self._login = None if self.own else login
        self._one_at_a_time = asyncio.Lock()

    def has(self, name: bytes) -> bool:
        """Whether the entry sets this header."""
        return any(known.lower() == name for known, _ in self._headers)

    @property
    def login_command(self) -> str:
        """What the user types to log in; an address that may hold a secret is theirs to fill in."""
        return login_words(self._name, "URL" if secret_parts(self._url) else self._url)

    async def token(self) -> str | None:
        if self._login is None:
            return None
        return await self._in_thread(self._login.access_token, time()) or await self.renewed(None)

    async def renewed(self, rejected: str | None) -> str:
        """Another token than the one that was refused. Raises Fault with a sentence that says what to do."""
        assert self._login is not None
        return str(await self._in_thread(self._login.refresh, time(), rejected))

    async def found_since(self) -> str | None:
        """The token of a login that was made while we were running."""
        if self.own or self._login is not None:
            return None
        self._login = await self._in_thread(find, self._name, self._url, self._heard)
        return await self.token()

    def headers(self, token: str | None) -> Headers:
        if token is None:
            return self._headers
        value = b"Bearer " + token.encode("ascii", "replace")
        if not is_value(value):
            raise Fault("the token of the login cannot be sent in a header; log in again")
        return [*self._headers, (b"authorization", value)]

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        async with self._one_at_a_time:
            try:
                return await asyncio.get_running_loop().run_in_executor(None, function, *args)
            except SubluminalError as error:
                raise Fault(f"{error}.") from None
