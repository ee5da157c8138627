"""Whatever goes wrong between a client and its judge is a refusal where the policy fails closed, and only there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.hooks import HookClient
from harness.processes import is_alive
from harness.waiting import wait_for
from subluminal.adapters.hook import build
from subluminal.adapters.hook.command import REFUSED, hook_command

CLOSED: dict[str, Any] = {
    "policy_id": "closed",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-rm",
            "kind": "deny",
            "match": {"args": {"command": {"command": {"programs": ["rm"]}}}},
            "effect": {"action": "BLOCK"},
        },
        {
            "rule_id": "three",
            "kind": "budget",
            "match": {"tool_name": {"glob": ["*"]}},
            "effect": {"budget": {"scope": "run", "limit_calls": 3, "on_exceed": "BLOCK"}},
        },
    ],
}
OPEN = {**CLOSED, "defaults": {"decision_on_error": "ALLOW"}}
NOBODY = 65534


@pytest.fixture(params=[True, False], ids=["C", "Python"])
def compiled(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def in_home(tmp_path: Path, policy: dict[str, Any], **options: Any) -> HookClient:
    """With the policy as the user's own, which is in force everywhere."""
    client = HookClient(tmp_path, **options)
    (client.home / "policy.yaml").write_text(json.dumps(policy))
    return client


def judge_of(client: HookClient) -> int:
    (judge,) = client.judges
    return judge


def kill_judge(client: HookClient) -> None:
    judge = judge_of(client)
    os.kill(judge, signal.SIGKILL)
    # Dead, not dying: its command line is gone before its socket is, and who asks there meanwhile is refused.
    wait_for(lambda: not is_alive(judge), what="the death of the judge")


def socket_of(client: HookClient) -> Path:
    (path,) = (client.home / "run").glob("judge-*.sock")
    return path


def break_program(client: HookClient) -> None:
    os.unlink(client.program)


def crash_program(client: HookClient) -> None:
    Path(client.program).write_text("#!/bin/sh\nkill -9 $$\n" if client.program.endswith("sub-hook") else "1/0")


def put_true_in_its_place(client: HookClient) -> None:
    Path(client.program).write_text("#!/bin/sh\nexit 0\n" if client.program.endswith("sub-hook") else "")


def take_run_dir_away(client: HookClient) -> None:
    kill_judge(client)
    (client.home / "run").rename(client.home / "elsewhere")
    (client.home / "run").write_text("a file")


@pytest.mark.parametrize("breaking", [break_program, crash_program, put_true_in_its_place, take_run_dir_away])
def test_a_hook_that_cannot_ask_refuses_where_the_policy_fails_closed_and_only_there(
    tmp_path: Path, compiled: bool, breaking: Callable[[HookClient], None]
) -> None:
    for policy, refused in ((CLOSED, True), (OPEN, False)):
        (place := tmp_path / str(refused)).mkdir()
        with in_home(place, policy, compiled=compiled) as client:
            assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
            command = hook_command(client.name, str(client.home))
            afterwards = hook_command(client.name, str(client.home), "PostToolUse")
            breaking(client)
            payload = client.payload("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="t2")
            told = client.raw("PreToolUse", payload, command=command)
            assert (told.code, told.stdout) == ((2, "") if refused else (0, ""))
            assert (REFUSED in told.stderr) is refused
            after = client.raw("PostToolUse", payload, command=afterwards)
            assert (after.code, after.stdout) == (0, ""), "what has run cannot be refused any more"


def test_a_repository_s_policy_closes_its_own_directory(tmp_path: Path) -> None:
    (here := tmp_path / "here" / "below").mkdir(parents=True)
    (elsewhere := tmp_path / "here2").mkdir()
    (tmp_path / "here" / ".git").mkdir()
    (tmp_path / "here" / ".subluminal").mkdir()
    (tmp_path / "here" / ".subluminal" / "policy.yaml").write_text(json.dumps(CLOSED))
    client = HookClient(tmp_path)
    client.place = here  # where the client starts
    with client:
        assert client.before("Bash", {"command": "rm x"}, "t1").reason
        command = hook_command("claude", str(client.home))
        break_program(client)
        codes = {place: client.raw("PreToolUse", b"{}", command=command, cwd=place).code for place in (here, elsewhere)}
        assert codes == {here: 2, elsewhere: 0}


def test_a_judge_that_was_killed_is_back_with_what_it_had_counted(tmp_path: Path, compiled: bool) -> None:
    with in_home(tmp_path, CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "one"}, "t1").reason == ""
        kill_judge(client)
        assert client.before("Bash", {"command": "two"}, "t2").reason == ""
        kill_judge(client)
        assert client.before("Bash", {"command": "three"}, "t3").reason == ""
        assert "three" in client.before("Bash", {"command": "four"}, "t4").reason
        assert len(client.judges) == 1
    client.events.wait_type("run_end")
    assert len(client.events.events_of("run_start")) == 3


