"""mcp 1.x with fastmcp 2.x, in an environment of their own: the long profile.

    python -m pytest -m slow tests/unit/adapters/in_process      makes .venv/compat-mcp1 the first time (minutes)

By default one line says that it was left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places
from harness.adapters.own_process import COMPAT_PYTHON
from harness.in_process import ACTIONS, EXAMPLES, POLICY, SCRIPT
from harness.shim import isolated_env
from harness.sink import EventFile

ROOT = places.ROOT
NEEDS = ("mcp<2", "fastmcp<3", "msgspec", "google-re2", "PyYAML")
# How each host is protected; `middleware` is fastmcp's own, where codes and data are lost.
PROGRAM = """
import asyncio, json, logging, sys
logging.disable(logging.CRITICAL)
kind, policy, script = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
from mcp.shared.exceptions import McpError
from mcp.shared.memory import create_connected_server_and_client_session as connect
from notes import TOOLS
from subluminal.adapters.in_process import protect
if kind == "mcp":
    import mcp1_server
    server = mcp1_server.make_server()
else:
    from fastmcp import FastMCP
    server = FastMCP("notes")
    for tool in TOOLS:
        server.tool(tool)
    if kind == "fastmcp":
        protect(server, policy=policy)
    else:
        from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware
        server.add_middleware(SubluminalMiddleware(policy=policy))

async def main():
    outcomes = []
    async with connect(server._mcp_server) as client:
        await client.list_tools()
        for tool, arguments, _ in script:
            try:
                result = await client.call_tool(tool, arguments)
                outcomes.append(["isError" if result.isError else None, None])
            except McpError as error:
                outcomes.append([error.error.code, error.error.data])
    print(json.dumps(outcomes))

asyncio.run(main())
"""


@pytest.fixture(scope="session")
def compat_python(request: pytest.FixtureRequest) -> str:
    python = COMPAT_PYTHON
    if not python.exists():
        if "slow" not in (request.config.getoption("-m") or "").replace("not slow", ""):
            pytest.skip("no .venv/compat-mcp1 here: python -m pytest -m slow tests/unit/adapters/in_process makes it")
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True, timeout=120)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDS]
        subprocess.run(pip, check=True, timeout=900)
    return str(python)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["mcp", "fastmcp", "middleware"])
def test_servers_of_mcp_1_and_fastmcp_2_are_protected(tmp_path: Path, compat_python: str, kind: str) -> None:
    events = EventFile(tmp_path / "events.jsonl")
    env = isolated_env(tmp_path, SUB_EVENTS=events.argument)
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(EXAMPLES)))
    command = [compat_python, "-W", "ignore", "-c", PROGRAM, kind, str(POLICY), json.dumps(SCRIPT)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    codes = [code for _, _, code in SCRIPT]
    if kind == "middleware":
        assert [code for code, _ in outcomes] == ["isError" if code else None for code in codes]
    else:
        assert [code for code, _ in outcomes] == codes
        assert all(data["subluminal"]["action"] == ACTIONS[code] for code, data in outcomes if code is not None)
    decisions = [event["decision"]["action"] for event in events.events_of("tool_call_decision")]
    assert decisions == [ACTIONS[code] for code in codes]
    assert events.types()[-1] == "run_end"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_server_of_mcp_1_without_tools_is_told_what_to_do(tmp_path: Path, compat_python: str) -> None:
    program = (
        "from mcp.server.lowlevel import Server\n"
        "from subluminal.adapters.in_process import protect\n"
        "protect(Server('notes'))\n"
    )
    env = isolated_env(tmp_path)
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run([compat_python, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "no handler for tools/call yet" in done.stderr
