"""`sub agent run`, as a user calls it, with agent programs that are small scripts."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ci_agent import ci_agent
from harness.fake_server import fake_server
from harness.processes import MARKER_VARIABLE, assert_no_processes, command_line, new_marker, processes_with
from harness.waiting import GENEROUS_S, wait_for
from subluminal.host.run.processes import run_processes

SUB = [sys.executable, "-m", "subluminal"]
CLAUDE = """#!{python} -u
import json, os, sys, time
def say(**line): print(json.dumps(line), flush=True)
prompt = sys.argv[-1]
say(type="system", subtype="init", session_id="s")
if prompt == "fail": sys.stderr.write("oh dear"); sys.exit(3)
if prompt == "sleep": time.sleep(60)
if prompt == "flood":
    while True: say(type="assistant", message={{"id": "m", "content": [{{"type": "text", "text": "x" * 1000}}]}})
tool = {{"type": "tool_use", "id": "t", "name": "mcp__fs__read", "input": {{"path": "hidden-input"}}}}
say(type="assistant", message={{"id": "m", "content": [{{"type": "text", "text": "You said " + prompt}}, tool]}})
say(type="user", message={{"content": [{{"type": "tool_result", "tool_use_id": "t", "content": "hidden-output"}}]}})
seen = {{name: value for name, value in os.environ.items() if name.startswith("SUB_")}}
say(type="result", subtype="success", is_error=False, result=json.dumps([seen, sys.argv[1:], os.getcwd()]))
"""


class Terminal:
    """A shell with an agent called `claude` on its path."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.home.mkdir()
        self.bin = place / "bin"
        self.bin.mkdir()
        self.program("claude", CLAUDE.format(python=sys.executable))
        self.marker = new_marker()
        self.env = {
            "HOME": str(self.home),
            "SUB_HOME": str(self.home / ".subluminal"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            MARKER_VARIABLE: self.marker,
        }

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*SUB, "agent", *words], env=self.env, stdin=pipe, stdout=pipe, stderr=pipe)

    def run(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(stdin, timeout=30)
        return process.returncode, out.decode(), err.decode()

    def recorded(self) -> list[dict[str, Any]]:
        spool = self.home / ".subluminal" / "spool"
        return [json.loads(line) for path in spool.glob("*.jsonl") for line in path.read_bytes().splitlines()]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    place = Terminal(tmp_path)
    yield place
    for pid in processes_with(place.marker):
        os.kill(pid, signal.SIGKILL)


def test_words_go_to_stdout_and_deeds_to_stderr(terminal: Terminal) -> None:
    code, out, err = terminal.run("run", "claude", "--no-record", "--", "hello there")
    assert (code, out) == (0, "You said hello there\n")
    assert [line for line in err.splitlines() if line[:2] in ("> ", "< ")] == [
        "> fs/read",
        "< fs/read completed (15 bytes)",
    ]
    assert "hidden" not in out + err


def test_json_is_one_event_per_line_and_the_completion_at_last(terminal: Terminal) -> None:
    code, out, err = terminal.run("run", "claude", "--json", "--no-record", "--", "hi")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [event["kind"] for event in events[:-1]] == ["Status", "TextOutput", "ToolCall", "ToolResult", "Status"]
    assert events[-1]["completion"]["status"] == "SUCCEEDED"
    assert "hidden" not in out


def test_the_agent_runs_with_identity_directory_and_arguments(terminal: Terminal, tmp_path: Path) -> None:
    words = ["--agent-id", "reviewer", "--cwd", str(tmp_path), "-a", "--model", "-a", "opus"]
    _, out, _ = terminal.run("run", "claude", "--json", "--no-record", *words, "--", "two", "words")
    seen, argv, cwd = json.loads(json.loads(out.splitlines()[-1])["completion"]["final_text"])
    assert seen.pop("SUB_RUN_ID").startswith("run-")
    assert seen == {"SUB_AGENT_ID": "reviewer", "SUB_CLIENT": "claude", "SUB_HOME": terminal.env["SUB_HOME"]}
    assert argv[-4:] == ["--model", "opus", "--", "two words"]
    assert cwd == str(tmp_path)


def test_a_run_inside_a_run_stays_that_run(terminal: Terminal) -> None:
    terminal.env |= {"SUB_RUN_ID": "outer", "SUB_AGENT_ID": "boss", "SUB_PRINCIPAL": "me"}
    _, out, _ = terminal.run("run", "claude", "--json", "--no-record", "--", "hi")
    seen = json.loads(json.loads(out.splitlines()[-1])["completion"]["final_text"])[0]
    assert (seen["SUB_RUN_ID"], seen["SUB_AGENT_ID"], seen["SUB_PRINCIPAL"]) == ("outer", "boss", "me")


def test_the_prompt_can_come_from_standard_input(terminal: Terminal) -> None:
    assert terminal.run("run", "claude", "--no-record", "-", stdin="späť".encode())[1] == "You said späť\n"


def test_a_failed_agent_is_exit_code_1_and_a_hint_to_its_stderr(terminal: Terminal) -> None:
    code, _, err = terminal.run("run", "claude", "--no-record", "--", "fail")
    assert code == 1
    assert "claude_code failed: exited with 3" in err
    assert "wrote 7 bytes to stderr; add --show-stderr" in err
    assert "oh dear" not in err
    assert "oh dear" in terminal.run("run", "claude", "--no-record", "--show-stderr", "--", "fail")[2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "claude", "--", " "], "the prompt is blank"),
        (["run", "claude", "-a", "--output-format", "--", "x"], "--output-format cannot be passed on"),
        (["run", "claude", "--timeout", "-1", "--", "x"], "a timeout of -1.0 s is not possible"),
        (["run", "generic", "--", "x"], "needs a program"),
        (["run", "claude", "--program", "/nowhere/x", "--", "x"], "cannot start x: No such file"),
        (["run", "gpt", "--", "x"], "'gpt' is not one of"),
        (["run", "claude"], "Missing argument"),
        (["run", "claude", "--cwd", "/dev/null/nowhere", "--", "x"], "does not exist"),
    ],
)
def test_what_cannot_be_run_is_exit_code_2_and_a_sentence(terminal: Terminal, words: list[str], reason: str) -> None:
    code, out, err = terminal.run(*words)
    assert (code, out) == (2, "")
    assert reason in err
    assert "Traceback" not in err


