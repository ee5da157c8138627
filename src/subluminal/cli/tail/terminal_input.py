"""Keys typed while `sub tail` draws come one by one and are not echoed: a newline would move the lines it counts on.

Trap: a background job that changes the terminal's settings is stopped (SIGTTOU), so only the foreground one does.
"""

from __future__ import annotations

import os
import sys
import termios
from typing import Any

_saved: list[Any] | None = None


def quiet_input() -> None:
    """Ctrl-C and Ctrl-Z keep working. Nothing happens where the input is no terminal of ours."""
    global _saved
    try:
        if not _in_foreground():
            return
        _saved = termios.tcgetattr(sys.stdin.fileno())
        quiet = list(_saved)
        quiet[3] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
    except (termios.error, OSError, ValueError, AttributeError):
        _saved = None


def read_keys() -> bytes | None:
    """What was typed, as far as it has come; None: there will be nothing more. A job in the background is not asked."""
    try:
        return os.read(sys.stdin.fileno(), 1024) or None if _in_foreground() else b""
    except OSError:
        return None


def has_keys() -> bool:
    """Whether keys come to us one by one."""
    return _saved is not None


def restore_input() -> None:
    try:
        if _saved is not None and _in_foreground():
            # What was typed meanwhile was meant for nobody.
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, _saved)
    except (termios.error, OSError, ValueError):
        pass


def _in_foreground() -> bool:
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
