"""`sub run` at a terminal, behind an interactive shell with job control."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.shell import PROMPT, Shell
from harness.shim import isolated_env

SUB = shlex.join([sys.executable, "-m", "subluminal"])
# Tells signals, the window's size and each line it reads.
PROGRAM = """
import os, select, signal, sys
def hear(number, frame):
    os.write(1, f"<{signal.Signals(number).name}>".encode())
    if number == signal.SIGWINCH:
        os.write(1, "{0.columns}x{0.lines}".format(os.get_terminal_size()).encode())
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, "SIG" + name), hear)
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)  # so that a signal that comes just before the wait is not left until the next line
os.write(1, b"ready.")
while True:
    readable = select.select([0, woken], [], [])[0]
    if woken in readable:
        os.read(woken, 100)
    if 0 not in readable:
        continue
    line = os.read(0, 100)
    if not line or line == b"end\\n":
        sys.exit(4)
    os.write(1, b"got " + line)
"""
# Puts the terminal into raw mode and will not go.
RAW = """
import os, signal, tty
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tty.setraw(0)
os.write(1, b"ready.")
while True:
    signal.pause()
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    marker = new_marker()
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "raw.py").write_text(RAW)
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "ledgerd.pid").mkdir()
    with Shell(env={**isolated_env(tmp_path), MARKER_VARIABLE: marker}, cwd=tmp_path) as terminal:
        yield terminal
    kill_marked(marker)


def start(shell: Shell, signals: str = "INT,WINCH", options: str = "") -> None:
    shell.type(f"{SUB} run {options} -- {sys.executable} program.py {signals}")
    shell.wait_for("ready.")


def exit_code(shell: Shell) -> int:
    shell.wait_for(PROMPT)
    shell.type("echo code=$?")
    shell.wait_for("code=")
    return int(shell.wait_for("\r\n"))


def test_ctrl_c_reaches_the_command_once_and_does_not_end_the_run(shell: Shell) -> None:
    start(shell)
    shell.press("^C")
    shell.wait_for("<SIGINT>")
    assert "SIGINT" not in shell.quiet()
    shell.type("hello")
    shell.wait_for("got hello")
    shell.type("end")
    assert exit_code(shell) == 4


def test_ctrl_c_ends_a_command_that_does_not_catch_it_with_130(shell: Shell) -> None:
    shell.type(f"{SUB} run -- sh -c 'echo ready.; exec sleep 60'")
    shell.wait_for("ready.")
    shell.press("^C")
    assert exit_code(shell) == 130


def test_ctrl_z_stops_both_and_fg_resumes_them(shell: Shell) -> None:
    start(shell)
    shell.press("^Z")
    shell.wait_for("Stopped")
    shell.wait_for(PROMPT)
    shell.type("fg")
    shell.wait_for("program.py")  # the shell names the job that it has resumed
    shell.type("again")
    shell.wait_for("got again")
    shell.press("^Z")
    shell.wait_for("Stopped")
    shell.type("fg")
    shell.wait_for("program.py")
    shell.type("end")
    assert exit_code(shell) == 4


def test_a_command_that_catches_ctrl_z_keeps_the_terminal(shell: Shell) -> None:
    start(shell, "TSTP")
    shell.press("^Z")
    shell.wait_for("<SIGTSTP>")
    shell.type("still here")
    shell.wait_for("got still here")
    shell.type("end")
    assert exit_code(shell) == 4


def test_a_command_that_stops_itself_gives_the_terminal_back(shell: Shell) -> None:
    """As editors and agents do after they have put the terminal in order."""
    shell.type(f"{SUB} run -- sh -c 'echo ready.; kill -STOP $$; echo resumed.; exit 6'")
    shell.wait_for("Stopped")
    shell.wait_for(PROMPT)
    shell.type("fg")
    shell.wait_for("resumed.")
    assert exit_code(shell) == 6


def test_the_window_s_size_and_its_changes_are_the_command_s(shell: Shell) -> None:
    start(shell)
    shell.resize(77, 33)
    shell.wait_for("<SIGWINCH>77x33")
    assert "SIGWINCH" not in shell.quiet()
    shell.type("end")
    assert exit_code(shell) == 4


def test_it_runs_in_the_background_and_comes_back(shell: Shell) -> None:
    shell.type(f"{SUB} run -- sh -c 'sleep 0.2; echo done.' &")
    shell.wait_for("done.")
    shell.type("wait; echo over")
    shell.wait_for("over")


def test_end_of_input_reaches_the_command(shell: Shell) -> None:
    start(shell)
    shell.press("^D")
    assert exit_code(shell) == 4


def test_a_raw_terminal_is_put_in_order_after_a_killed_command(shell: Shell) -> None:
    before = shell.settings()
    shell.type(f"{SUB} run --timeout 3 -- {sys.executable} raw.py")
    shell.wait_for("ready.")
    assert shell.settings()[3] != before[3]
    shell.wait_for("ended after 3 s")
    assert exit_code(shell) == 124
    assert shell.settings()[3] == before[3]


def test_a_line_at_the_start_names_the_run_and_one_at_the_end_sums_it_up(shell: Shell) -> None:
    shell.type(f"{SUB} run --run-id run-mine -- echo middle")
    shell.wait_for("sub: run run-mine")
    shell.wait_for("middle")
    shell.wait_for("sub: run run-mine")
    shell.wait_for(PROMPT)


def test_quiet_says_neither(shell: Shell) -> None:
    shell.type(f"{SUB} run --quiet --run-id run-mine -- echo middle")
    shell.wait_for("middle")
    shell.wait_for(PROMPT)
    assert "sub: run" not in shell.output
