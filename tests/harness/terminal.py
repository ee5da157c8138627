"""A program on a pseudo-terminal, and what its user would see there.

    with TerminalProgram([...], env=env, columns=80, lines=24) as program:
        program.wait_for("OK")
        program.screen.text

The screen obeys what our programs use (line feeds, carriage returns, cursor up, clear below, colours; the whole screen
for a while, drawn from its top) and fails on any other control, so that an escape sequence that slips through from a
server is a failed test and not a coloured one.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Callable, Sequence
from types import TracebackType

from harness.waiting import GENEROUS_S, wait_for

CONTROL = re.compile(r"\x1b\[(\??\d*)([AJHhlm])")
BEGUN_CONTROL = re.compile(r"\x1b(\[\??\d*)?\Z")
WHOLE_SCREEN, CURSOR = "?1049", "?25"


class UnexpectedControl(AssertionError):
    pass


class Screen:
    """`rows` are all rows from the first one printed; the last `lines` of them are on the screen."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns = columns
        self.lines = lines
        self.rows: list[str] = [""]
        self.row = 0
        self.column = 0
        self._begun = ""
        self._beneath: tuple[list[str], int, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether a program has taken the whole screen: `rows` are then what it has drawn there."""
        return self._beneath is not None

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def feed(self, text: str) -> None:
        """A control that the text ends in the middle of waits for its rest."""
        text = self._begun + text
        cut = BEGUN_CONTROL.search(text)
        text, self._begun = (text[: cut.start()], cut[0]) if cut else (text, "")
        place = 0
        while place < len(text):
            character = text[place]
            if character == "\x1b":
                found = CONTROL.match(text, place)
                if found is None:
                    raise UnexpectedControl(repr(text[place : place + 20]))
                self._control(found[1], found[2])
                place = found.end()
                continue
            place += 1
            if character == "\n":
                self.row += 1
                if self.row == len(self.rows):
                    self.rows.append("")
            elif character == "\r":
                self.column = 0
            elif not character.isprintable():
                raise UnexpectedControl(repr(character))
            else:
                self._put(character)

    def _control(self, number: str, kind: str) -> None:
        if kind == "A":
            top = max(0, len(self.rows) - self.lines)
            assert self.row - int(number or 1) >= top, "the cursor was moved above the screen"
            self.row -= int(number or 1)
        elif kind == "J":
            assert self.column == 0
            del self.rows[self.row + 1 :]
            self.rows[self.row] = ""
        elif kind == "H":
            assert self.is_whole and not number, "the cursor goes to the top of a whole screen only"
            self.row = self.column = 0
        elif kind in "hl":
            self._mode(number, kind == "h")

    def _mode(self, number: str, on: bool) -> None:
        if number == WHOLE_SCREEN and on and self._beneath is None:
            self._beneath = (self.rows, self.row, self.column)
            self.rows, self.row, self.column = [""], 0, 0
        elif number == WHOLE_SCREEN and not on:
            assert self._beneath is not None
            (self.rows, self.row, self.column), self._beneath = self._beneath, None
        elif number not in (CURSOR, WHOLE_SCREEN):
            raise UnexpectedControl(repr(number))

    def _put(self, character: str) -> None:
        if unicodedata.combining(character):
            self.rows[self.row] += character
            return
        cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        assert self.column + cells <= self.columns, f"a line is wider than the terminal: {self.rows[self.row]!r}"
        assert self.column or not self.rows[self.row], "a line was printed over another"
        self.rows[self.row] += character
        self.column += cells


def _own_terminal() -> None:
    """In the child: its standard input becomes the terminal of its session, as it is for a shell's job."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class TerminalProgram:
    def __init__(
        self,
        command: Sequence[str],
        *,
        env: dict[str, str],
        columns: int = 100,
        lines: int = 30,
        timeout: float = GENEROUS_S,
    ) -> None:
        self.screen = Screen(columns, lines)
        self.raw = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.timeout = timeout
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self._slave = slave
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.columns, self.screen.lines = columns, lines

    def __enter__(self) -> TerminalProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        _, stderr = self.process.communicate()
        os.close(self._master)
        os.close(self._slave)
        if error is not None:
            error.add_note(f"screen:\n{self.screen.text}\nstderr:\n{stderr.decode(errors='replace')}")

    def wait_for(self, *words: str) -> None:
        """Until every word stands on the screen."""
        self.wait_until(lambda: all(word in self.screen.text for word in words), f"{words} on the screen")

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        wait_for(holds, self.timeout, what, meanwhile=self.pump)

    def pump(self, seconds: float) -> bool:
        """Show what comes within this time; whether there was anything."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.raw += data
        self.screen.feed(self._decoder.decode(data))  # a read may end in the middle of a character
        return bool(data)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """The exit code. What it still prints is shown: a terminal that nobody reads holds a program up."""
        self.wait_until(lambda: self.process.poll() is not None, "its end")
        while self.pump(0):
            pass
        assert self.process.returncode is not None
        return self.process.returncode

    def interrupt(self) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)
