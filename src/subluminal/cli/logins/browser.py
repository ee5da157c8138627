"""Whether there is a browser to open for the user, and opening it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Thread


def has_display() -> bool:
    """A browser that draws into this terminal would take it from the user."""
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def open_browser(address: str) -> Thread:
    """In a thread: some browsers return when they are closed, and until then the redirect has to be answered."""
    from threading import Thread

    opening = Thread(target=_open, args=(address,), daemon=True)
    opening.start()
    return opening


def _open(address: str) -> None:
    import webbrowser

    try:
        webbrowser.open(address)
    except (webbrowser.Error, OSError, ValueError):
        pass  # the address is on the screen as well
