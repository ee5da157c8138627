"""`args.command`: which lines a rule's programs match, in both directions, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import calls_made, growth
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.commands import MAX_ELEMENTS, CommandOf, read_command, read_line
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.shell.findings import MAX_CHARS, MAX_COMMANDS, MAX_NESTING


def stops(programs: list[str], value: Any) -> bool | str:
    return _judged(CommandOf({"programs": programs}, generous=True), value)


def lets_through(programs: list[str], value: Any) -> bool | str:
    return _judged(CommandOf({"programs": programs}, generous=False), value)


def _judged(predicate: CommandOf, value: Any) -> bool | str:
    try:
        return predicate(value)
    except Unavailable as unavailable:
        assert unavailable.reason_code == UNJUDGED_ARGS
        assert unavailable.why
        return "?"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rm x", True),
        ("ls && rm x", True),
        ("ls", False),
        ("echo rm", False),
        ("/bin/rm x", True),
        ("RM x", True),
        ("rm\r", True),
        ("$X; rm", True),
        ("rm 'unterminated", True),
        ("rm $[1]", True),
        ("ls 'unterminated", "?"),
        ("$X", "?"),
        ('bash -c "rm $x"', True),
        ("PATH=/x ls", False),
        ("", False),
        ("X=1", False),
        ("ls > f", False),
    ],
)
def test_what_stops_a_call_needs_one_program(line: str, expected: bool | str) -> None:
    assert stops(["rm"], line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", True),
        ("git status && ls", True),
        ("git status; rm x", False),
        ("git status; $X", "?"),
        ("rm x; $X", False),
        ("git log | cat", False),
        ("env git status", False),
        ("/usr/bin/git status", True),
        ("./git status", False),
        ("/tmp/git status", False),
        ("/usr/bin/../../tmp/git", False),
        ("GIT status", False),
        ("~/bin/git", False),
        ('"$X"/git', False),
        ("PATH=/x git status", "?"),
        ("LD_PRELOAD=x git status", "?"),
        ("git status > f", False),
        ("git status > /dev/null 2>&1", True),
        ("git $(ls)", True),
        ("git $(rm)", False),
        ("git 'unterminated", "?"),
        ("", False),
        ("# git", False),
        ("X=1", False),
        ("> f", False),
    ],
)
def test_what_lets_a_call_through_needs_every_program(line: str, expected: bool | str) -> None:
    assert lets_through(["git", "ls"], line) == expected


def test_a_redirection_is_a_program_of_its_own() -> None:
    assert lets_through(["ls", ">"], "ls > f") is True
    assert lets_through(["ls"], "ls > f") is False
    assert stops([">"], "ls >> f") is True
    assert stops([">"], "ls 2>/dev/null >&2") is False


def test_patterns_are_globs_on_the_name_or_with_a_slash_on_the_path() -> None:
    assert stops(["git-*"], "git-push x") is True
    assert stops(["git-*"], "/usr/lib/git-push x") is True
    assert stops(["/opt/*"], "/opt/x/run") is True
    assert stops(["/opt/*"], "run") is False
    assert stops(["/opt/run"], "/opt/.//run") is True
    assert lets_through(["/opt/tools/*"], "/opt/tools/run") is True
    assert lets_through(["/opt/tools/*"], "/opt/tools/../../tmp/run") is False
    assert lets_through(["./run.sh"], "./run.sh") is True
    assert lets_through(["*"], "./run.sh") is False
    assert lets_through(["*", "*/*"], "./run.sh; ls") is True


def test_wrappers_count_themselves() -> None:
    assert stops(["sudo"], "sudo ls") is True
    assert lets_through(["ls"], "sudo ls") is False
    assert lets_through(["ls", "sudo"], "sudo ls") is True
    assert lets_through(["git", "bash"], "bash -lc 'git status'") is True
    assert lets_through(["git", "bash"], "bash -lc 'git status; rm x'") is False


@pytest.mark.parametrize(
    ("value", "denied", "allowed"),
    [
        (["bash", "-lc", "rm x"], True, False),
        (["bash", "-lc", "git status"], False, True),
        (["bash", "-lc", "git $X"], False, True),
        (["bash", "-lc", "$X"], "?", "?"),
        (["git", "commit", "-m", "it's; $(x)"], False, True),
        (["git", "log;", "rm"], True, True),  # lines to what stops, words of git to what lets through
        (["ls", "rm x"], True, False),
        (["git status", "git log"], False, False),
        (["git", "$X"], "?", True),
        ([], False, False),
        ([1, 2], False, False),
        (["git", 5], False, False),
        ([["rm"]], False, False),
        (None, False, False),
        ({"rm": "rm"}, False, False),
        (5, False, False),
        (True, False, False),
        (10**400, False, False),
        (1.5, False, False),
        (["git"] * (MAX_ELEMENTS + 1), "?", "?"),
    ],
)
def test_a_list_is_an_argv_and_to_what_stops_also_lines(value: Any, denied: bool | str, allowed: bool | str) -> None:
    assert stops(["rm"], value) == denied
    assert lets_through(["git", "bash"], value) == allowed


def test_other_values_are_read_as_text_by_what_stops() -> None:
    assert stops(["true"], True) is True
    assert stops(["5"], 5) is True
    assert lets_through(["true"], True) is False


def test_beyond_the_bounds_nothing_is_judged() -> None:
    assert stops(["rm"], "ls " + "a" * MAX_CHARS) == "?"
    assert stops(["rm"], "ls;" * MAX_COMMANDS) is False
    assert stops(["rm"], "ls;" * (MAX_COMMANDS + 1)) == "?"
    assert stops(["rm"], "X=1;" * (MAX_COMMANDS + 1)) == "?"
    assert stops(["rm"], "$(" * MAX_NESTING) == "?"
    assert stops(["rm"], "ls \0") == "?"
    assert stops(["rm"], ["ls", "\0"]) == "?"
    assert stops(["rm"], ["ls", "a" * MAX_CHARS]) == "?"


def test_rules_that_ask_about_one_call_share_its_reading() -> None:
    assert read_command("ls -l | sort") is read_command("ls -l | sort")


def test_what_was_read_is_said() -> None:
    denies = CommandOf({"programs": ["rm"]}, generous=True)
    assert denies.reading("env X=1 rm x | curl") == "runs env, rm, curl"
    assert denies.reading("X=1") == "runs nothing"
    assert denies.reading({}) == "is no command"
    assert denies.reading(["bash", "-c", "rm"]) == "runs bash, rm"
    assert denies.reading(["ls", "cd x; rm y"]) == "runs cd, rm"
    assert denies.reading("ls; $X") == "runs ls; the command line names a program that is not written out"
    assert denies.reading("PATH=/x ls") == "runs ls"
    assert denies.reading("; ".join(f"a{n}" for n in range(20))).endswith("a11 and 8 more")
    assert denies.reading("'a\x1bb'") == "runs 'a\\x1bb'"
    allows = CommandOf({"programs": ["ls"]}, generous=False)
    assert allows.reading("PATH=/x ls") == "runs ls; the command line sets PATH, which changes what runs"


HOSTILE: dict[str, Callable[[int], str]] = {
    "quotes": lambda n: "echo " + "'a'\"b\"" * n,
    "open quotes": lambda n: "echo " + "$'a" * n,
    "substitutions": lambda n: "echo " + "$(a" * n,
    "arithmetic": lambda n: "echo $((" + "x + (" * n,
    "backslashes": lambda n: "echo `" + "\\" * n + "`",
    "nested backticks": lambda n: "echo " + "`echo \\" * n,
    "subscripts": lambda n: "echo " + "$x[" * n,
    "here-documents": lambda n: "cat <<E\n" + "x\\\n" * n + "E",
    "open here-documents": lambda n: "cat " + "<<E " * n + "\n" + "E \n" * n,
    "tabs": lambda n: "cat <<-E\n" + "\t" * n + "\n" * n + "E",
    "continuations": lambda n: "ls " + "\\\n" * n,
    "words": lambda n: "echo " + "a " * n,
    "digits": lambda n: "echo " + "1" * n + " 1" * n,
    "wrappers": lambda n: "sudo " * n,
    "placeholders": lambda n: "xargs -I{} " * n,
    "actions": lambda n: "find " + "-exec find " * n,
    "patterns": lambda n: "case x in " + "a|" * n + "b) ls;; esac",
    "evals": lambda n: "eval " * n,
    "negations": lambda n: "! " * n + "ls",
    "lists": lambda n: "a=(" + "x " * n + ")",
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_time_grows_with_the_line_and_no_faster(shape: str) -> None:
    make = HOSTILE[shape]
    per_unit = (len(make(20)) - len(make(10))) / 10
    small, large = (make(int(chars / per_unit) - 20) for chars in (MAX_CHARS // 16, MAX_CHARS))
    assert MAX_CHARS // 2 < len(large) <= MAX_CHARS
    assert growth(lambda chars: read_line(large if chars == len(large) else small), len(small), len(large), 3) < 3


def test_a_list_is_read_once_however_many_rules_ask() -> None:
    """A thousand lines were read anew for every rule."""
    lines = [f"a && b | c; x{number}" for number in range(300)]

    def judge(rules: int) -> None:
        for number in range(rules):
            assert CommandOf({"programs": [f"p{number}"]}, True)(list(lines)) is False

    reading_twice = calls_made(lambda: [read_line(line) for line in lines * 2])
    assert calls_made(lambda: judge(20)) < 2 * reading_twice


def test_of_a_list_no_more_characters_are_read_than_of_a_line() -> None:
    words = ["a;" * 5_000 + str(number) for number in range(20)]
    small = calls_made(lambda: stops(["rm"], words[:6]))
    assert stops(["rm"], words) == "?"
    assert calls_made(lambda: stops(["rm"], [*words[1:], "b"])) < 1.5 * small
    assert stops(["rm"], ["env", "rm", "x" * MAX_CHARS]) is True


@given(st.text(alphabet="ab$(){}[]<>&|;'\"`\\\n #=!*?~-1", max_size=60))
def test_any_text_is_judged_or_cannot_be(line: str) -> None:
    assert stops(["rm"], line) in (False, "?")
    assert lets_through(["rm"], line) in (False, "?")
