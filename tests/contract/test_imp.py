"""IMP: from a client's own configuration to a recorded call, and back. Real clients do the same in tests/clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.client_files import ClientHome
from harness.driver import Agent
from harness.fake_server import fake_server

SUB = os.path.join(os.path.dirname(sys.executable), "sub")
FIRST_LOG_S = 120  # the contract says five minutes, and means with a person in the loop
# What Codex hands to its servers.
SCRUBBED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
SERVERS = ("linear", "weird.name")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientHome]:
    for name in [name for name in os.environ if name.startswith("SUB_")]:
        monkeypatch.delenv(name)
    place = ClientHome(tmp_path, monkeypatch)
    monkeypatch.delenv("SUB_HOME")  # a fresh installation: nothing is set and nothing is there
    yield place
    sub("ledgerd", "--stop")


def sub(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SUB, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def configuration(client: str) -> str:
    command, *args = fake_server()
    if client == "claude":
        entries = {name: {"command": command, "args": args, "env": {"MINE": "1"}} for name in SERVERS}
        return json.dumps({"numStartups": 3, "mcpServers": entries}, indent=2)
    tables = [f'[mcp_servers."{name}"]  # mine\ncommand = "{command}"\nargs = {json.dumps(args)}\n' for name in SERVERS]
    return "model = 'x'\n\n" + "\n".join(tables)


CLIENT = "import json, subprocess, sys; sys.exit(subprocess.call(json.loads(sys.argv[1]), env=json.loads(sys.argv[2])))"


def start_like(client: str, path: Path, server: str) -> Agent:
    """Start a server as the client would: its entry's command, and the environment that the client gives."""
    text = path.read_text()
    entries: dict[str, Any] = (
        json.loads(text)["mcpServers"] if client == "claude" else tomllib.loads(text)["mcp_servers"]
    )
    entry = entries[server]
    names = list(os.environ) if client == "claude" else [*SCRUBBED, *entry.get("env_vars", [])]
    env = {name: os.environ[name] for name in names if name in os.environ} | entry.get("env", {})
    words = json.dumps([entry["command"], *entry["args"]])
    return Agent([sys.executable, "-c", CLIENT, words, json.dumps(env)], env=dict(os.environ), cwd=path.parent)


@pytest.mark.contract("IMP-001", "IMP-002", "EVT-006")
@pytest.mark.parametrize("client", ["claude", "codex"])
def test_from_import_to_the_first_recorded_call_and_back(home: ClientHome, client: str) -> None:
    original = configuration(client).encode()
    path = home.write(client, original)
    begin = time.monotonic()
    imported = sub("import", client)
    assert imported.returncode == 0, imported.stderr
    tail = subprocess.Popen([SUB, "tail", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for server in SERVERS:
            with start_like(client, path, server) as agent:
                agent.initialize()
                assert "result" in agent.call("echo", {"n": 1})
                agent.finish()
        assert tail.stdout is not None
        first = json.loads(tail.stdout.readline())
        assert time.monotonic() - begin < FIRST_LOG_S
    finally:
        tail.send_signal(signal.SIGKILL)
        tail.communicate()
    # A tail that looks later tells it once, with its latest state.
    assert first["state"] in ("started", "decided", "ended") and first["tool_name"] == "echo"
    assert first["server_name"] in SERVERS, "servers keep the names they have in the client's file"
    recorded = [json.loads(line) for line in sub("query", "--json").stdout.splitlines()]
    assert {call["server_name"] for call in recorded} == set(SERVERS)
    assert len({call["run_id"] for call in recorded}) == len(SERVERS), "each was started by a client of its own"
    restored = sub("restore", client)
    assert restored.returncode == 0, restored.stderr
    assert path.read_bytes() == original
