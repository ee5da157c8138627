"""The machine of somebody who reads our pages: a home, a repository, clients with servers, programs called `claude` and
`codex`, and some runs in the ledger.

`sub` is the one of this tree, the git server is the real one; `claude` and `codex` are scripts here that start the
servers of their configuration as the real programs do (`make test-clients` has those).
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harness import places
from harness.command_line import stored
from harness.fake_server import fake_server
from harness.ledger import EventMaker
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.terminal import TerminalProgram

CLIENT = Path(__file__).with_name("client.py")
LINE_TIMEOUT_S = 100.0


# An address that a line names, and the one of the page and the daemon's API where it names none.
_PORT = re.compile(r"127\.0\.0\.1:(\d+)|--port (\d+)|sub ui|--http$")
_DEFAULT_PORT = 7411


def port_taken(line: str) -> bool:
    """Whether another program has the port that a line is about to listen on: then it cannot be typed here."""
    found = _PORT.search(line)
    if found is None:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(found[1] or found[2] or _DEFAULT_PORT)))
        except OSError:
            return True
    return False


# `a-fleet TENANT`: a repository with the files and keys that examples name.
_A_FLEET = """set -e
for name in base pay payments; do cp policy.yaml $name.yaml; done
[ -d fleet ] || sub fleet init fleet --tenant "${1:-payments}" > /dev/null
cp -p fleet/root.json fleet/keys/root-*.pem .
[ -e on-call.pem ] || cp -p fleet/keys/stop.pem on-call.pem
if [ -e fleet/keys/tenant-payments.pem ]; then cp -p fleet/keys/tenant-payments.pem payments.pem; fi
for name in payments new author; do [ -e $name.pem ] || sub fleet key $name.pem > /dev/null; done
"""


class Outcome(NamedTuple):
    code: int
    text: str


class Machine:
    """`with Machine(folder) as machine: machine.run("sub runs")`. Whatever is started ends with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user, self.bin = root / "ann", root / "bin"
        self.work = self.user / "project"
        self._marker = new_marker()
        self.env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.user),
            "USER": "ann",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "TZ": "UTC",
            "SHELL": "/bin/bash",
            "BROWSER": "true",
            "SUB_FLEET_REPOSITORY": "fleet",
            "PYTHONUNBUFFERED": "1",  # so that what is said on both outputs comes in order
            **dict.fromkeys(("DOCS_TOKEN", "TRACKER_TOKEN", "REAL_KEY", "TOOLS_TOKEN"), "a-token"),
            MARKER_VARIABLE: self._marker,
        }

    def __enter__(self) -> Machine:
        for folder in (self.user, self.work, self.bin):
            folder.mkdir(parents=True)
        self._programs()
        self._repository()
        self._clients()
        return self

    def __exit__(self, *_: object) -> None:
        kill_marked(self._marker)

    # -- what there is --------------------------------------------------------------------------------------------

    def _programs(self) -> None:
        (self.bin / "sub").symlink_to(Path(sys.executable).with_name("sub"))
        self._program("uvx", f'shift; exec {sys.executable} -m mcp_server_git "$@"')
        for name in ("claude", "codex"):
            self._program(name, f'exec {sys.executable} {CLIENT} {name} "$@"')
        self._program("jq", "sed -u 's/.*latency_ms.:\\([0-9]*\\).*/latency \\1/'")  # it need not be installed for this
        until = 'until sub state "$1" > /dev/null 2>&1; do sleep 0.05; done'
        self._program("busy", f'SUB_RUN_ID="$1" sub run --quiet -- claude --wait > /dev/null 2>&1 &\n{until}')

        self._program("a-fleet", _A_FLEET)

    def _program(self, name: str, line: str, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _repository(self) -> None:
        git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
        for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "The first"]):
            subprocess.run([*git, *command], cwd=self.work, env=self.env, check=True)

    def _clients(self) -> None:
        servers = {
            "git": [sys.executable, "-m", "mcp_server_git", "--repository", str(self.work)],
            "tickets": [sys.executable, str(places.ROOT / "demo" / "server.py")],
            "github": fake_server(tools={"create_issue": {"echo": True}}),
        }
        entries = {name: {"command": command[0], "args": command[1:]} for name, command in servers.items()}
        entries["github"]["env"] = {"GITHUB_TOKEN": "ghp_" + "a1B2" * 9}
        (self.user / ".claude.json").write_text(json.dumps({"mcpServers": entries}, indent=2))
        (self.user / ".codex").mkdir()
        lines = [
            f"[mcp_servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
            for name, command in servers.items()
        ]
        (self.user / ".codex" / "config.toml").write_text("\n".join(lines))

    def settle_in(self) -> None:
        """Used for a while: runs in the ledger, policies, a secret, and the files that examples name."""
        self._runs()
        self._files()
        for line in (
            "export SUB_RECORD_RESULTS=all; sub import claude && claude && claude && claude && sub restore claude",
            "sub policy init",
            "sub policy init --template ci policies/ci.yaml",
            "sub export run 01JD3 -o trace.tar.gz",
            "sub export run run-019a -o other/",
            "printf secret | sub secrets add github_token --bind github:GITHUB_TOKEN",
            "sub ledgerd --stop",
        ):
            done = self.run(line)
            assert done.code == 0, f"{line}\n{done.text}"

    def _runs(self) -> None:
        """With ids as the pages print them."""
        home = self.user / ".subluminal"
        for run_id, shim_id in (("01JD3K7", "s7a1e9f3c"), ("run-019a77", "s01a1e3cbe927fcb691858769d1a0")):
            maker = EventMaker(run_id, shim_id)
            lines = [maker.run_start(), *(line for _ in range(11) for line in maker.call())]
            lines += [*maker.call("BLOCK", tool="push"), maker.run_end()]
            stored(home, lines)

    def _files(self) -> None:
        policy = (places.ROOT / "demo" / "policy.yaml").read_text()
        for name in ("old.yaml", "new.yaml", "policy.yaml"):
            (self.work / name).write_text(policy)
        (self.work / "args.json").write_text('{"path": "/"}')
        maker = EventMaker("run-of-a-file", "shim-of-a-file")
        (self.work / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in maker.whole_run(2)))
        page = (places.ROOT / "docs" / "http-api.md").read_text()
        mapping = page.split("## The mapping\n\n")[1].split("\n\n")[0]
        (self.work / "tracker.yaml").write_text("\n".join(line[4:] for line in mapping.splitlines()) + "\n")
        self._program("my-agent.sh", "echo done", self.work)
        sessions = self.user / ".codex" / "sessions" / "2026" / "11" / "01"
        sessions.mkdir(parents=True)

    def keep(self, folder: Path) -> None:
        """As it is now, for `again`."""
        shutil.copytree(self.root, folder, symlinks=True)

    def again(self, folder: Path) -> None:
        """As it was: nothing runs, everything is where it was."""
        kill_marked(self._marker)
        shutil.rmtree(self.root)
        shutil.copytree(folder, self.root, symlinks=True)

    # -- what is done ---------------------------------------------------------------------------------------------

    def run(self, line: str, *, stdin: str = "", env: dict[str, str] | None = None) -> Outcome:
        """One line as it is printed, by a shell. What it says is on standard output and standard error together."""
        done = subprocess.run(
            ["bash", "-c", self._as_here(line)],
            cwd=self.work,
            env={**self.env, **(env or {})},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=LINE_TIMEOUT_S,
        )
        return Outcome(done.returncode, self._as_on_a_page(done.stdout))

    def _as_here(self, line: str) -> str:
        return line.replace("/opt/", f"{places.ROOT}/")

    def _as_on_a_page(self, text: str) -> str:
        """Where things are on this machine and not on the reader's."""
        text = text.replace(str(self.user), "/home/ann").replace(str(self.bin), "/usr/local/bin")
        return text.replace(str(places.ROOT), "/opt").replace(sys.executable, "python3")

    def follow(self, line: str, until: str, *, env: dict[str, str] | None = None) -> Outcome:
        """One that does not end by itself: on a terminal, until this text stands there; then Ctrl-C."""
        command = ["bash", "-c", f"cd {self.work}; exec 2>&1; exec {self._as_here(line)}"]
        with TerminalProgram(command, env={**self.env, **(env or {})}, columns=160) as program:
            program.wait_for(until)
            program.type("\x03")
            code = program.end()
            # As a shell tells it: of a pipe, whoever hears the signal first decides how this one ends.
            return Outcome(128 - code if code < 0 else code, self._as_on_a_page(program.screen.text))
