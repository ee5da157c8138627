"""What becomes of a command whose surroundings are broken: closed streams, a full device, a damaged ledger."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from harness.command_line import SUB, run_sub, stored
from harness.ledger import EventMaker, sub_environment
from harness.terminal import TerminalProgram

COMMANDS = ["version", "runs", "show last --no-sync", "query --no-sync", "policy init --dry-run", "completion bash"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    stored(home, EventMaker("run-1", "a").whole_run(2))
    return home


def shell(home: Path, command: str, redirections: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"$@" {command} {redirections}', "sh", *SUB],
        env=sub_environment(home, PYTHONUTF8="1"),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams_are_no_reason_for_a_traceback(home: Path, command: str) -> None:
    closed = shell(home, command, ">&- <&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    assert shell(home, command, ">&- 2>&- <&-").returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_device_is_a_sentence_and_exit_code_2(home: Path, command: str) -> None:
    full = shell(home, command, ">/dev/full")
    assert (full.returncode, full.stderr) == (2, "sub: No space left on device\n")


def test_ctrl_c_while_an_error_is_told_shows_no_traceback(home: Path) -> None:
    """The sentence is longer than a pipe holds: who has read its beginning knows that it is being written."""
    with subprocess.Popen(
        [*SUB, "show", "--no-sync", "x" * 120_000], env=sub_environment(home), stderr=subprocess.PIPE
    ) as told:
        assert told.stderr is not None
        beginning = told.stderr.read(10)
        told.send_signal(signal.SIGINT)
        rest = told.stderr.read()
    assert (told.returncode, b"Traceback" in beginning + rest) == (130, False)


@pytest.mark.parametrize("damage", ["DROP TABLE segments", "DROP TABLE tool_calls", "DROP TABLE runs"])
def test_a_damaged_ledger_is_a_sentence_from_every_command(home: Path, tmp_path: Path, damage: str) -> None:
    database = sqlite3.connect(home / "ledger.db")
    database.execute(damage)
    database.close()
    told = []
    for words in (
        ["query", "--no-sync"],
        ["show", "last", "--no-sync"],
        ["verify", "--all"],
        ["export", "run", "last", "-o", str(tmp_path / "out")],
        ["doctor", "--json"],
    ):
        result = run_sub(home, *words)
        assert "Traceback" not in result.stderr, words
        assert result.returncode in (0, 1, 2)
        told += [words[0]] if "The ledger cannot be read: no such table" in result.stderr else []
        if words[0] == "verify":
            assert result.returncode == 1 and f"database: the table {damage.split()[-1]} is missing" in result.stdout
    assert told


@pytest.mark.parametrize("command", ["tail --no-follow", "verify --all", "show last --no-sync", "doctor"])
def test_a_terminal_that_is_not_utf_8_gets_escapes_and_no_traceback(home: Path, command: str) -> None:
    result = subprocess.run(
        [*SUB, *command.split()],
        env=sub_environment(home, PYTHONUTF8="0", PYTHONIOENCODING="ascii", PYTHONCOERCECLOCALE="0", LC_ALL="C"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in result.stderr
    assert result.returncode in (0, 1)
    assert result.stdout.isascii() and result.stdout.strip()


@pytest.mark.parametrize("command", ["runs", "query", "query --group-by server,tool,decision"])
def test_no_table_is_wider_than_a_narrow_terminal(home: Path, command: str) -> None:
    stored(home, EventMaker("run-01a1e131661d5ca17cc7635d3838", "b").whole_run(1))
    environment = sub_environment(home, PYTHONUTF8="1")
    with TerminalProgram([*SUB, *command.split(), "--no-sync"], env=environment, columns=60) as program:
        program.wait_for({"runs": "run-1 ", "query": "OK"}.get(command, "ALLOW"))
        assert program.end() == 0
        program.pump(0.1)
    header, *rows = [row for row in program.screen.rows if row]
    assert len(header) <= 60
    assert not any(row.startswith(" ") for row in rows)  # nothing was carried over to a second line
    if command == "runs":
        assert any(row.startswith("5d3838 ") for row in rows)
