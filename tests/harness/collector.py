"""A real collector process, machines that ship to it, and what its tenant can read."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.ledger import sub_environment
from harness.ports import free_port
from harness.waiting import GENEROUS_S
from subluminal.fleet.collector.tokens import add_token
from subluminal.fleet.segments import Segment, encode
from subluminal.ledger.store.writer import Store


class CollectorProcess:
    """On one port through all of its deaths."""

    def __init__(self, directory: Path, store: str, *arguments: str, port: int | None = None) -> None:
        self.directory, self._store, self._arguments = directory, store, arguments
        directory.mkdir(parents=True, exist_ok=True)
        self.tokens = str(directory / "tokens.json")
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.reader = self.token("acme", "reader", may_read=True)
        self.certificate_authority = ""

    def token(self, tenant: str, machine: str, *, may_read: bool = False) -> str:
        return add_token(self.tokens, tenant, machine, may_read=may_read)

    def start(self, *, dies_at_commit: int | None = None, dies_before: str | None = None) -> None:
        """`dies_at_commit`: it commits that many times and dies then, before anybody is told. `dies_before`: it dies in
        a commit before this table is written."""
        dies = dies_before if dies_at_commit is None else str(dies_at_commit)
        program = ["subluminal"] if dies is None else ["harness.dying_collector", dies]
        command = [sys.executable, "-m", *program, "collector", "serve", "--json", "--store", self._store]
        command += ["--listen", f"127.0.0.1:{self.port}", "--tokens", self.tokens, *self._arguments]
        log = open(self.directory / "collector.log", "ab")
        self.process = subprocess.Popen(
            command,
            env={**sub_environment(self.directory / "home"), "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        log.close()
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        assert line, (self.directory / "collector.log").read_text()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(GENEROUS_S)
            self.process.stdout.close()  # type: ignore[union-attr]
            self.process = None

    def ask(self, place: str, token: str | None = None, body: bytes | None = None) -> tuple[int, Any, Any]:
        """(status, headers, JSON or text)."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GENEROUS_S)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
            connection.request("GET" if body is None else "POST", place, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return answer.status, answer.headers, json.loads(text) if is_json else text.decode()

    def send(self, segment: Segment, token: str) -> int:
        return self.ask("/v1/segments", token, encode(segment))[0]

    def metric(self, name: str) -> float:
        text = self.ask("/metrics")[2]
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    def sub(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As whoever reads."""
        environment = {**sub_environment(self.directory / "home"), "SUB_FLEET_TOKEN": self.reader}
        if self.certificate_authority:
            environment["SSL_CERT_FILE"] = self.certificate_authority
        return subprocess.run(
            [sys.executable, "-m", "subluminal", *arguments, "--fleet", self.url],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.sub(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def collector(directory: Path, store: str, *arguments: str) -> Iterator[CollectorProcess]:
    process = CollectorProcess(directory, store, *arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill(signal.SIGTERM)


class Machine:
    """A home with a ledger of its own, and the shipper that it runs."""

    def __init__(self, home: Path, fleet: CollectorProcess, tenant: str = "acme", name: str | None = None) -> None:
        self.home, self._fleet = home, fleet
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.token_file = home / "token"
        self.token_file.write_text(fleet.token(tenant, name or home.name))

    def record(self, lines: list[bytes]) -> None:
        store = Store(str(self.home / "ledger.db"))
        try:
            with store.batch():
                for line in lines:
                    store.add(line)
        finally:
            store.close()

    def command(self, *arguments: str) -> list[str]:
        where = ["--url", self._fleet.url, "--token-file", str(self.token_file)]
        return [sys.executable, "-m", "subluminal", "fleet", "ship", *where, *arguments]

    def ship(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--once", *arguments),
            env=sub_environment(self.home),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def standing(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "subluminal", "fleet", "ship", "--status", "--json"]
        done = subprocess.run(command, env=sub_environment(self.home), capture_output=True, check=True, timeout=60)
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def segment_of(
    lines: list[bytes], run_id: str, shim_id: str, first_seq: int = 1, first_n: int | None = None
) -> Segment:
    return Segment(run_id, shim_id, first_seq, lines, [(first_n or first_seq, len(lines))])
