"""`sub proxy http` in a test: a mapping before a server, and a client that sends exactly the bytes a test wants.

with http_proxy(tmp_path, MAPPING, policy, upstream=tracker.url) as door:
    door.ask("GET", "/repos/ada/engine").json()
door.events.events()            after the block it has ended and every event is written
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from harness.places import ROOT
from harness.proxy import SECONDS, Answer, Proxy
from harness.shim import isolated_env, write_policy
from harness.sink import EventFile

TRACKER: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "fixtures" / "http_api" / "tracker.yaml").read_text())


class HttpProxy(Proxy):
    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        target: str,
        value: Any = None,
        body: bytes | None = None,
        exactly: Mapping[str, str] = MappingProxyType({}),
        **headers: str,
    ) -> Answer:
        """`value` is sent as JSON; names of headers with `_` for `-`, or `exactly` as they are."""
        content = body if body is not None else b"" if value is None else json.dumps(value).encode()
        given: dict[str, str] = {"Host": f"127.0.0.1:{self.port}", **self.headers}
        if content:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()} | exactly
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        connection = self.connect()
        try:
            connection.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content)
            if method != "HEAD":
                return connection.answer()
            return Answer(*connection.head(), b"")
        finally:
            connection.close()


@contextmanager
def http_proxy(
    place: Path,
    mapping: dict[str, Any],
    policy: dict[str, Any] | str | Path | None = None,
    *,
    upstream: str | None = None,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    stderr: int | None = None,
) -> Iterator[HttpProxy]:
    place.mkdir(exist_ok=True)
    events = EventFile(place / "events.jsonl")
    config = place / "mapping.json"
    config.write_text(json.dumps({**mapping, "upstream": upstream or mapping["upstream"]}))
    words = [sys.executable, "-m", "subluminal", "proxy", "http", "--json", "--config", str(config)]
    words += ["--events", events.argument, *options]
    words += [] if policy is None else ["--policy", str(write_policy(place, policy))]
    process = subprocess.Popen(
        words,
        env=isolated_env(place, **(env or {})),
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline() or b"{}")
        door = HttpProxy(int(ready["listening"].rpartition(":")[2]), "/", events, process)
        yield door
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == door.expected_status
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
