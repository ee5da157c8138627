"""A client with hooks: a process of its own that runs hook commands through /bin/sh, as Claude Code and Codex do.

with HookClient(tmp_path, policy={...}) as client:
    client.before("Bash", {"command": "ls"}, "toolu_1").reason      "" where the call may run
    client.after("Bash", {"command": "ls"}, "toolu_1", {"stdout": ""})
client.events.wait_type("run_end")                                  the judge ends with its client
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import hook_runner
from harness.programs import compiled as compiled_program
from harness.shim import isolated_env, write_policy
from harness.sink import EventFile
from harness.waiting import GENEROUS_S
from subluminal.adapters.hook.build import build_client
from subluminal.adapters.hook.command import hook_command


@functools.cache
def built(compiled: bool) -> str:
    """The hook command, in C or in Python, in a folder of its own: built once, as it is the same in every home."""
    home = tempfile.mkdtemp(prefix="subluminal-hook-")
    atexit.register(shutil.rmtree, home)
    program = build_client(home, compiler="cc" if compiled else None)
    assert program.endswith("sub-hook" if compiled else ".pyc")
    return program


@dataclass(frozen=True)
class Told:
    """What the client got from its hook."""

    code: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """Why the call may not run, as the client reads it; empty: it may. Anything else is no answer of ours."""
        if self.code == 2:
            assert self.stderr
            return self.stderr
        assert self.code == 0, self
        if not self.stdout:
            return ""
        said = json.loads(self.stdout)
        assert set(said) == {"hookSpecificOutput"}, said
        output = said["hookSpecificOutput"]
        assert set(output) == {"hookEventName", "permissionDecision", "permissionDecisionReason"}, output
        assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
        reason: str = output["permissionDecisionReason"]
        assert reason and len(reason) <= 1000
        return reason


class HookClient:
    """`compiled`: the hook command in C, else in Python. `below`: the command line that starts the client, if any."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        client: str = "claude",
        policy: dict[str, Any] | str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
        compiled: bool = True,
        below: Sequence[str] = (),
    ) -> None:
        self.name = client
        self._below = below
        self.place = tmp_path
        self.events = EventFile(tmp_path / "events.jsonl")
        self.env = isolated_env(tmp_path, SUB_EVENTS=self.events.argument, **(env or {}))
        if policy is not None:
            self.env["SUB_POLICY"] = str(write_policy(tmp_path, policy))
        self.home = Path(self.env["SUB_HOME"])
        self.home.mkdir(mode=0o700, exist_ok=True)
        shutil.copytree(os.path.dirname(built(compiled)), self.home / "bin", dirs_exist_ok=True)
        self.program = str(self.home / "bin" / os.path.basename(built(compiled)))
        self._asked = 0
        self._lock = threading.Lock()
        self._answers: dict[int, Told] = {}
        self._came = threading.Condition()

    def __enter__(self) -> HookClient:
        command = [*self._below, sys.executable, "-S", "-E", compiled_program(hook_runner.__file__)]
        self.process = subprocess.Popen(
            command, env=self.env, cwd=self.place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(GENEROUS_S)
        self._reader.join(GENEROUS_S)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, code, stdout, stderr = json.loads(line)
            with self._came:
                self._answers[number] = Told(code, stdout, stderr)
                self._came.notify_all()

    # -- hooks ------------------------------------------------------------------------------------------------

    def start(self, event: str, payload: bytes, cwd: Path | None = None, command: str | None = None) -> int:
        """Begin a hook, and go on; `wait` has its answer."""
        command = command or hook_command(self.name, str(self.home), event)
        with self._lock:
            self._asked += 1
            order = [self._asked, command, base64.b64encode(payload).decode(), str(cwd or self.place)]
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
            return self._asked

    def wait(self, number: int) -> Told:
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, GENEROUS_S), "the hook never ended"
            return self._answers.pop(number)

    def raw(self, event: str, payload: bytes, **options: Any) -> Told:
        return self.wait(self.start(event, payload, **options))

    def hook(self, event: str, **members: Any) -> Told:
        return self.raw(event, self.payload(event, **members))

    def payload(self, event: str, **members: Any) -> bytes:
        """As the clients write it: compactly, with what each of them adds."""
        about = {
            "session_id": "0b7a2b9e-5a11-4f0e-8a5e-3f1f0b1f6f11",
            "transcript_path": str(self.place / "transcript.jsonl"),
            "cwd": str(self.place),
            "permission_mode": "default",
            "hook_event_name": event,
        }
        about |= {"prompt_id": "p1"} if self.name == "claude" else {"turn_id": "1", "model": "gpt-test"}
        return json.dumps({**about, **members}, separators=(",", ":"), ensure_ascii=False).encode()

    def before(self, tool: str, given: Any, call_id: str | None = None, **more: Any) -> Told:
        return self.hook("PreToolUse", tool_name=tool, tool_input=given, **_id(call_id), **more)

    def after(self, tool: str, given: Any, call_id: str | None, response: Any, **more: Any) -> Told:
        return self.hook(
            "PostToolUse", tool_name=tool, tool_input=given, tool_response=response, **_id(call_id), **more
        )

    def at_once(self, payloads: Iterable[bytes], event: str = "PreToolUse") -> list[Told]:
        numbers = [self.start(event, payload) for payload in payloads]
        return [self.wait(number) for number in numbers]

    # -- the judge --------------------------------------------------------------------------------------------

    @property
    def judges(self) -> list[int]:
        """The processes that answer this client."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"subluminal.adapters.hook.start" in words and os.fsencode(self.home / "run") in words:
                found.append(int(name))
        return found


def _id(call_id: str | None) -> dict[str, str]:
    return {} if call_id is None else {"tool_use_id": call_id}