def test_the_timeout_is_exit_code_124(terminal: Terminal) -> None:
    code, _, err = terminal.run("run", "claude", "--no-record", "--timeout", "0.7", "--", "sleep")
    assert code == 124
    assert "timed out after 0.7 s" in err
    assert_no_processes(terminal.marker)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_agent_and_is_told_in_the_exit_code(terminal: Terminal, signum: int, code: int) -> None:
    process = terminal.start("run", "claude", "--json", "--no-record", "--", "sleep")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signum)
    out, err = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == code, err
    assert json.loads(out.splitlines()[-1])["completion"]["status"] == "CANCELLED"
    assert_no_processes(terminal.marker)


def test_sub_kill_ends_the_agent_and_is_told_in_the_exit_code(terminal: Terminal) -> None:
    process = terminal.start("run", "claude", "--no-record", "--", "sleep")
    assert process.stderr is not None
    run_id = process.stderr.readline().decode().split()[1]
    killed = subprocess.run(
        [*SUB, "kill", run_id, "--reason", "enough"], env=terminal.env, capture_output=True, check=False
    )
    assert killed.returncode == 0, killed.stderr
    _, err = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == 125
    assert b"The run was terminated (OPERATOR: enough)" in err
    assert_no_processes(terminal.marker)


def test_a_process_that_has_made_itself_a_daemon_is_ended_with_an_interrupted_run(terminal: Terminal) -> None:
    daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(60)"
    script = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {daemon!r}]); print(1, flush=True)"
    process = terminal.start(
        *("run", "generic", "--json", "--no-record", "--program", sys.executable, "-a", "-c", "-a"),
        *(script + "; time.sleep(60)", "--", "go"),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS_S)
    assert_no_processes(terminal.marker)


def test_the_run_is_registered_while_it_lives(terminal: Terminal) -> None:
    process = terminal.start("run", "claude", "--json", "--no-record", "--", "sleep")
    assert process.stdout is not None
    process.stdout.readline()
    entry = terminal.home / ".subluminal" / "run" / f"{process.pid}.json"
    assert json.loads(entry.read_text())["environ"]["SUB_CLIENT"] == "claude"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS_S)
    assert not entry.exists()


