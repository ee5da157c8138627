"""Record the streams of the real CLIs into tests/fixtures/agent_streams: `python -m clients.record_streams` in tests/.

Each stream is kept as the client wrote it, apart from this machine's paths, with the events it maps to beside it.
Read the difference before committing it: a new version of a client shows here what it changed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from clients import programs
from clients.scenarios import SCENARIOS, Scenario, backend_for, model_for, request_for

FIXTURES = programs.HERE.parent / "fixtures" / "agent_streams"
TIMEOUT_S = 90


def record(scenario: Scenario, kind: str, cli_dir: Path, home: Path) -> bytes:
    with model_for(kind, scenario.turns) as model:
        request = request_for(kind, model, cli_dir, home, scenario.args)
        client = subprocess.Popen(
            backend_for(kind).command(request),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=request.env,
            cwd=request.cwd,
        )
        if scenario.interrupt:
            model.wait_for_requests(len(scenario.turns))
            client.send_signal(signal.SIGTERM)
        output, _ = client.communicate(timeout=TIMEOUT_S)
    return output


def scrubbed(stream: bytes, home: Path) -> bytes:
    for path, stand_in in (
        (str(programs.ECHO_SERVER), "/opt/echo_server.py"),
        (sys.executable, "/usr/bin/python3"),
        (str(home), "/home/user"),
        (str(home).replace("/", "-"), "-home-user"),
        (str(programs.CHECKOUT), "/opt/checkout"),
    ):
        stream = stream.replace(path.encode(), stand_in.encode())
    return stream


def mapped(kind: str, stream: bytes) -> bytes:
    mapper = backend_for(kind).mapper()
    events = mapper.feed(stream) + mapper.finish()
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


def main(names: list[str]) -> None:
    cli_dir = programs.install()
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        for kind in scenario.clients:
            name = f"{kind}.{scenario.name}"
            if names and name not in names:
                continue
            with tempfile.TemporaryDirectory() as place:
                home = Path(place) / "home"
                (home / "project").mkdir(parents=True)
                stream = scrubbed(record(scenario, kind, cli_dir, home), home)
            (FIXTURES / f"{name}.jsonl").write_bytes(stream)
            (FIXTURES / f"{name}.events.jsonl").write_bytes(mapped(kind, stream))
            print(f"{name}: {len(stream.splitlines())} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