def test_a_judge_that_dies_or_hangs_with_the_question_in_hand_has_not_allowed_it(
    tmp_path: Path, compiled: bool
) -> None:
    with in_home(tmp_path, CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        judge = judge_of(client)
        os.kill(judge, signal.SIGSTOP)
        asked = client.start("PreToolUse", client.payload("PreToolUse", tool_name="Bash", tool_input={}))
        wait_for(lambda: hooks_of(client), what="the hook at the judge's door")
        os.kill(judge, signal.SIGKILL)
        told = client.wait(asked)
        assert told.code == 2 and REFUSED in told.stderr
        assert client.before("Bash", {"command": "ls"}, "t2").reason == "", "another has taken its place"
        shorten_deadline(client)
        os.kill(judge_of(client), signal.SIGSTOP)
        told = client.before("Bash", {"command": "ls"}, "t3")
        assert told.code == 2 and REFUSED in told.stderr
        os.kill(judge_of(client), signal.SIGKILL)


def hooks_of(client: HookClient) -> list[int]:
    """Hook commands of this client that wait in their socket."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/wchan") as file:
                waiting = file.read()
        except OSError:
            continue
        if client.program.encode() in words and b"/bin/sh" not in words and "sock" in waiting + _syscall(name):
            found.append(int(name))
    return found


def _syscall(pid: str) -> str:
    """Where the kernel hides its own names: reading from a descriptor that is a socket."""
    try:
        with open(f"/proc/{pid}/syscall") as file:
            words = file.read().split()
        return os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
    except (OSError, ValueError, IndexError):
        return ""


def shorten_deadline(client: HookClient) -> None:
    """The same hook command, but it waits for a second only."""
    source = Path(hook_sources() / ("client.c" if client.program.endswith("sub-hook") else "client.py")).read_text()
    short = source.replace("DEADLINE_S = 20", "DEADLINE_S = 1")
    assert short != source
    if client.program.endswith("sub-hook"):
        made = subprocess.run(
            ["cc", "-x", "c", "-", "-o", client.program + ".new"], input=short, text=True, check=False
        )
        assert made.returncode == 0
        os.rename(client.program + ".new", client.program)
    else:
        Path(client.program).write_bytes(build._byte_code(short.encode()))


def hook_sources() -> Path:
    import subluminal.adapters.hook

    return Path(subluminal.adapters.hook.__path__[0])


def test_a_payload_that_never_ends_is_given_up(tmp_path: Path, compiled: bool) -> None:
    with in_home(tmp_path, CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        shorten_deadline(client)
        endless = f"{{ printf '{{'; tail -f /dev/null --pid {client.process.pid}; }}"
        command = f"{endless} | {{ {hook_command('claude', str(client.home))}; }}"
        told = client.raw("PreToolUse", b"", command=command)
        assert told.code == 2 and REFUSED in told.stderr


# -- what is said, and by whom ----------------------------------------------------------------------------------------

HOSTILE = {
    "nothing": b"",
    "no JSON": b"garbage",
    "another value": b"[1]",
    "a truncated object": b'{"hook_event_name":"PreToolUse","tool_name":"Bash"',
    "a second tool": b'{"tool_name":"Read","tool_input":{},"tool_name":"Bash"}',
    "a second key below": b'{"tool_name":"Bash","tool_input":{"command":"ls","command":"rm x"}}',
    "no tool": b'{"hook_event_name":"PreToolUse","tool_input":{}}',
    "a number for a tool": b'{"tool_name":7,"tool_input":{}}',
    "invalid UTF-8": b'{"tool_name":"Bash","tool_input":{"command":"\xff"}}',
    "a lone surrogate": b'{"tool_name":"Bash","tool_input":{"command":"\\ud800"}}',
    "deep": b'{"tool_name":"Bash","tool_input":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "two objects": b'{"tool_name":"Bash","tool_input":{}}{"tool_name":"Bash","tool_input":{}}',
}


def test_no_payload_breaks_the_judge_and_none_that_has_two_readings_passes(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=CLOSED) as client:
        for what, payload in HOSTILE.items():
            assert client.raw("PreToolUse", payload).reason, what
            for event in ("PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "Unheard"):
                after = client.raw(event, payload)
                assert (after.code, after.stdout, after.stderr) == (0, "", ""), (what, event)
        assert len(client.judges) == 1
    client.events.wait_type("run_end")
    assert len(client.events.events_of("run_start")) == 1


WRONG_TYPES = {
    "tool_input": [None, 7, "text", [], {"command": None}],
    "tool_use_id": [None, 7, {}, "x" * 10_000],
    "cwd": [None, 7, "", "relative", "/no/such/place", "/\u0000"],
    "agent_id": [7, [], "x" * 10_000],
    "duration_ms": [-1, 1.5, "soon", 10**30],
    "tool_calls": [None, {}, [1], [{"tool_use_id": 7}]],
}


def test_members_of_another_type_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    policy = {**CLOSED, "rules": CLOSED["rules"][:1]}
    with HookClient(tmp_path, policy=policy) as client:
        for name, values in WRONG_TYPES.items():
            for value in values:
                given = {"tool_name": "Bash", "tool_input": {"command": "rm x"}, "tool_use_id": "t", name: value}
                told = client.hook("PreToolUse", **given)
                assert told.reason or name == "tool_input", (name, value)
                for event in ("PostToolUse", "PostToolUseFailure", "PostToolBatch"):
                    assert client.hook(event, **given).code == 0
        assert len(client.judges) == 1


def test_a_large_call_is_judged_by_what_is_known_of_it(tmp_path: Path, compiled: bool) -> None:
    match, effect = {"tool_name": {"glob": ["Write"]}}, {"action": "BLOCK"}
    by_name = {"rule_id": "no-write", "kind": "deny", "match": match, "effect": effect}
    with HookClient(tmp_path, policy={**CLOSED, "rules": [by_name]}, compiled=compiled) as client:
        large = {"file_path": "/a", "content": "x" * 10_000_000}
        assert "no-write" in client.before("Write", large, "t1").reason
        assert client.before("Edit", large, "t2").reason == ""
    (place := tmp_path / "by-argument").mkdir()
    with HookClient(place, policy=CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "x" * 20_000_000}, "t1").reason, "a rule asks for what was not read"
    starts = client.events.events_of("tool_call_start")
    assert starts[-1]["call"]["args_hash"] == "" and starts[-1]["call"]["args_stream_hash"]


def test_what_cannot_be_held_is_refused_and_costs_no_memory(tmp_path: Path) -> None:
    from subluminal.adapters.hook.judge import MAX_PAYLOAD_BYTES

    with HookClient(tmp_path, policy=CLOSED) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        judge, piece = judge_of(client), b"x" * 1_048_576
        with connected(client) as connection:
            connection.sendall(b'claude PreToolUse\n{"tool_name":"Bash","tool_input":"')
            for _ in range(MAX_PAYLOAD_BYTES // len(piece) + 8):
                connection.sendall(piece)
            connection.sendall(b'"}')
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read()
        code, out, _ = struct.unpack("!BII", answer[:9])
        assert code == 0 and b"MESSAGE" not in answer and b'"deny"' in answer[9 : 9 + out]
        assert client.judges == [judge]
        assert client.before("Bash", {"command": "ls"}, "t2").reason == ""
    decided = [event["decision"]["explain"]["reason_code"] for event in client.events.events_of("tool_call_decision")]
    assert decided[1] == "MESSAGE_TOO_LARGE"


def connected(client: HookClient) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(client.home / "run", os.O_RDONLY)
    connection.connect(f"/proc/self/fd/{directory}/{socket_of(client).name}")
    os.close(directory)
    return connection


def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=CLOSED) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        silent = [connected(client) for _ in range(40)]
        for line in (b"", b"claude\n", b"x" * 300 + b"\n", b"\xff \xff\n{}", b"a b c\n"):
            with connected(client) as other:
                other.sendall(line)
                other.shutdown(socket.SHUT_WR)
                assert other.recv(100)[9:] == b"", "nothing is told to whoever is no hook of ours"
        assert client.before("Bash", {"command": "ls"}, "t2").reason == ""
        for connection in silent:
            connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_is_not_answered(tmp_path: Path) -> None:
    with HookClient(tmp_path, policy=CLOSED) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        path = socket_of(client)
        os.chmod(path, 0o777)
        os.chmod(path.parent, 0o711)
        program = (
            "import os, socket, sys\n"
            f"os.chdir({str(path.parent)!r}); os.setuid({NOBODY})\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            'try: s.sendall(b"claude PreToolUse\\n{}"); s.shutdown(1)\n'
            "except OSError: pass\n"
            "try: print(s.recv(100))\n"
            "except OSError: print(b'')\n"
        )
        done = subprocess.run(["python3", "-c", program, path.name], capture_output=True, text=True, check=False)
        assert done.stdout == "b''\n", done.stderr
        assert len(client.events.events_of("tool_call_start")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_socket_of_another_user_is_not_believed(tmp_path: Path, compiled: bool) -> None:
    with HookClient(tmp_path, policy=CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        path = socket_of(client)
        program = (
            "import os, socket, sys\n"
            f"os.chdir({str(path.parent)!r}); os.unlink(sys.argv[1])\n"
            "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])\n"
            f"os.setuid({NOBODY}); s.listen(); print('ready', flush=True)\n"
            "while True:\n"
            "    c, _ = s.accept()\n"
            "    c.sendall(bytes(9)); c.close()\n"
        )
        impostor = subprocess.Popen(["python3", "-c", program, path.name], stdout=subprocess.PIPE)
        try:
            assert impostor.stdout is not None and impostor.stdout.readline() == b"ready\n"
            assert client.before("Bash", {"command": "rm x"}, "t2").reason
        finally:
            impostor.kill()
            impostor.wait()
            impostor.stdout.close()


@pytest.mark.parametrize("put", ["nothing", "file", "link", "directory"])
def test_a_socket_that_was_replaced_is_made_anew_and_the_old_judge_ends(tmp_path: Path, put: str) -> None:
    with HookClient(tmp_path, policy=CLOSED) as client:
        assert client.before("Bash", {"command": "ls"}, "t1").reason == ""
        old, path = judge_of(client), socket_of(client)
        path.unlink()
        if put == "file":
            path.write_text("x")
        elif put == "link":
            path.symlink_to("/dev/null")
        elif put == "directory":
            path.mkdir()
        told = client.before("Bash", {"command": "rm x"}, "t2")
        assert told.reason, "judged by another, or refused"
        wait_for(lambda: old in client.judges, what="the end of the old judge", enough=lambda there: not there)


def test_the_line_survives_every_name_a_home_can_have(tmp_path: Path, compiled: bool) -> None:
    (place := tmp_path / 'it\'s "a" $HOME `x` & (b)').mkdir()
    with in_home(place, CLOSED, compiled=compiled) as client:
        assert client.before("Bash", {"command": "rm x"}, "t1").reason
        command = hook_command("claude", str(client.home))
        break_program(client)
        assert client.raw("PreToolUse", b"{}", command=command).code == 2
        for shell in filter(shutil.which, ("dash", "bash", "zsh", "busybox")):
            done = subprocess.run(
                [shell, *(["sh"] if shell == "busybox" else []), "-c", command],
                input=b"{}",
                capture_output=True,
                cwd=place,
                check=False,
            )
            assert done.returncode == 2
