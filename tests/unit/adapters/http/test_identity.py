"""Whom the HTTP door serves, and whose run a request belongs to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.http_servers import raw_server
from harness.proxy import Proxy, call, proxy

OBSERVE: dict[str, Any] = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [],
}
TOKEN = "0123456789abcdef-token"
# A process of its own that sends what it reads and prints the status of the answer, as another user if it is told so.
CLIENT = """
import os, socket, sys
if int(sys.argv[2]):
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
connection = socket.socket()  # `create_connection` would load what another user may not read
connection.connect(("127.0.0.1", int(sys.argv[1])))
connection.sendall(sys.stdin.buffer.read())
print(connection.recv(65536).split()[1].decode())
"""


def status_as(door: Proxy, request: bytes, uid: int = 0, **env: str) -> int:
    words = [sys.executable, "-S", "-E", "-c", CLIENT, str(door.port), str(uid)]
    done = subprocess.run(words, input=request, capture_output=True, check=True, env={**os.environ, **env})
    return int(done.stdout)


def run_ids(door: Proxy) -> list[str]:
    return [event["run_id"] for event in door.events.events_of("tool_call_start")]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_this_machine_is_not_served(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        request = door.request(json.dumps(call("a")).encode())
        assert status_as(door, request) == 200
        assert status_as(door, request, uid=65534) == 403
        assert len(server.heard) == 1


def test_with_a_token_only_who_shows_it_is_served_and_the_server_never_sees_it(tmp_path: Path) -> None:
    with (
        raw_server() as server,
        proxy(tmp_path, OBSERVE, url=server.url, options=["--token-env", "T"], env={"T": TOKEN}) as door,
    ):
        for wrong in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"Bearer {TOKEN}"):
            assert door.call("a", Subluminal_Token=wrong).status == 403
        assert server.heard == []
        assert door.call("a", Subluminal_Token=TOKEN).status == 200
        assert "subluminal-token" not in server.heard[0].headers
    assert TOKEN.encode() not in door.events.raw()


def test_the_run_of_a_process_beats_what_a_header_says(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        request = door.request(json.dumps(call("a")).encode(), Subluminal_Run_Id="of-the-header")
        assert status_as(door, request, SUB_RUN_ID="of-the-process") == 200
        assert status_as(door, request) == 200
    assert run_ids(door) == ["of-the-process", "of-the-header"]


def test_two_sessions_of_a_client_on_one_connection_are_two_runs(tmp_path: Path) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, url=server.url) as door:
        connection = door.connect()
        for run in ("one", "two", "one"):
            connection.send(door.request(json.dumps(call("a")).encode(), Subluminal_Run_Id=run))
            assert connection.answer().status == 200
        connection.close()
    assert run_ids(door) == ["one", "two", "one"]


@pytest.mark.parametrize(
    "options",
    [
        ["--listen", "0.0.0.0:0"],
        ["--listen", "[::]:0"],
        ["--listen", "nowhere"],
        ["--listen", "127.0.0.1:99999"],
        ["--listen", "127.0.0.1:-1"],
        ["--listen", ":80"],
        ["--public-url", "ftp://x/"],
        ["--public-url", "https://user:pw@x/"],
        ["--public-url", "https://x/?q=1"],
        ["--public-url", "https://x/#f"],
        ["--public-url", "x"],
        ["--token-env", "NOT_SET_ANYWHERE"],
        ["--bearer-env", "NOT_SET_ANYWHERE"],
        ["--header-env", "X"],
        ["--header-env", "X Y=HOME"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_served_is_a_sentence(tmp_path: Path, options: list[str]) -> None:
    words = [sys.executable, "-m", "subluminal", "proxy", "mcp", "--server-name", "x", "--url", "http://127.0.0.1:1/"]
    done = subprocess.run(
        [*words, *options], capture_output=True, text=True, timeout=30, env={**os.environ, "SUB_HOME": str(tmp_path)}
    )
    assert done.returncode not in (0, 70) and done.stdout == ""
    assert "Traceback" not in done.stderr and done.stderr.startswith(("sub: ", "Error", "error", "Usage"))


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with raw_server() as server:
        words = [sys.executable, "-m", "subluminal", "proxy", "mcp", "--server-name", "x", "--url", server.url]
        done = subprocess.run(
            [*words, "--listen", f"127.0.0.1:{server.port}"],
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, "SUB_HOME": str(tmp_path)},
        )
    assert done.returncode != 0 and "cannot listen" in done.stderr and "Traceback" not in done.stderr


HOSTILE_CONFIGS = {
    "no table": "[proxy]\nservers = 3\n",
    "neither": "[proxy.servers.a]\n",
    "both": '[proxy.servers.a]\nurl = "http://127.0.0.1:1/"\ncommand = ["x"]\n',
    "a number": "[proxy.servers.a]\nurl = 5\n",
    "no words": "[proxy.servers.a]\ncommand = []\n",
    "numbers": "[proxy.servers.a]\ncommand = [1]\n",
    "a file": '[proxy.servers.a]\nurl = "file:///etc/passwd"\n',
    "unknown": '[proxy.servers.a]\nurl = "http://127.0.0.1:1/"\nx = 1\n',
    "an empty name": '[proxy.servers.""]\nurl = "http://127.0.0.1:1/"\n',
    "dots": '[proxy.servers.".."]\nurl = "http://127.0.0.1:1/"\n',
    "a line end in the name": '[proxy.servers."a\\nb"]\nurl = "http://127.0.0.1:1/"\n',
    "a NUL": '[proxy.servers.a]\ncommand = ["a\\u0000b"]\n',
}


@pytest.mark.parametrize("name", HOSTILE_CONFIGS)
def test_settings_that_cannot_be_meant_are_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.toml").write_text(HOSTILE_CONFIGS[name])
    done = subprocess.run(
        [sys.executable, "-m", "subluminal", "proxy", "mcp", "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "SUB_HOME": str(tmp_path)},
    )
    assert done.returncode not in (0, 70) and "Traceback" not in done.stderr and done.stderr


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "%2e%2e", "a?b", "#", "x" * 200])
def test_a_name_of_any_kind_has_one_path(tmp_path: Path, name: str) -> None:
    with raw_server() as server, proxy(tmp_path, OBSERVE, name=name, url=server.url) as door:
        body = json.dumps(call("a")).encode()
        path = "/mcp/" + quote(name, safe="")
        assert door.raw(door.request(body, path=path)).status == 200
        assert door.raw(door.request(body, path=path.lower() + "x")).status == 404
    assert [event["call"]["server_name"] for event in door.events.events_of("tool_call_start")] == [name]
