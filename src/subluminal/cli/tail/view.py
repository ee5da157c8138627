"""The faces of `sub tail`: a terminal that changes in place, plain text, JSON lines, and the events themselves."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from subluminal.cli.render.call_lines import call_lines
from subluminal.cli.render.columns import PIPE_CELLS, cut, terminal_columns
from subluminal.cli.render.moments import between_ms, clock, duration
from subluminal.cli.render.output import paint
from subluminal.cli.render.rows import json_line
from subluminal.cli.render.screen import Block, Screen
from subluminal.cli.render.settings import changes_told, promote_told, settings_told
from subluminal.cli.render.whole_screen import WholeScreen
from subluminal.cli.tail.doors import Key
from subluminal.cli.tail.terminal_input import quiet_input, restore_input
from subluminal.contracts.errors import LedgerError
from subluminal.contracts.vocabulary import POLICY_INVALID
from subluminal.ledger.fold.call import ENDED, Call
from subluminal.ledger.read.call_row import as_row
from subluminal.ledger.read.ledger import Ledger
from subluminal.reports.printable import printable

Event = dict[str, Any]

_TAG_CHARACTERS = 4


class View:
    """What the tail tells its view. The base class shows nothing."""

    def call(self, call: Call, ledger: Ledger | None, place: Key) -> None:
        """A call is new or has changed. `place`: the same for all that is told of one call, whoever tells it."""

    def happened(self, event: Event, ledger: Ledger | None) -> None:
        """Something that is no call: a run's end, a breaker, a policy."""

    def raw(self, line: bytes) -> None:
        """An event's exact line."""

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        pass


