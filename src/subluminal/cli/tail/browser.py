"""Calls on the whole screen, one of them chosen; Enter shows all of it.

The list is a look at the ledger and stands still while a person reads it: older calls are fetched as the choice moves
up, newer ones come with the stream, which goes on where it was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.cli.render.call_lines import call_lines
from subluminal.cli.render.columns import cut
from subluminal.cli.render.output import paint
from subluminal.cli.tail import keys
from subluminal.contracts.errors import LedgerError

if TYPE_CHECKING:
    from subluminal.cli.render.whole_screen import WholeScreen
    from subluminal.contracts.filters import Filters
    from subluminal.ledger.read.ledger import Ledger

_PAGE = 100
_MARK, _NO_MARK = "> ", "  "
HELP = [
    "Keys of sub tail",
    "",
    "  space         pause, and go on: nothing is lost meanwhile",
    "  /             only calls with a text (Enter alone: all again)",
    "  up, down      choose a call; down from the newest goes back to the stream",
    "  page up/down, home, end",
    "  Enter         all that is known of the chosen call",
    "  Esc           back",
    "  ?             this page",
    "  q             back; in the stream: end",
]


class Browser:
    """`key` says what was typed, False: back to the stream; `draw` shows it."""

    def __init__(self, screen: WholeScreen, ledger: Ledger, filters: Filters) -> None:
        self._screen, self._ledger, self._filters = screen, ledger, filters
        self._rows: list[dict[str, Any]] = []  # newest first
        self._cursor: str | None = None
        self._more = True
        self._chosen = 0
        self._page: list[str] | None = None  # in place of the list: a call, or the help
        self._top = 0
        self._fetch(_PAGE)

    # -- keys -----------------------------------------------------------------------------------------------------

    def key(self, key: str) -> bool:
        if key == "?":
            self.open_help()
        elif self._page is not None:
            return self._key_on_page(key)
        elif key in (keys.ESCAPE, keys.LEFT, "q", " ") or (key in (keys.DOWN, "j") and self._chosen == 0):
            return False
        elif key == keys.ENTER or key == keys.RIGHT:
            self._open_call()
        else:
            self._choose(self._chosen - self._step(key))
        return True

    def _key_on_page(self, key: str) -> bool:
        assert self._page is not None
        if key in (keys.ESCAPE, keys.LEFT, keys.ENTER, "q"):
            self._page = None
        else:
            self._top = max(0, min(self._top + self._step(key), len(self._page) - self._room()))
        return True

    def _step(self, key: str) -> int:
        """How many rows down."""
        steps = {keys.UP: -1, "k": -1, keys.DOWN: 1, "j": 1, keys.PAGE_UP: -self._room(), keys.PAGE_DOWN: self._room()}
        everything = len(self._page if self._page is not None else self._rows)
        return {**steps, keys.HOME: -everything, keys.END: everything}.get(key, 0)

    def _choose(self, place: int) -> None:
        if place >= len(self._rows) and self._more:
            self._fetch(max(_PAGE, place - len(self._rows) + 1))
        self._chosen = max(0, min(place, len(self._rows) - 1))

    def _fetch(self, count: int) -> None:
        page = self._ledger.calls(self._filters, limit=count, cursor=self._cursor, previews=True)
        self._rows += page.rows
        self._more = page.next_cursor is not None
        self._cursor = page.next_cursor

    def open_help(self) -> None:
        self._open(HELP)

    def _open(self, page: list[str]) -> None:
        self._page, self._top = page, 0

    def _open_call(self) -> None:
        from subluminal.cli.record.show_call import lines
        from subluminal.ledger.read.description import describe

        if not self._rows:
            return
        row = self._rows[self._chosen]
        try:
            call = describe(self._ledger, self._ledger.call(row["call_id"], row["run_id"], row["shim_id"]))
        except LedgerError as error:
            self._open([str(error)])  # pruned since it was listed
        else:
            self._open(lines(call, self._screen.columns - len(_NO_MARK)))

    # -- what is seen ---------------------------------------------------------------------------------------------

    def draw(self) -> None:
        room, columns = self._room(), self._screen.columns
        if self._page is not None:
            shown = self._page[self._top : self._top + room]
            below = len(self._page) - self._top - len(shown)
            foot = "Esc back" + (f" · {below} more lines below" if below > 0 else "")
        else:
            shown = self._list(room, columns)
            foot = "Enter shows the call · Esc back to the stream · ? keys"
        shown = shown + [""] * (room - len(shown))
        self._screen.draw([*shown, paint(cut(foot, columns - 1), "blue", bold=True)])

    def _list(self, room: int, columns: int) -> list[str]:
        """The chosen call in the middle where there is enough on both sides; the newest is the last row."""
        if not self._rows:
            return ["There is no call to choose."]
        newest = max(0, min(self._chosen - room // 2, len(self._rows) - room))
        shown = []
        for place in range(min(newest + room, len(self._rows)) - 1, newest - 1, -1):
            mark = paint(_MARK, "cyan", bold=True) if place == self._chosen else _NO_MARK
            shown.append(mark + call_lines(self._rows[place], columns - len(_MARK) - 1)[0])
        return shown

    def _room(self) -> int:
        return max(1, self._screen.rows - 1)
