"""Running an agent as the child of a run: exit codes as a shell tells them, signals passed on, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.processes import assert_no_processes, new_marker
from harness.shim import isolated_env
from subluminal.contracts.errors import UsageError
from subluminal.host.run.membership import Membership
from subluminal.runs.launch import run_child


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "sub"


def run(script: str, **options: object) -> tuple[int, str | None]:
    ended = run_child(["sh", "-c", script], dict(os.environ), end_others=list, **options)  # type: ignore[arg-type]
    return ended.code, ended.why


def test_the_childs_own_exit_code_comes_through() -> None:
    assert run("exit 0") == (0, None)
    assert run("exit 7") == (7, None)
    assert run("kill -9 $$") == (137, None)


def test_a_command_that_cannot_be_started_is_told_as_a_shell_tells_it(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("not a program")
    for command, code in (("no-such-program-here", 127), (str(tmp_path / "plain"), 126)):
        with pytest.raises(UsageError) as failure:
            run_child([command], dict(os.environ), end_others=list)
        assert failure.value.exit_code == code


def test_a_child_that_takes_too_long_is_ended_with_all_that_carries_its_run(tmp_path: Path) -> None:
    marker = new_marker()
    env = isolated_env(tmp_path, HARNESS_MARKER=marker, SUB_RUN_ID="r-launch")
    script = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600"
    membership = Membership("r-launch", owner=True)
    ended = run_child(["sh", "-c", script], env, end_others=membership.sweep, timeout_s=0.2)
    membership.leave()
    assert ended.why == "timeout"
    assert_no_processes(marker)


def test_a_reason_to_stop_ends_the_child() -> None:
    code, why = run("sleep 60", stop=lambda: "the run was terminated")
    assert (code, why) == (128 + signal.SIGTERM, "the run was terminated")


SIGNALLED = """
import os, sys
from subluminal.runs.launch import run_child
ended = run_child([sys.executable, "-c", sys.argv[1]], dict(os.environ), end_others=list)
sys.exit(ended.code)
"""
# Blocked by itself alone, and before it says so: a handler would not run if the signal came just before a `pause`.
CHILD = """
import signal, sys
if signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}]):
    sys.exit("it was started with signals blocked")
print("ready", flush=True)
sys.exit(42 if signal.sigwait([signal.{name}]) == signal.{name} else 1)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_sent_to_us_alone_reaches_the_child(name: str) -> None:
    command = [sys.executable, "-c", SIGNALLED, CHILD.format(name=name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, name))
        assert process.wait(20) == 42
