"""The daemon's HTTP side, made when it is first asked for: until then nothing of it is imported.

Whoever reaches the daemon's socket is its owner (`sockets`), and may have a link to the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.ledger.daemon.log import Log

if TYPE_CHECKING:
    from subluminal.ledger.http.above import Above
    from subluminal.ledger.http.serve import HttpSide


class _Ask(msgspec.Struct):
    """`port`: this one and no other. `path`: where the link leads. `directory`: where whoever asks works."""

    port: int | None = None
    path: str = "/"
    directory: str = ""


class Ui:
    def __init__(self, home: str, log: Log) -> None:
        self._home = home
        self._log = log
        self._side: HttpSide | None = None
        self.above: Above | None = None

    @property
    def pages(self) -> int:
        return self._side.pages if self._side is not None else 0

    def committed(self) -> None:
        if self._side is not None:
            self._side.committed()

    def serve(self, address: str) -> HttpSide:
        from subluminal.ledger.http.serve import HttpSide

        self._side = HttpSide(self._home, address, self._log, self.above)
        return self._side

    def open(self, line: bytes) -> dict[str, Any]:
        """`{"control": "ui"}`: where the page is, and a link that opens it once."""
        try:
            ask = msgspec.json.decode(line, type=_Ask)
            side = self._side_on(ask.port)
            _check_path(ask.path)
            return {"ui": {"address": side.origin + ask.path, "link": side.link(ask.path, ask.directory)}}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return {"error": str(error)}
        except SubluminalError as error:
            return {"error": str(error), "hint": error.hint}
        except OSError as error:
            return {"error": f"the page cannot be served: {error.strerror}"}

    def _side_on(self, port: int | None) -> HttpSide:
        if self._side is not None:
            if port is not None and port != self._side.port:
                hint = "Leave --port out, or stop the daemon first: sub ledgerd --stop."
                raise UsageError(f"The page is on port {self._side.port} already.", hint=hint)
            return self._side
        from subluminal.ledger.http.serve import DEFAULT_PORT

        if port is not None:
            return self.serve(f"127.0.0.1:{port}")
        try:
            return self.serve(f"127.0.0.1:{DEFAULT_PORT}")
        except UsageError:  # another home's daemon has it
            return self.serve("127.0.0.1:0")


def _check_path(path: str) -> None:
    from subluminal.ui.files import SURFACES

    if path.partition("?")[0] not in SURFACES or not path.isascii() or not path.isprintable():
        raise UsageError(f"{path[:40]!r} is no part of the page.", hint=f"Known: {', '.join(SURFACES)}.")