def test_the_ledger_daemon_is_no_part_of_the_run_that_started_it(terminal: Terminal) -> None:
    code = "import os; from subluminal.host.record.ledgerd import spawn_ledgerd; spawn_ledgerd(os.environ['SUB_HOME'])"
    env = {**terminal.env, "SUB_RUN_ID": "run-of-the-test"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=GENEROUS_S)
    wait_for(
        lambda: any("--foreground" in command_line(pid) for pid in processes_with(terminal.marker)), what="the daemon"
    )
    assert run_processes("run-of-the-test") == []


def test_a_reader_that_goes_away_ends_the_agent(terminal: Terminal) -> None:
    process = terminal.start("run", "claude", "--json", "--no-record", "--", "flood")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=GENEROUS_S)
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    assert_no_processes(terminal.marker)


def test_the_run_is_recorded_and_the_ledger_is_called(terminal: Terminal) -> None:
    (terminal.home / ".subluminal").mkdir()
    with socket.socket(socket.AF_UNIX) as doorbell:
        doorbell.bind(str(terminal.home / ".subluminal" / "ledgerd.sock"))
        doorbell.listen()
        terminal.run("run", "claude", "--", "hi")
        doorbell.settimeout(GENEROUS_S)
        caller, _ = doorbell.accept()
        assert b"wake" in caller.recv(1000)
        caller.close()
    lines = terminal.recorded()
    assert [line["type"] for line in lines] == ["agent_event"] * 7 + ["run_end"]
    assert (lines[0]["agent"]["message"], lines[-2]["agent"]["message"]) == ("started", "completion SUCCEEDED")
    assert len({line["run_id"] for line in lines}) == 1
    assert (lines[0]["client"], lines[0]["agent_id"]) == ("claude", "claude_code")
    assert "hidden" not in json.dumps(lines)


@pytest.mark.contract("EVT-009")
def test_the_run_s_own_end_counts_the_calls_of_its_shims(terminal: Terminal) -> None:
    place = terminal.home / ".subluminal"
    place.mkdir(mode=0o700)
    (place / "ledgerd.pid").mkdir()  # keeps the daemon away, so that journals can be read
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    agent = ci_agent(servers={"box": shim}, calls=[["box", "echo", {}], ["box", "echo", {}]])
    terminal.program("mine", f"#!{sys.executable}\nimport os\nos.execv({agent[0]!r}, {agent!r})\n")
    code, _, err = terminal.run("run", "generic", "--program", "mine", "--", "go")
    assert code == 0, err
    ends = [event["run"] for event in terminal.recorded() if event["type"] == "run_end"]
    assert sorted((end["summary"]["calls_total"], end.get("counts", "")) for end in ends) == [(2, ""), (2, "run")]


def test_the_generic_agent_prints_its_lines_and_tells_of_them_by_size_only(terminal: Terminal) -> None:
    terminal.program("mine", f"#!{sys.executable}\nprint('secret words')\n")
    code, out, err = terminal.run("run", "generic", "--program", "mine", "-v", "--no-record", "--", "go")
    assert (code, out) == (0, "secret words\n")
    assert "- line 1: 12 bytes" in err
    assert "secret" not in err


def test_a_relative_program_is_found_from_where_the_user_stands(terminal: Terminal, tmp_path: Path) -> None:
    place = os.path.relpath(terminal.bin / "claude")
    words = ["--program", place, "--cwd", str(tmp_path), "--no-record", "--", "hi"]
    assert terminal.run("run", "claude", *words)[:2] == (0, "You said hi\n")


def test_the_kinds_of_agent_are_listed(terminal: Terminal) -> None:
    code, out, _ = terminal.run("kinds", "--json")
    assert code == 0
    assert [json.loads(line)["agent_kind"] for line in out.splitlines()] == ["claude_code", "codex", "generic"]


def test_a_program_of_which_nothing_is_known_is_heard_and_not_obeyed(terminal: Terminal) -> None:
    terminal.program("talker", "#!/bin/sh\nprintf 'hello \\033[2Jthere\\n'\n")
    words = ("run", "generic", "--program", "talker", "--no-record")
    code, out, _ = terminal.run(*words, "--", "x")
    assert (code, out) == (0, "hello \\x1b[2Jthere\n")
    assert "hello" not in terminal.run(*words, "--json", "--", "x")[1]
