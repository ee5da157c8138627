"""Keys at `sub tail`, on a real pseudo-terminal over a real ledger."""

from __future__ import annotations

import os
import signal

import pytest

from harness.command_line import SUB, stored
from harness.ledger import EventMaker, create_journal, ledgerd, sub_environment
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.terminal import TerminalProgram
from subluminal.cli.tail.keys import typed

UP, DOWN, PAGE_UP, HOME, END = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[H", "\x1b[F"


@pytest.fixture
def home(tmp_path, monkeypatch):
    marker = new_marker()
    monkeypatch.setenv(MARKER_VARIABLE, marker)
    (tmp_path / "sub").mkdir(mode=0o700)
    yield tmp_path / "sub"
    kill_marked(marker)


def tail(home, *options: str, **size: int) -> TerminalProgram:
    return TerminalProgram([*SUB, "tail", *options], env=sub_environment(home, PYTHONUTF8="1", TZ="UTC"), **size)


def calls(home, count: int, run_id: str = "run-1") -> EventMaker:
    maker = EventMaker(run_id, f"shim-of-{run_id}")
    made = [maker.call(tool=f"tool{number:03}") for number in range(count)]
    stored(home, [maker.run_start(), *(line for call in made for line in call)])
    return maker


def chosen(program: TerminalProgram) -> str:
    return next((row for row in program.screen.rows if row.startswith("> ")), "")


def choose(program: TerminalProgram, keys: str, tool: str) -> None:
    program.type(keys)
    program.wait_until(lambda: program.screen.is_whole and f"git/{tool} " in chosen(program), f"{tool} chosen")


def test_q_ends_it_and_the_terminal_is_as_it_was(home):
    calls(home, 1)
    with tail(home) as program:
        program.wait_for("git/tool000")
        program.type("q")
        assert program.end() == 0
        assert program.echoes()


def test_space_holds_the_stream_and_nothing_is_lost(home):
    calls(home, 1)
    with ledgerd(home), tail(home) as program:
        program.wait_for("git/tool000")
        program.type(" ")
        program.wait_for("paused: nothing since")
        maker = EventMaker("run-2", "shim-2")
        journal = create_journal(str(home / "spool"), "shim-2")
        os.write(journal, b"".join(line + b"\n" for line in [maker.run_start(), *maker.call(tool="meanwhile")]))
        program.wait_for("paused: there is more since")
        assert "meanwhile" not in program.screen.text
        program.type(" ")
        program.wait_for("git/meanwhile")
        assert "paused" not in program.screen.text
        os.close(journal)


def test_a_text_filters_what_is_told_and_enter_alone_ends_that(home):
    calls(home, 30)
    with tail(home, "-n", "3") as program:
        program.wait_for("git/tool029")
        assert "git/tool007" not in program.screen.text
        program.type("/tool0077")
        program.wait_for("only calls with: tool0077_")
        program.type("\x7f\r")
        program.wait_for("── only calls with 'tool007'", "git/tool007")
        assert "(Enter" not in program.screen.text
        program.type("/\r")
        program.wait_for("── all calls that were asked for")
        program.wait_until(lambda: program.screen.text.count("git/tool029") == 2, "the last calls again")


def test_arrows_choose_a_call_enter_shows_it_and_escape_leads_back(home):
    calls(home, 250)
    with tail(home, lines=12) as program:
        program.wait_for("git/tool249")
        before = list(program.screen.rows)
        choose(program, UP, "tool248")
        assert len(program.screen.rows) == 12 and "Enter shows the call" in program.screen.rows[-1]
        choose(program, PAGE_UP, "tool237")
        for _ in range(3):  # each asks the ledger for more
            program.type(HOME)
        choose(program, HOME, "tool000")
        program.type("\r")
        program.wait_for("git/tool000", "decision", "more lines below")
        program.type(END)
        program.wait_for("result", "Esc back")
        program.type("\x1b")
        choose(program, "", "tool000")
        choose(program, END, "tool249")
        program.type(DOWN)
        program.wait_until(lambda: not program.screen.is_whole, "the stream")
        assert program.screen.rows == before
        program.type("q")
        assert program.end() == 0


def test_what_comes_while_one_chooses_is_told_afterwards_and_nothing_moves(home):
    calls(home, 5)
    with ledgerd(home), tail(home) as program:
        program.wait_for("git/tool004")
        choose(program, UP + UP, "tool002")
        rows = list(program.screen.rows)
        maker = EventMaker("run-2", "shim-2")
        journal = create_journal(str(home / "spool"), "shim-2")
        os.write(journal, b"".join(line + b"\n" for line in [maker.run_start(), *maker.call(tool="meanwhile")]))
        choose(program, UP, "tool001")
        choose(program, DOWN, "tool002")
        assert program.screen.rows == rows
        program.type("q")
        program.wait_for("git/meanwhile", "git/tool004")
        assert not program.screen.is_whole
        os.close(journal)


def test_help_lists_the_keys_on_any_page(home):
    calls(home, 1)
    with tail(home) as program:
        program.wait_for("git/tool000")
        program.type("?")
        program.wait_for("Keys of sub tail", "pause")
        program.type("q")
        choose(program, "", "tool000")


def test_a_whole_screen_is_given_back_however_it_ends(home):
    calls(home, 3)
    with tail(home) as program:
        program.wait_for("git/tool002")
        choose(program, UP, "tool001")
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0
        assert not program.screen.is_whole and "git/tool002" in program.screen.text
        assert program.raw.count(b"\x1b[?25l") == program.raw.count(b"\x1b[?25h") == 1
        assert program.echoes()


def test_another_size_draws_the_whole_screen_anew(home):
    calls(home, 40)
    with tail(home, columns=100, lines=30) as program:
        program.wait_for("git/tool039")
        choose(program, UP, "tool038")
        program.resize(60, 10)
        program.wait_until(lambda: len(program.screen.rows) == 10 and "git/tool038" in chosen(program), "ten rows")


def test_an_empty_ledger_has_nothing_to_choose(home):
    with tail(home) as program:
        program.wait_until(lambda: not program.echoes(), "quiet input")
        program.type(UP + "\r?/ ")
        program.type("\x1b")
        program.type("q")
        assert program.end() == 0


def test_input_that_is_no_terminal_is_left_alone(home, tmp_path):
    """The screen is drawn, and nothing is read: a q in a file ends nothing."""
    calls(home, 1)
    (tmp_path / "keys").write_text("q")
    command = ["sh", "-c", 'exec "$@" < "$0"', str(tmp_path / "keys"), *SUB, "tail"]
    with TerminalProgram(command, env=sub_environment(home, PYTHONUTF8="1", TZ="UTC")) as program:
        program.wait_for("git/tool000")
        program.wait_until(lambda: not program.pump(0.5), "quiet")
        assert program.process.poll() is None
        assert program.interrupt() == 0


@pytest.mark.parametrize(
    "data, keys",
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[1;5Cx", ["x"]),  # a modified arrow means nothing
        (b"\x1b[200~q\x1b[201~", ["q"]),
        ("ü\x00\x07".encode(), ["ü"]),
        (b"\xff\xfe", ["\ufffd", "\ufffd"]),
        (b"\r\n\x7f", ["enter", "enter", "backspace"]),
    ],
)
def test_bytes_become_keys(data, keys):
    assert typed(data) == keys
