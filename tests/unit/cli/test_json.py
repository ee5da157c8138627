"""`--json` everywhere, and alike everywhere: objects, one on a line, with the same keys for one command each time.

Every command of the table that has `--json` has a scene here, and its keys stand in `tests/fixtures/cli_json.json`
(written anew with UPDATE_CLI_JSON=1; the change is what a reviewer looks at). A key that goes away breaks a script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from harness.command_line import stored
from harness.driver import Agent
from harness.ledger import EventMaker
from harness.listing_server import ListingServer, tool
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from subluminal.cli.main import cli

GOLDEN = Path(__file__).parent.parent.parent / "fixtures" / "cli_json.json"
# command -> words after it. {home} and {work} are directories; "|text" as the last word is standard input.
SCENES: dict[str, list[list[str]]] = {
    "import": [["claude", "--offline", "--json"], ["--json"]],
    "restore": [["claude", "--json"], ["--list", "--json"]],
    "kill": [["nothing-of-the-kind", "--json"]],
    "state": [["--json"]],
    "tail": [["--no-follow", "--json"]],
    "runs": [["--json"]],
    "query": [["--json"]],
    "show": [["--json"]],
    "hints": [["--json"]],
    "promote": [["shim-1-2", "--any-args", "--persist", "{work}/refusing.yaml", "--dry-run", "--json"]],
    "replay": [["last", "--policy", "policy.yaml", "--json"]],
    "policy init": [["--dry-run", "--json"], ["--json"], ["--list", "--json"]],
    "policy lint": [["policy.yaml", "--json"]],
    "policy in-force": [["--json"]],
    "policy explain": [["policy.yaml", "--server", "s", "--tool", "rm", "--json"]],
    "policy test": [["--json", "policy.yaml"]],
    "policy diff": [["policy.yaml", "policy.yaml", "--json"]],
    "policy check": [["policy.yaml", "--against", "ledger", "--json"]],
    "policy compile": [["policy.yaml", "--json"]],
    "policy schema": [["--json"]],
    "policy fmt": [["--check", "policy.yaml", "--json"]],
    "policy suggest": [["--from", "{work}/transcripts", "--json"]],
    "tools list": [["--json"]],
    "tools show": [["fs/read", "--json"]],
    "tools check": [["--json"]],
    "tools approve": [["fs", "--yes", "--json"]],
    "tools pin": [["fs", "--json"], ["fs", "--dry-run", "--json"]],
    "tools unpin": [["fs", "--json"]],
    "secrets add": [["ref", "--source", "file", "--json", "|a-long-enough-value"]],
    "secrets adopt": [["box", "TOKEN", "--dry-run", "--source", "file", "--json"]],
    "secrets check": [["--json"]],
    "secrets confirm": [["box", "--dry-run", "--json", "--", "true"]],
    "secrets get": [["kept", "--json"]],
    "secrets list": [["--json"]],
    "secrets remove": [["kept", "--dry-run", "--json"]],
    "login": [
        ["docs", "--url", "https://e.test/mcp", "--token-env", "A_TOKEN", "--source", "file", "--json"],
        ["--list", "--json"],
    ],
    "agent kinds": [["--json"]],
    "agent run": [["generic", "--program", "/bin/echo", "--json", "--no-record", "--", "hello"]],
    "export run": [
        ["last", "-o", "{work}/out.tar.gz", "--json"],
        ["last", "--html", "-o", "{work}/out.html", "--json"],
    ],
    "export runs": [["--run", "last", "-o", "{work}/bundles", "--json"]],
    "ingest": [["{work}/events.jsonl", "--json"]],
    "verify": [["--json"], ["--all", "--json"]],
    "prune": [["--older-than", "9999w", "--dry-run", "--json"]],
    "fleet ship": [["--status", "--json"]],
    "collector token": [["--tokens", "{work}/tokens.json", "--tenant", "acme", "--machine", "build-7", "--json"]],
    "ledgerd": [["--status", "--json"], ["--stop", "--json"], ["--status", "--json"]],
    "doctor": [["--json"]],
    "config": [["--json"]],
    "hash": [["--json", "|{}"]],
    "uninstall": [["--json"]],
    "version": [["--json"]],
}
# The policy that refused what the events say.
REFUSING = """policy_id: team-default
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules: [{rule_id: deny-writes, kind: deny, match: {tool_name: {glob: [rm]}}, effect: {action: BLOCK}}]
"""
# What they print depends on a server elsewhere, or they serve until they are ended; their own tests read what they say.
ELSEWHERE = {"logout", "ui", "collector serve", "proxy http", "proxy mcp", "proxy messages"}
# They need an extra; `tests/fleet/test_commands.py` pins what they print.
ELSEWHERE |= {"policy sign", "policy verify"}
ELSEWHERE |= {f"fleet {name}" for name in ("join", "leave", "status", "keep", "init", "tenant", "publish", "renew")}
ELSEWHERE |= {f"fleet {name}" for name in ("revoke", "stop", "resume", "key")}
# Pinned in `tests/fleet/test_sidecar.py` and `tests/fleet/test_telemetry.py`.
ELSEWHERE |= {"fleet sidecar", "fleet telemetry"}
# What they print is no data of ours: a command's own output, texts and scripts to read.
WITHOUT_JSON = {"run", "shim", "help", "completion"}


def commands() -> Iterator[tuple[str, click.Command]]:
    def below(group: click.Group, context: click.Context, path: str) -> Iterator[tuple[str, click.Command]]:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from below(command, click.Context(command, parent=context), f"{path}{name} ")
            else:
                yield path + name, command

    return below(cli, click.Context(cli), "")


def test_every_command_has_json_and_a_scene_here():
    for path, command in commands():
        has_json = any("--json" in parameter.opts for parameter in command.params)
        if path in WITHOUT_JSON:
            assert not has_json, f"sub {path} has --json now: give it a scene"
            continue
        assert has_json, f"sub {path} has no --json: give it one, or say in WITHOUT_JSON why not"
        assert path in SCENES or path in ELSEWHERE, f"sub {path} has no scene in {__file__}: add one to SCENES"


def test_every_json_option_says_which_of_the_two_forms_it_has():
    for path, command in commands():
        for parameter in command.params:
            if "--json" in parameter.opts:
                assert isinstance(parameter, click.Option) and parameter.help
                assert "JSON" in parameter.help or "json" in parameter.help, path


def transcript(session: str, cwd: str) -> str:
    """A session of Claude Code with one call."""
    use = {"type": "tool_use", "id": f"{session}-use", "name": "mcp__fs__read", "input": {"path": f"{cwd}/a"}}
    result = {"type": "tool_result", "tool_use_id": f"{session}-use", "content": "alpha"}
    lines = []
    for number, (kind, block) in enumerate((("assistant", use), ("user", result))):
        said = {"type": kind, "uuid": f"{session}-{number}", "cwd": cwd, "sessionId": session, "version": "2.1.325"}
        said |= {"timestamp": f"2026-11-17T00:00:0{number}.000Z"}
        lines.append(json.dumps({**said, "message": {"id": "m1", "role": kind, "content": [block]}}))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> Iterator[dict[str, list[Any]]]:
    """What every scene printed: the objects, in order."""
    root = tmp_path_factory.mktemp("json")
    home, work = root / ".subluminal", root / "work"
    (work / ".git").mkdir(parents=True)
    maker = EventMaker("run-one", "shim-1")
    lines = [*maker.whole_run(1)[:-1], *maker.call("BLOCK", tool="rm"), maker.run_end()]
    (work / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    stored(home, lines)
    server = {"command": "true", "env": {"TOKEN": "ghp_ThisIsNotARealTokenAtAll0000000000"}}
    (root / ".claude.json").write_text(json.dumps({"mcpServers": {"box": server}}))
    (work / "refusing.yaml").write_text(REFUSING)
    (work / "transcripts").mkdir()
    for number in range(8):
        (work / "transcripts" / f"{number}.jsonl").write_text(transcript(f"session-{number}", str(work)))
    marker = new_marker()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SUB_", "CLAUDE", "XDG_"))}
    environ |= {"HOME": str(root), "SUB_HOME": str(home), MARKER_VARIABLE: marker, "A_TOKEN": "tok-0123456789"}

    def run(words: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "subluminal", *words]
        return subprocess.run(command, input=stdin, cwd=work, env=environ, capture_output=True, text=True, timeout=120)

    found: dict[str, list[Any]] = {}
    wrong: list[str] = []
    try:
        kept = ["secrets", "add", "kept", "--source", "file", "--bind", "box:TOKEN2"]
        assert run(kept, "a-long-enough-value").returncode == 0
        assert run(["policy", "init", "policy.yaml"], "").returncode == 0
        listing = ListingServer(root, [tool("read", "Reads a file.")])
        shim = [sys.executable, "-m", "subluminal", "shim", "--server-name", "fs", "--", *listing.argv]
        for run_id, description in (("run-two", "Reads a file."), ("run-three", "Reads any file.")):
            listing.says([tool("read", description)])
            with Agent(shim, {**environ, "SUB_RUN_ID": run_id}, work) as agent:
                agent.initialize()
                agent.request("tools/list")
                agent.finish()
            if run_id == "run-two":
                assert run(["tools", "pin", "fs"], "").returncode == 0
        for path, scenes in SCENES.items():
            for scene in scenes:
                words = [word.format(home=home, work=work) for word in scene if not word.startswith("|")]
                done = run([*path.split(), *words], scene[-1][1:] if scene[-1].startswith("|") else "")
                if done.returncode not in (0, 1) or "Traceback" in done.stderr:
                    wrong.append(f"sub {path} {' '.join(words)}: {done.stderr}")
                found.setdefault(path, []).append((words, done.stdout))
        assert not wrong, "\n".join(wrong)
        yield found
    finally:
        kill_marked(marker)


def read(path: str, stdout: str) -> list[dict[str, Any]]:
    rows = []
    for line in stdout.splitlines():
        row = json.loads(line)
        assert isinstance(row, dict), f"sub {path} --json printed {line[:60]}, which is no object"
        rows.append(row)
    return rows


def test_what_is_printed_is_objects_one_on_a_line(said):
    for path, scenes in said.items():
        for words, stdout in scenes:
            if path not in ("policy compile", "policy schema"):  # documents: laid out for people to read
                assert read(path, stdout), f"sub {path} {' '.join(words)} printed nothing"


def test_the_keys_of_every_command_are_those_that_were_promised(said):
    shapes: dict[str, list[list[str]]] = {}
    for path, scenes in said.items():
        for _, stdout in scenes:
            rows = [json.loads(stdout)] if path in ("policy compile", "policy schema") else read(path, stdout)
            keys = list(dict.fromkeys(tuple(sorted(row)) for row in rows))
            known = shapes.setdefault(path, [])
            known += [list(each) for each in keys if list(each) not in known]
    if os.environ.get("UPDATE_CLI_JSON"):
        GOLDEN.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")
    assert shapes == json.loads(GOLDEN.read_text())


def test_one_list_has_rows_of_one_shape(said):
    for path in ("runs", "query", "tools list", "secrets list", "agent kinds"):
        ((_, stdout),) = said[path]
        assert len({tuple(row) for row in read(path, stdout)}) == 1, path
