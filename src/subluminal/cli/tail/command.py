"""`sub tail`: watch tool calls as they happen."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from subluminal.cli.filters import conditions, filter_options
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.record.nothing_yet import FIRST, NOTHING_YET
from subluminal.cli.render.moments import between_ms
from subluminal.cli.render.output import note
from subluminal.cli.tail.doors import Doors
from subluminal.cli.tail.feed import POLL_S, Feed, Gone, Presence, give_way, pause_s
from subluminal.cli.tail.keyboard import Keyboard
from subluminal.cli.tail.terminal_input import has_keys, read_keys
from subluminal.cli.tail.view import JsonView, RawView, TerminalView, TextView, View
from subluminal.contracts.errors import LedgerError, UsageError
from subluminal.contracts.filters import EVENT_FILTERS, EventFilters, Filters
from subluminal.host.clock import utc_now
from subluminal.ledger.daemon.sync import sync
from subluminal.ledger.fold.call import ENDED, Call, Plain, begin
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.read.call_row import as_row, recall
from subluminal.ledger.read.ledger import MAX_LIMIT, Ledger
from subluminal.ledger.read.wanted import Wanted

DEFAULT_LINES = 10
# Calls whose end is awaited. An agent that starts more at once loses the oldest from sight, never from the ledger.
MAX_OPEN_CALLS = 10_000
TICK_MS = 1000

_Key = tuple[str, str, str]

HELP = """Watch tool calls as they happen, one line per call.

On a terminal a line is updated in place until its call has ended; elsewhere it is printed when the call ends. Reasons
and hints stand below their call. Ends with Ctrl-C; on a terminal also with q, and ? lists the other keys: pause, a text
to look for, and the calls to go through one by one.

\b
Examples:
  sub tail
  sub tail --decision BLOCK --decision REJECT_WITH_HINT
  sub tail --run last --server 'git*' -n 100 --no-follow
  sub tail --json | jq 'select(.state == "ended") | .latency_ms'
