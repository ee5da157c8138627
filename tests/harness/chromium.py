"""A real browser for the page of `sub ui`: Chromium, driven by Playwright, with everything that varies fixed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import places
from harness.waiting import GENEROUS_S, wait_for

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
    "--disable-lcd-text",
]
AXE = places.ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def browser_path() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def missing() -> str | None:
    """Why there is no browser here, in one line; None: there is one."""
    if browser_path() is None:
        return "no Chromium here (CHROMIUM names one)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed (requirements/ui.txt)"
    return None


def until(page: Any, look: Callable[[], object], what: str = "the page") -> None:
    """Wait on a condition from outside: the policy of the page lets nobody evaluate text inside it."""
    wait_for(look, what=what, meanwhile=lambda _: page.wait_for_timeout(10))


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=browser_path(),
            args=FLAGS,
            headless=True,
            timezone_id="UTC",
            locale="en-GB",
            reduced_motion="reduce",
            viewport={"width": 1280, "height": 800},
            permissions=["clipboard-read", "clipboard-write"],
        )
        browser.set_default_timeout(GENEROUS_S * 1000)
        try:
            yield browser
        finally:
            browser.close()


class Faults:
    """What a page must never do, noted while it is used."""

    def __init__(self, page: Any, origin: str) -> None:
        self.found: list[str] = []
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.found.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url, origin))
        page.on("console", lambda message: message.type == "error" and self._said(message.text))

    def _asked(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "ws" + origin.removeprefix("http"), "data:", "blob:")):
            self.found.append(f"asked elsewhere: {url}")

    def _said(self, text: str) -> None:
        # The network's own words for an answer that the page shows as a sentence.
        if not text.startswith(("Failed to load resource", "WebSocket connection")):
            self.found.append(f"console: {text}")
