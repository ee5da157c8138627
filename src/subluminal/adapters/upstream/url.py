"""A server behind a URL that looks like a process to the relay: three pipes, a status, signals.

It lives in a thread of this process, with a loop of its own. What it needs is loaded in that thread, while the shim
loads its own.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from subluminal.adapters.upstream.remote.bridge import Bridge
    from subluminal.http.urls import ServerUrl

_SIGKILL = 9
EXIT_INTERNAL = 70


class RemoteServer:
    """See `adapters.upstream.server`. There is no process, so that nobody has to watch over its end."""

    def __init__(
        self,
        name: str,
        url: ServerUrl,
        headers: Mapping[str, str],
        login: Any,
        *,
        transport: str,
        max_inspect: int,
        max_message: int,
        heard: Callable[[list[str]], None] | None,
    ) -> None:
        self._line_in, self.stdin = os.pipe()
        self.stdout, self._line_out = os.pipe()
        self.stderr, self._words_out = os.pipe()
        os.set_blocking(self._words_out, False)  # whoever does not read them does without
        self.status: int | None = None
        self._name = name
        self._url = url
        self._headers = headers
        self._login = login
        self._transport = transport
        self._max_inspect = max_inspect
        self._max_message = max_message
        self._heard = heard
        self._lock = allocate_lock()
        self._loop: Any = None
        self._bridge: Bridge | None = None
        self._signalled = 0
        self._said = ""

    def start(self) -> None:
        start_new_thread(self._live, ())

    def poll(self) -> int | None:
        return self.status

    def signal(self, number: int) -> bool:
        if self.status is not None:
            return False
        if number == _SIGKILL:
            self._end(128 + number)
        elif number:
            with self._lock:
                self._signalled = number
                if self._loop is not None and self._bridge is not None:
                    self._loop.call_soon_threadsafe(self._bridge.stop)
        return True

    def release_watchdog(self) -> None:
        pass

    # -- in its thread --------------------------------------------------------------------------------------------

    def _live(self) -> None:
        status = EXIT_INTERNAL
        try:
            import asyncio

            # Nobody closes the loop: the process ends next, and the lookup of a name may still be under way.
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(self._unexpected)
            self._loop.run_until_complete(self._serve())
            status = 128 + self._signalled if self._signalled else 0
        except BaseException as fault:
            self._tell_of(fault)
        finally:
            self._end(status)

    async def _serve(self) -> None:
        from subluminal.adapters.upstream.remote.pipes import LineReader, LineWriter, RelayGone
        from subluminal.adapters.upstream.remote.setting_up import make_bridge

        bridge = make_bridge(
            self._name,
            self._url,
            self._headers,
            self._login,
            LineReader(self._line_in, self._max_inspect, self._max_message),
            LineWriter(self._line_out),
            self._say,
            self._tell_of,
            transport=self._transport,
            max_inspect=self._max_inspect,
            max_message=self._max_message,
            heard=self._heard,
        )
        with self._lock:
            self._bridge = bridge
            if self._signalled:
                bridge.stop()
        try:
            await bridge.run()
        except RelayGone:
            pass

    def _end(self, status: int) -> None:
        """The relay sees the end of both streams, and the status before. Whoever still writes writes to nobody: the
        thread may be in the middle of a line, and a descriptor that was closed could be another's by then."""
        with self._lock:
            if self.status is not None:
                return
            self.status = status
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in (self._line_out, self._words_out):
                os.dup2(null, fd, inheritable=False)
            os.close(null)
        if self._loop is not None and self._bridge is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._bridge.stop)
            except RuntimeError:
                pass  # it has ended meanwhile

    # -- what the user is told ------------------------------------------------------------------------------------

    def _say(self, sentence: str) -> None:
        """Once, until there is something else to say."""
        if sentence == self._said:
            return
        self._said = sentence
        try:
            os.write(
                self._words_out, f"sub: {self._name} ({self._url.origin}): {sentence}\n".encode("utf-8", "replace")
            )
        except OSError:
            pass

    def _unexpected(self, _loop: Any, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        if fault is not None:
            self._tell_of(fault)

    def _tell_of(self, fault: BaseException) -> None:
        """The text of an exception may quote what passed through us; its type and place never do."""
        place = fault.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "?"
        self._say(f"internal error {type(fault).__name__} at {where}; please report it")


def connect(
    name: str,
    url: ServerUrl,
    headers: Mapping[str, str],
    login: Any = None,
    *,
    transport: str = "auto",
    max_inspect: int,
    max_message: int,
    heard: Callable[[list[str]], None] | None = None,
) -> RemoteServer:
    """`heard`: see `logins.tokens.find`."""
    server = RemoteServer(
        name, url, headers, login, transport=transport, max_inspect=max_inspect, max_message=max_message, heard=heard
    )
    server.start()
    return server