"""

OPTIONS = [
    *filter_options(EVENT_FILTERS),
    Option("-n/--lines", "lines", "Begin with the last N calls.", metavar="N", kind=int, default=DEFAULT_LINES),
    Option("--no-follow", "no_follow", "Print what there is and end.", is_flag=True),
    Option("--json", "as_json", "One JSON object per change of a call's state.", is_flag=True),
    Option("--events", "events", "The events themselves, one per line, as the ledger keeps them.", is_flag=True),
]


def tail(values: Values) -> int:
    if values["as_json"] and values["events"]:
        raise UsageError("--json and --events exclude each other.")
    if values["type"] and not values["events"]:
        raise UsageError("--type goes with --events: a call has events of several types.")
    if not 0 <= values["lines"] <= MAX_LIMIT:
        raise UsageError(f"--lines must be between 0 and {MAX_LIMIT}, not {values['lines']}.")
    follow = not values["no_follow"]
    signal.signal(signal.SIGTERM, _stop)
    view = _view(values, follow)
    try:
        watch = Tail(values, view)
        if follow:
            watch.follow()
        else:
            watch.look_back()
    except (KeyboardInterrupt, Gone):
        pass  # how a person ends it
    finally:
        view.close()
    return 0


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _view(values: Values, follow: bool) -> View:
    if values["events"]:
        return RawView()
    if values["as_json"]:
        return JsonView()
    return TerminalView() if follow and sys.stdout.isatty() else TextView(show_open=not follow)


class Tail:
    def __init__(self, values: Values, view: View) -> None:
        self._values = values
        self._view = view
        self._feed = Feed()
        self._open: dict[_Key, Call] = {}
        self._doors = Doors()
        self._filters = EventFilters()
        self._wanted: Wanted | None = None
        self._keyboard: Keyboard | None = None
        self._told: str | None = None

    # -- look back ------------------------------------------------------------------------------------------------

    def look_back(self) -> None:
        sync()
        if not self._feed.open(patience_s=0.0):
            self._tell_waiting(waiting=False)
            return
        self._begin()
        self._view.flush()

    def _begin(self) -> bool:
        """The last calls, and the place to follow from, as of one moment. False: the run asked for is not there yet."""
        ledger = self._feed.ledger
        assert ledger is not None
        ledger.connection.execute("BEGIN")
        try:
            if not ledger.runs(limit=1).rows:
                self._tell_waiting(waiting=not self._values["no_follow"])
                if "last" in self._values["run_id"]:
                    return False
            self._want(EventFilters(**conditions(EVENT_FILTERS, self._values, ledger)))
            self._look_back()
        finally:
            ledger.connection.execute("COMMIT")
        return True

    def _want(self, filters: EventFilters) -> None:
        self._filters, self._wanted = filters, Wanted(filters)

    def _look_back(self) -> None:
        ledger, wanted = self._feed.ledger, self._wanted
        assert ledger is not None and wanted is not None
        self._feed.start_here()
        if not self._values["lines"]:
            return
        if self._values["events"]:
            self._last_events(ledger, wanted)
        else:
            self._last_calls(ledger, self._filters)

    def _last_events(self, ledger: Ledger, wanted: Wanted) -> None:
        def is_wanted(line: bytes) -> bool:
            return wanted.event(ledger.connection, json.loads(line))

        for line in self._feed.last_lines(self._values["lines"], is_wanted):
            self._view.raw(line)

    def _last_calls(self, ledger: Ledger, filters: Filters) -> None:
        page = ledger.calls(filters, limit=self._values["lines"])
        for row in reversed(page.rows):
            call = recall(ledger.call(row["call_id"], row["run_id"], row["shim_id"]))
            if call.state != ENDED:
                self._open[call.key] = call
            self._view.call(call, ledger, self._doors.place(call))

    # -- follow ---------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        presence = Presence()
        if isinstance(self._view, TerminalView) and has_keys():
            self._keyboard = Keyboard(self._view, self._feed, lambda: self._filters, self.look_for)
            presence.watch_input(True)
        began, next_tick = False, 0.0
        try:
            while True:
                looked_at = time.monotonic()
                presence.keep()
                if not began:
                    began = self._try_to_begin()
                    if began:
                        give_way()
                if began and not self._held():
                    for line in self._feed.lines():
                        self._take(line)
                    if time.monotonic() >= next_tick:
                        next_tick = time.monotonic() + TICK_MS / 1000
                        self._tick()
                if began:
                    self._view.flush()
                if presence.wait(pause_s(time.monotonic() - looked_at, self._feed.has_more)):
                    self._hear(presence)
        finally:
            presence.close()
            self._feed.close()

    def _held(self) -> bool:
        return self._keyboard is not None and self._keyboard.holds()

    def _hear(self, presence: Presence) -> None:
        assert self._keyboard is not None
        data = read_keys()
        if data is None:
            presence.watch_input(False)
        elif data:
            self._keyboard.hear(data)
        else:
            time.sleep(POLL_S)  # in the background: what is typed is for somebody else

    def look_for(self, text: str) -> None:
        """Only calls with this text from now on, beginning with the last ones; without one: as it was asked for."""
        if self._feed.ledger is None:
            return
        asked = {name: value for name, value in self._filters.asked.items() if name != "text"}
        self._want(EventFilters(**asked, text=text or self._values["text"]))
        self._look_back()

    def _try_to_begin(self) -> bool:
        if self._feed.ledger is None and not self._feed.open():
            self._tell_waiting(waiting=True)
            return False
        return self._begin()

    def _tell_waiting(self, *, waiting: bool) -> None:
        text = f"{NOTHING_YET} {'Waiting: ' if waiting else 'First '}{FIRST}"
        if text != self._told:
            self._told = text
            note(text)

    def _take(self, line: bytes) -> None:
        assert self._wanted is not None and self._feed.ledger is not None
        event = json.loads(line)
        if self._values["events"]:
            if self._wanted.event(self._feed.ledger.connection, event):
                self._view.raw(line)
            return
        if not self._wanted.run(self._feed.ledger.connection, event["run_id"]):
            return
        kind = event["type"]
        if kind in ("run_end", "breaker_trip", "policy_loaded", "settings_change", "tools_seen", "promote"):
            self._view.happened(event, self._feed.ledger)
        elif "call" in event:
            self._take_call(Plain(event))

    def _take_call(self, event: Plain) -> None:
        assert self._wanted is not None
        key = event["run_id"], event["source"]["shim_id"], event["call"]["call_id"]
        if is_foreign(key[2], key[1]):
            return
        call = self._open.get(key)
        if call is None:
            call = self._earlier(key) if event["type"] != "tool_call_start" else None
            if call is None and event["type"] == "hint_issued":
                return
            call = self._open[key] = call or begin(event, Call)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        stood = self._doors.stands(call)
        changed = call.hear(event)
        if call.is_complete:
            self._open.pop(key, None)
        shown = self._doors.standing(call)
        if changed and (shown is call or stood) and self._wanted.call(as_row(shown)):
            self._view.call(shown, self._feed.ledger, self._doors.place(shown))

    def _earlier(self, key: _Key) -> Call | None:
        """A call that began before we looked."""
        if self._feed.ledger is None:
            return None
        try:
            run_id, shim_id, call_id = key
            return recall(self._feed.ledger.call(call_id, run_id, shim_id))
        except LedgerError:
            return None

    def _tick(self) -> None:
        """How long the calls have run that are still running."""
        if not self._open or not isinstance(self._view, TerminalView):
            return
        now = utc_now()
        for call in self._open.values():
            elapsed_ms = None if call.state == ENDED else between_ms(call.created_at, now)
            if elapsed_ms is not None and elapsed_ms >= TICK_MS and self._doors.standing(call) is call:
                self._view.ticked(call, elapsed_ms, self._doors.place(call))


TAIL = Command("tail", tail, HELP, OPTIONS)
