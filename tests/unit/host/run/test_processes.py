"""Which processes a run's end reaches: those that are its own, whatever others say of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.processes import command_line
from harness.waiting import wait_for
from subluminal.host.identity import start_time
from subluminal.host.run.processes import end_run_processes, run_processes
from subluminal.host.run.registration import registered

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="environments are not shown here")
Start = Callable[..., int]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    (tmp_path / "sub" / "run").mkdir(parents=True, mode=0o700)
    return tmp_path / "sub"


@pytest.fixture
def start() -> Iterator[Start]:
    """A process with exactly this environment."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeper(*entries: str, cwd: str | Path = "/", user: int = os.geteuid()) -> int:
        # execve by hand: a name may stand twice in an environment, which no dictionary can say.
        code = (
            "import ctypes, os, sys\n"
            f"os.setuid({user})\n"
            "words = lambda texts: (ctypes.c_char_p * (len(texts) + 1))(*[text.encode() for text in texts], None)\n"
            "ctypes.CDLL(None).execve(b'/bin/sleep', words(['sleep', '600']), words(sys.argv[1:]))\n"
        )
        process = subprocess.Popen([sys.executable, "-S", "-c", code, *entries], cwd=cwd, env={})
        started.append(process)
        wait_for(lambda: command_line(process.pid).startswith("sleep"), what="the process as it will be")
        return process.pid

    yield sleeper
    for process in started:
        process.kill()
        process.wait()


def test_a_process_of_the_run_is_found_however_its_home_is_written(home: Path, start: Start) -> None:
    (home.parent / "link").symlink_to(home)
    (home.parent / "user").mkdir()
    (home.parent / "user" / ".subluminal").symlink_to(home)
    found = [
        start("SUB_RUN_ID=run-1", f"SUB_HOME={home}"),
        start("SUB_RUN_ID=run-1", f"SUB_HOME={home}/../sub/"),
        start("SUB_RUN_ID=run-1", f"SUB_HOME={home.parent}/link"),
        start("SUB_RUN_ID=run-1", "SUB_HOME=sub", cwd=home.parent),
        start("SUB_RUN_ID=run-1", f"HOME={home.parent}/user"),
    ]
    assert run_processes("run-1") == sorted(found)
    assert end_run_processes("run-1") == []


@pytest.mark.parametrize(
    "entries",
    [
        ["SUB_RUN_ID=run-1", "SUB_HOME={other}"],
        ["SUB_RUN_ID=run-1", "HOME={other}"],
        ["SUB_RUN_ID=run-1"],
        ["SUB_RUN_ID=run-1", "SUB_HOME={other}", "SUB_HOME={home}"],
        ["SUB_RUN_ID=run-2", "SUB_RUN_ID=run-1", "SUB_HOME={home}"],
        ["X=SUB_RUN_ID=run-1", "SUB_HOME={home}"],
    ],
    ids=["another home", "another user's home", "no home", "two homes", "two runs", "in another variable"],
)
def test_a_process_that_is_not_of_this_run_and_home_is_never_signalled(
    home: Path, start: Start, entries: list[str]
) -> None:
    other = home.parent / "other"
    other.mkdir()
    stranger = start(*(entry.format(home=home, other=other) for entry in entries))
    assert run_processes("run-1") == []
    assert end_run_processes("run-1") == []
    assert command_line(stranger).startswith("sleep")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could signal other users")
def test_root_does_not_signal_what_another_user_says_is_of_its_run(home: Path, start: Start) -> None:
    stranger = start("SUB_RUN_ID=run-1", f"SUB_HOME={home}", user=65534)
    assert end_run_processes("run-1") == []
    assert command_line(stranger).startswith("sleep")


def test_a_process_of_the_run_cannot_pass_for_the_ledger_daemon(home: Path, start: Start) -> None:
    pretender = start("SUB_RUN_ID=run-1", f"SUB_HOME={home}")
    (home / "ledgerd.pid").write_text(str(pretender))
    assert pretender in run_processes("run-1", below=os.getpid())  # beside what other tests keep for the session


@pytest.mark.parametrize("claim", [-1, 0, 1, "x", None])
def test_a_registration_speaks_for_the_process_of_its_name_alone(home: Path, start: Start, claim: object) -> None:
    keeper = start("SUB_RUN_ID=run-1")
    entry = {"pid": claim, "start": start_time(keeper), "environ": {"SUB_RUN_ID": "run-1"}}
    (home / "run" / f"{keeper}.json").write_text(json.dumps(entry))
    (home / "run" / "².json").write_text(json.dumps(entry))
    assert registered("run-1") == [keeper]