class RawView(View):
    def raw(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        # The exact bytes for programs; on a terminal nothing in them is obeyed.
        sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")


class JsonView(View):
    def call(self, call: Call, ledger: Ledger | None, place: Key) -> None:
        sys.stdout.write(json_line({"state": call.state, **as_row(call)}) + "\n")


class TextView(View):
    """Append-only: a call is printed when it has ended, or as it is where nothing more is awaited."""

    def __init__(self, *, show_open: bool = False) -> None:
        self._show_open = show_open
        self._header_run: str | None = None
        self._known_runs: set[str] = set()

    @property
    def columns(self) -> int | None:
        return terminal_columns()

    def call(self, call: Call, ledger: Ledger | None, place: Key) -> None:
        if call.state == ENDED or self._show_open:
            run_id = call.run_id
            self.enter_run(call, ledger)
            self.put(call_lines(as_row(call), self.columns, tag=self.tag(run_id)))

    def happened(self, event: Event, ledger: Ledger | None) -> None:
        text, colour = self._told(event, ledger)
        if text:
            self.put_line(text, colour)

    def put_line(self, text: str, colour: str | None, *, bold: bool = False) -> None:
        self.put([paint(cut(printable(text), self.columns or PIPE_CELLS), colour, bold=bold)])

    def put(self, lines: list[str]) -> None:
        sys.stdout.write("\n".join(lines) + "\n")

    # -- runs -----------------------------------------------------------------------------------------------------

    def enter_run(self, call: Call, ledger: Ledger | None) -> None:
        """A line above the first call of a run. Calls of a run that is not the latest to begin carry a tag."""
        run_id = call.run_id
        if run_id in self._known_runs:
            return
        self._known_runs.add(run_id)
        self._header_run = run_id
        words = [run_id]
        if ledger is not None:
            try:
                run = ledger.run(run_id)
            except LedgerError:
                run = {}
            words += [str(run[name]) for name in ("agent_id", "client", "env") if run.get(name)]
            if call.reason_code == POLICY_INVALID:  # the mode is that of no policy, which is not in force
                words.append("policy not loaded: every call is refused")
            elif run.get("mode"):
                words.append(str(run["mode"]))
        self.put_line("── run " + " · ".join(words), "blue", bold=True)

    def tag(self, run_id: str) -> str:
        return "" if run_id == self._header_run else f"[{printable(run_id[-_TAG_CHARACTERS:])}] "

    def _told(self, event: Event, ledger: Ledger | None) -> tuple[str, str | None]:
        kind, at = event["type"], clock(event["ts"])
        if kind == "breaker_trip":
            breaker = event["breaker"]
            text = f"{at}  breaker {breaker['rule_id']} tripped ({breaker['reason_code']}, scope {breaker['scope']})"
            return text, "yellow"
        if kind == "policy_loaded":
            load = event.get("load") or {}
            if load.get("ok", True):
                return "", None
            text = f"{at}  policy not loaded from {load.get('origin')}: {load.get('error')}"
            return text, "red"
        if kind == "tools_seen":
            told = changes_told(event["tools"])
            return (f"{at}  {told}", "red") if told else ("", None)
        if kind == "promote":
            return f"{at}  {promote_told(event['promote'])}", "yellow"
        if kind == "settings_change":
            return f"{at}  {settings_told(event['settings'])}", "red"
        return self._run_ended(event["run_id"], ledger), "blue"

    def _run_ended(self, run_id: str, ledger: Ledger | None) -> str:
        """Each shim of a run has an end; only the last one ends the run."""
        if ledger is None or run_id not in self._known_runs:
            return ""
        try:
            run = ledger.run(run_id)
        except LedgerError:
            return ""
        if run["status"] == "RUNNING":
            return ""
        counts = [f"{run['calls_total']} calls"]
        for name, word in (("calls_blocked", "blocked"), ("calls_throttled", "throttled"), ("errors_total", "errors")):
            if run[name]:
                counts.append(f"{run[name]} {word}")
        took = duration(between_ms(run["started_at"], run["ended_at"]))
        return f"── run {run_id} {run['status']}: {', '.join(counts)}, {took}"


class TerminalView(TextView):
    """Lines change in place while they are on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self._screen = Screen(sys.stdout.write, lambda: os.get_terminal_size(1))
        self._blocks: dict[Key, Block] = {}
        self._status: Block | None = None
        self._whole: WholeScreen | None = None
        self._resumed = False
        signal.signal(signal.SIGCONT, self._on_resume)
        quiet_input()

    @property
    def columns(self) -> int:
        return self._screen.columns

    def call(self, call: Call, ledger: Ledger | None, place: Key) -> None:
        run_id = call.run_id
        self.enter_run(call, ledger)
        lines = call_lines(as_row(call), self.columns, tag=self.tag(run_id))
        block = self._blocks.get(place)
        if block is None or not self._screen.change(block, lines):
            block = self._screen.append(lines)
        if call.state == ENDED:
            self._blocks.pop(place, None)
        else:
            self._blocks[place] = block

    def ticked(self, call: Call, elapsed_ms: int, place: Key) -> None:
        block = self._blocks.get(place)
        if block is not None:
            tag = self.tag(call.run_id)
            self._screen.change(block, call_lines(as_row(call), self.columns, tag=tag, elapsed_ms=elapsed_ms))

    def put(self, lines: list[str]) -> None:
        self._screen.append(lines)

    def status(self, text: str) -> None:
        """A line below everything else; nothing is told while it stands there."""
        lines = [paint(cut(printable(text), self.columns), "blue", bold=True)] if text else []
        if self._status is None or not self._screen.change(self._status, lines):
            self._status = self._screen.append(lines)
        if not text:
            self._status = None

    def whole_screen(self) -> WholeScreen:
        """For something else to be looked at, until `stream`."""
        self._whole = WholeScreen(sys.stdout.write, lambda: os.get_terminal_size(1))
        return self._whole

    def stream(self) -> None:
        if self._whole is not None:
            self._whole.close()
            self._whole = None

    def _on_resume(self, number: int, frame: object) -> None:
        self._resumed = True

    def flush(self) -> None:
        if self._resumed:  # after Ctrl-Z the shell has printed lines of its own, and has set the terminal as it likes
            self._resumed = False
            quiet_input()
            if self._whole is not None:
                self._whole.forget()
            self._screen.forget()
        if self._whole is None:
            self._screen.flush()
            self._screen.resized()
        super().flush()

    def close(self) -> None:
        self.stream()
        super().flush()
        restore_input()
