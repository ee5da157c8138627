"""An interactive shell on a pseudo-terminal, typed at like a person would: job control, Ctrl-C, window size.

with Shell(env=env, cwd=cwd) as shell:
    shell.type("sub run -- python")
    shell.wait_for(">>>")
    shell.press("^Z")
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from pathlib import Path
from types import TracebackType

from harness.waiting import GENEROUS_S, wait_for

PROMPT = "READY> "
KEYS = {"^C": b"\x03", "^Z": b"\x1a", "^\\": b"\x1c", "^D": b"\x04"}


class Shell:
    def __init__(
        self, *, env: dict[str, str], cwd: Path, columns: int = 200, lines: int = 40, timeout: float = GENEROUS_S
    ):
        self.timeout = timeout
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.output = ""
        self._seen = 0

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            # Without line editing the terminal stays in one mode, and what is typed ahead stays for the next reader.
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "PS1": PROMPT, "TERM": "dumb", "HISTFILE": "/dev/null"},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.wait_for(PROMPT)

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the terminal showed:\n{self.output}")
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, line: str) -> None:
        """A line; what is waited for from now on comes after its echo."""
        os.write(self.master, line.encode() + b"\n")
        self.wait_for(line.split("\n")[-1] + "\r\n")

    def press(self, key: str) -> None:
        os.write(self.master, KEYS[key])

    def wait_for(self, text: str) -> str:
        """Until `text` appears in what was not yet waited for; returns everything up to and with it."""
        at = wait_for(
            lambda: self.output.find(text, self._seen),
            self.timeout,
            f"{text!r} on the terminal",
            enough=lambda at: at >= 0,
            meanwhile=self._pump,
        )
        end = at + len(text)
        passed, self._seen = self.output[self._seen : end], end
        return passed

    def quiet(self, seconds: float = 0.3) -> str:
        """What else comes until nothing has come for a while."""
        start = self._seen
        before = -1
        while before != len(self.output):
            before = len(self.output)
            self._pump(seconds)
        self._seen = len(self.output)
        return self.output[start:]

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.master)

    def _pump(self, seconds: float) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.output += os.read(self.master, 65536).decode(errors="replace")
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
