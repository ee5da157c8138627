"""Progress is for a person at a terminal who waits; nobody else hears of it."""

from __future__ import annotations

import io

from subluminal.cli.render import progress
from subluminal.cli.render.progress import Progress, with_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_work_that_takes_long_is_told_and_the_line_goes_away_again(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    assert list(with_progress([1, 2, 3], "events")) == [1, 2, 3]
    assert "3 of 3 events" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[J")


def test_quick_work_says_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Progress("events") as steps:
        steps.step(5)
    assert terminal.getvalue() == ""


def test_where_there_is_no_terminal_there_is_no_progress(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    assert list(with_progress(iter("ab"), "files")) == ["a", "b"]
    assert pipe.getvalue() == ""
