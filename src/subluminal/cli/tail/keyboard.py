"""What a person at the terminal asks of `sub tail`. While something else is looked at, the stream holds.

Nothing is lost meanwhile: what has arrived is read from the ledger afterwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from subluminal.cli.tail import keys
from subluminal.contracts.errors import LedgerError

if TYPE_CHECKING:
    from subluminal.cli.tail.browser import Browser
    from subluminal.cli.tail.feed import Feed
    from subluminal.cli.tail.view import TerminalView
    from subluminal.contracts.filters import Filters

_CHOOSE = (keys.UP, keys.DOWN, keys.PAGE_UP, keys.HOME, keys.ENTER, "k", "j", "?")
_MAX_TEXT = 200
# Replaced or damaged: the stream opens it again, or says so.
_UNREADABLE = (LedgerError, sqlite3.Error)


class Keyboard:
    """`filters` says which calls are wanted; `look_for` is told the text that they shall have."""

    def __init__(
        self, view: TerminalView, feed: Feed, filters: Callable[[], Filters], look_for: Callable[[str], None]
    ) -> None:
        self._view, self._feed, self._filters, self._look_for = view, feed, filters, look_for
        self._is_paused = False
        self._text: str | None = None  # being typed
        self._browser: Browser | None = None

    def holds(self) -> bool:
        """Whether the stream stands still; what is looked at instead is drawn."""
        if self._browser is not None:
            self._browser.draw()
        elif self._text is not None:
            self._view.status(f"only calls with: {self._text}_   (Enter; nothing: all)")
        elif self._is_paused:
            since = "there is more since" if self._feed.is_behind() else "nothing since"
            self._view.status(f"paused: {since}; space goes on")
        return self._browser is not None or self._text is not None or self._is_paused

    def hear(self, data: bytes) -> None:
        for key in keys.typed(data):
            self._key(key)

    def _key(self, key: str) -> None:
        if self._browser is not None:
            self._key_for_browser(key)
        elif self._text is not None:
            self._key_for_text(key)
        elif key == "q":
            raise KeyboardInterrupt
        elif key == " ":
            self._is_paused = not self._is_paused
            self._view.status("")
        elif key == "/":
            self._text = ""
        elif key in _CHOOSE and self._feed.ledger is not None:
            self._open_browser(key)

    def _key_for_text(self, key: str) -> None:
        assert self._text is not None
        if key in (keys.ENTER, keys.ESCAPE):
            text, self._text = self._text, None
            self._view.status("")
            if key == keys.ENTER:
                self._is_paused = False
                told = f"only calls with {text!r}" if text else "all calls that were asked for"
                self._view.put_line(f"── {told}", "blue", bold=True)
                self._look_for(text)
        elif key == keys.BACKSPACE:
            self._text = self._text[:-1]
        elif len(key) == 1 and len(self._text) < _MAX_TEXT:
            self._text += key

    # -- the browser ----------------------------------------------------------------------------------------------

    def _open_browser(self, key: str) -> None:
        from subluminal.cli.tail.browser import Browser

        assert self._feed.ledger is not None
        self._view.flush()
        try:
            self._browser = Browser(self._view.whole_screen(), self._feed.ledger, self._filters())
        except _UNREADABLE:
            self._view.stream()
            return
        if key != keys.DOWN:  # which would lead back at once
            self._key_for_browser(key)

    def _key_for_browser(self, key: str) -> None:
        assert self._browser is not None
        try:
            stays = self._browser.key(key)
        except _UNREADABLE:
            stays = False
        if not stays:
            self._browser = None
            self._view.stream()
