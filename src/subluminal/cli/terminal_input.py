"""Keys typed while `sub tail` draws must not be echoed: a newline would move the lines it counts on."""

from __future__ import annotations

import sys
import termios
from typing import Any

_saved: list[Any] | None = None


def quiet_input() -> None:
    """Ctrl-C and Ctrl-Z keep working. Nothing happens where the input is no terminal."""
    global _saved
    try:
        _saved = termios.tcgetattr(sys.stdin.fileno())
        quiet = list(_saved)
        quiet[3] &= ~(termios.ECHO | termios.ECHONL)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
    except (termios.error, OSError, ValueError, AttributeError):
        _saved = None


def restore_input() -> None:
    if _saved is None:
        return
    try:
        # What was typed meanwhile was meant for nobody.
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, _saved)
    except (termios.error, OSError, ValueError):
        pass
