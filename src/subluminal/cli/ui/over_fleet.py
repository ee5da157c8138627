"""`sub ui --fleet`: the page over a collector, served by this process until Ctrl-C."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlencode

from subluminal.cli.render.output import note, print_json
from subluminal.cli.ui.explanation import explain_call
from subluminal.fleet.client import TOKEN, Fleet
from subluminal.fleet.page.serving import Shown, serve
from subluminal.host.home import sub_home


def serve_over_fleet(url: str, run: str | None, *, no_open: bool, port: int | None, as_json: bool) -> int:
    path = _path(url, run)
    shown = Shown(url, dict(os.environ), sub_home(), explain_call)
    os.environ.pop(TOKEN, None)  # a browser that is opened from here must not inherit it

    def ready(address: str, link: str) -> None:
        if as_json:
            print_json({"address": address, "link": link})
        else:
            print(address)
            if no_open or not _opening(link):
                note(f"Open this within a minute; it works once:\n{link}")
            note("Ctrl-C ends it.")
        sys.stdout.flush()

    serve(shown, port=port, path=path, ready=ready)
    return 0


def _path(url: str, run: str | None) -> str:
    """Asked before anything is served: whether the collector answers whoever has this token."""
    with Fleet(url) as fleet:
        if run is not None:
            return "/run?" + urlencode({"run": fleet.resolve_run(run)})
        fleet.runs(limit=1)
        return "/"


def _opening(link: str) -> bool:
    from subluminal.cli.logins.browser import has_display, open_browser

    if not has_display():
        return False
    open_browser(link)
    return True
