"""A real `sub ui --fleet` over a collector, and what its page is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.collector import CollectorProcess
from harness.ledger import sub_environment
from harness.page import Answer, Live, PageClient
from harness.ports import free_port
from harness.waiting import GENEROUS_S


class FleetPage(PageClient):
    """`scratch`: where it may lay what it needs meanwhile."""

    def __init__(self, fleet: CollectorProcess, directory: Path, token: str | None = None, *arguments: str) -> None:
        self.scratch = directory / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.errors = directory / "page.log"
        self.token_file = directory / "reader"
        self.token_file.write_text(token or fleet.reader)
        command = ["ui", "--fleet", fleet.url, "--json", "--port", str(free_port()), *arguments]
        with self.errors.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "subluminal", *command],
                env=sub_environment(
                    directory / "home", SUB_FLEET_TOKEN_FILE=str(self.token_file), TMPDIR=str(self.scratch)
                ),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        assert line, self.errors.read_text()
        self.told = json.loads(line)
        super().__init__(self.told["address"])
        self.link: str = self.told["link"]

    def enter(self) -> None:
        self.cookie = self.cookie_for(self.link)

    def ask(self, path: str, status: int = 200) -> Any:
        answer: Answer = self.send(path, Cookie=self.cookie)
        assert answer.status == status, (answer.status, answer.body)
        return answer.json

    def of_run(self, run_id: str, what: str = "", status: int = 200) -> Any:
        return self.ask(f"/v1/runs/{quote(run_id, safe='')}{what}", status)

    @asynccontextmanager
    async def following(self, query: str = "") -> AsyncIterator[Live]:
        async with self.live(query, Cookie=self.cookie, Origin=self.origin) as live:
            yield live

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(GENEROUS_S)
        self.process.stdout.close()  # type: ignore[union-attr]
        return code


@contextmanager
def fleet_page(
    fleet: CollectorProcess, directory: Path, token: str | None = None, *arguments: str
) -> Iterator[FleetPage]:
    page = FleetPage(fleet, directory, token, *arguments)
    try:
        page.enter()
        yield page
    finally:
        page.end()
