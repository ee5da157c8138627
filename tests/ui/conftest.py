"""One daemon, one ledger and one browser for all tests of the page."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.chromium import chromium
from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of
from harness.page import PageServer
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

POLICY = b"""
mode: guardrails
policy_id: team
version: 1.4.0
defaults: {decision_on_error: ALLOW}
selectors: {}
rules:
  - rule_id: no-force-push
    kind: deny
    match: {tool_name: {glob: [git_push]}, args: {key_equals: {force: true}}}
    effect: {action: REJECT_WITH_HINT, message: Force pushes rewrite what others have., hint_text: Push without force.}
  - rule_id: writes-stay-here
    kind: deny
    match: {server_name: {glob: [files]}, tool_name: {glob: [write_file]}}
    effect: {action: BLOCK, message: Writes go through review.}
"""
TOOLS = [("git", "git_status"), ("files", "read_file"), ("web", "search"), ("files", "write_file"), ("git", "git_push")]


class Scene:
    """What the tests see: `home` with runs of the last quarter of an hour, and the means to add more."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.snapshot = compile_bundle(POLICY, "policy.yaml")
        names = {"policy_id": "team", "policy_version": "1.4.0", "policy_hash": self.snapshot["policy_hash"]}
        self.policy = names
        self.now = time.time_ns() // 1_000_000
        for number in range(6):
            self.add_run(number)
        self._send(
            [
                {
                    "control": "policy",
                    "policy_hash": names["policy_hash"],
                    "snapshot": snapshot_bytes(self.snapshot).decode(),
                }
            ]
        )
        self.server = PageServer(home)

    def add_run(self, number: int) -> None:
        maker = EventMaker(f"r-{number:04d}", f"shim-{number}", start_ms=self.now - 900_000 + number * 120_000)
        lines = [maker.run_start(policy=self.policy)]
        for at in range(40):
            maker.ms += 400 * (at % 5)
            server, tool = TOOLS[at % 5]
            lines += self.call(maker, server, tool, "ERROR" if at % 13 == 5 else "OK")
        self.tell(lines if number == 5 else [*lines, maker.run_end("FAILED" if number == 2 else "SUCCEEDED")])

    def call(self, maker: EventMaker, server: str, tool: str, status: str = "OK") -> list[bytes]:
        refused = tool in ("write_file", "git_push")
        args = json.dumps({"path": f"src/{maker.calls}.py", **({"force": True} if tool == "git_push" else {})})
        rule = "no-force-push" if tool == "git_push" else "writes-stay-here"
        hint = {
            "hint_text": "Push without force.",
            "hint_kind": "OTHER",
            "suggested_args": {"force": False},
            "retry_advice": "Then again.",
        }
        refusal: dict[str, Any] = {"rule_id": rule, "hint": hint} if tool == "git_push" else {"rule_id": rule}
        lines = [maker.start(tool, server, preview=args)]
        action = "REJECT_WITH_HINT" if tool == "git_push" else "BLOCK" if refused else "ALLOW"
        lines.append(maker.decision(action, policy=self.policy, **(refusal if refused else {})))
        error = (
            {"class": "policy_block", "message": "refused"}
            if refused
            else {"class": "upstream_error", "message": "gone"}
        )
        failed = refused or status != "OK"
        maker.ms += 20 + maker.calls * 7 % 300
        lines.append(maker.end("ERROR", error=error) if failed else maker.end(preview='{"ok": true}'))
        return lines

    def _send(self, messages: list[Any]) -> list[bytes]:
        with connect_ledgerd(self.home) as connection, connection.makefile("rwb") as stream:
            lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
            stream.write(b"".join(line + b"\n" for line in lines))
            stream.flush()
            return [stream.readline() for _ in lines]

    def tell(self, lines: list[bytes]) -> None:
        """Returns when it is stored."""
        for answer in self._send(lines):
            assert b'"ack"' in answer, answer


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("ui") / "home"
    spool_of(home)
    with ledgerd(home):
        yield Scene(home)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


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


@pytest.fixture
def page(scene: Scene, browser: Any) -> Iterator[Any]:
    """A new tab that is let in; nothing that it must never do has happened when it is closed."""
    tab = browser.new_page()
    faults = Faults(tab, scene.server.origin)
    tab.goto(scene.server.origin + scene.server.new_link())
    tab.wait_for_selector(".list .body .row")
    yield tab
    tab.close()
    assert faults.found == []
