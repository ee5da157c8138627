"""Logging in within a test: the user's browser is a thread that opens the address and says yes."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from harness.keychain import NONE, use_keychain
from subluminal.logins.kept import Note
from subluminal.logins.login import Page, Wanted, log_in

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def use_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keychain: str = NONE) -> Path:
    """A home of its own for this process, without the keychain and the settings of whoever runs the tests."""
    use_keychain(monkeypatch, tmp_path, keychain)
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "sub"


def logged_in(url: str, name: str = "guarded", **wanted: Any) -> tuple[Note, Page]:
    """The login, and the page that the user saw on the way."""
    pages: list[Page] = []

    def show(page: Page) -> None:
        pages.append(page)
        Thread(target=_browse, args=(page.address,), daemon=True).start()

    note = log_in(Wanted(name, url, wanted.pop("source", "file"), **{"timeout_s": 30.0, **wanted}), show)
    return note, pages[0]


def _browse(address: str) -> None:
    try:
        with urlopen(address, timeout=30) as page:
            page.read()
    except OSError:
        pass  # what became of it, the login says


def initialize(url: str, token: str | None) -> int:
    """The status of a plain initialize with this token."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urlopen(Request(url, json.dumps(INITIALIZE).encode(), headers), timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
