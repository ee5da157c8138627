"""A server behind a URL in a real client's configuration, as people enter it: `claude mcp add`, `config.toml`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients.adopter import SUB, Adopter
from clients.models import ModelServer, ToolCall
from harness import browser
from harness.keychain import NONE
from harness.processes import processes_with

# What `tests/harness/oauth_server.py` gives out.
TOKENS = re.compile(rb"(?:access|refresh)-[\w-]{32}")
# `codex exec` asks nobody: tools that are not marked read-only are refused unless the user has said so.
CODEX_ENTRY = """# my servers
[mcp_servers.{name}]
url = "{url}"  # mine
{more}default_tools_approval_mode = "approve"
required = true
startup_timeout_sec = 60
"""


def add_to_claude(user: Adopter, name: str, url: str, *options: str, transport: str = "http") -> None:
    done = subprocess.run(
        [user.cli_dir / "claude", "mcp", "add", "--transport", transport, name, url, *options],
        env=user.env(),
        cwd=user.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def add_server(user: Adopter, name: str, url: str) -> bytes:
    """Without a credential; the bytes of the client's file."""
    if user.kind == "claude_code":
        add_to_claude(user, name, url, "--scope", "project")
    else:
        user.config.parent.mkdir(exist_ok=True)
        user.config.write_text(CODEX_ENTRY.format(name=name, url=url, more=""))
    return user.config.read_bytes()


def add_server_with_key(user: Adopter, name: str, url: str, key: str) -> bytes:
    """With the key in a variable of the developer's, and a header that is none: each client in its own words."""
    user.variables["BOX_KEY"] = key
    if user.kind == "claude_code":
        headers = ["--header", "Authorization: Bearer ${BOX_KEY}", "--header", "X-Box-Key: ${BOX_KEY}"]
        add_to_claude(user, name, url, "--scope", "project", *headers, "--header", "X-Team: blue")
    else:
        more = 'bearer_token_env_var = "BOX_KEY"\nenv_http_headers = { "X-Box-Key" = "BOX_KEY" }\n'
        more += 'http_headers = { "X-Team" = "blue" }\n'
        user.config.parent.mkdir(exist_ok=True)
        user.config.write_text(CODEX_ENTRY.format(name=name, url=url, more=more))
    return user.config.read_bytes()


def run(user: Adopter, model: ModelServer, name: str) -> str:
    """The client, free to use every tool of the server."""
    process = user.start(model, tools=(f"mcp__{name}",))
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, output.decode(errors="replace")
    return output.decode(errors="replace")


def call(name: str, tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(tool, arguments, server=name)


def tools_of(model: ModelServer, name: str) -> list[Any]:
    """What the model is told of the server's tools in the first request, to the last word."""
    found = []
    for tool in model.requests[0].get("tools", []):
        if tool.get("type") == "namespace" and tool["name"] == f"mcp__{name}":
            found += tool["tools"]
        elif str(tool.get("name", "")).startswith(f"mcp__{name}__"):
            found.append(tool)
    return found


def result_text(output: str) -> str:
    """Of a tool: Codex puts words of its own before it."""
    return output.partition("Output:\n")[2] or output


def log_in_as_shown(user: Adopter, shown: str) -> None:
    """The `sub login` that a command has shown, run as it stands there."""
    [words] = {line.strip() for line in re.findall(r"sub login [^\n]*", shown)}
    user.variables.update(PYTHON_KEYRING_BACKEND=NONE, BROWSER=browser.COMMAND)
    done = user.sub(*words.split()[1:])
    del user.variables["BROWSER"]
    assert not TOKENS.search((done.stdout + done.stderr).encode())


def stored_tokens(user: Adopter) -> set[bytes]:
    return set(TOKENS.findall(b"\n".join(path.read_bytes() for path in (user.sub_home / "logins").iterdir())))


def files_with(user: Adopter, wanted: re.Pattern[bytes]) -> list[Path]:
    """Every file of the developer's home, the client's and ours, but for the store of logins."""
    files = (path for path in user.home.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if path.parent != user.sub_home / "logins" and wanted.search(path.read_bytes())]


def seen_in_processes(user: Adopter, url: str) -> bytes:
    """Environments and command lines of the client and all that it has started."""
    found = []
    for pid in {*processes_with(user.marker), *processes_naming(url)}:
        for name in ("environ", "cmdline"):
            try:
                found.append(Path(f"/proc/{pid}/{name}").read_bytes())
            except OSError:
                continue  # it has ended
    return b"\0".join(found)


def processes_naming(url: str) -> list[int]:
    """The shims of a server, also those that were given no environment to know them by."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0") if name.isdigit() else []
        except OSError:
            continue
        found += [int(name)] if url.encode() in words else []
    return found


@contextmanager
def proxy_in_front(user: Adopter, name: str, url: str, *options: str) -> Iterator[str]:
    """`sub proxy mcp` of the same developer, in another window; its address."""
    process = subprocess.Popen(
        [SUB, "proxy", "mcp", "--json", "--server-name", name, "--url", url, *options],
        env=user.env(),
        cwd=user.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline() or b"{}")
        yield str(ready["servers"][name])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
