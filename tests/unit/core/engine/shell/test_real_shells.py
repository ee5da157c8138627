"""No program runs that was not seen: made-up lines in real shells, where every program is a stub that tells its name.

`HYPOTHESIS_PROFILE=fuzz` runs thousands of new lines.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.shell_lines import PROGRAMS, SHELLS, Grammar, Sandbox, sandbox
from subluminal.core.engine.commands import read_line

# A line costs a process or several: fewer than usual, unless many were asked for.
MOST = settings().max_examples
EXAMPLES = settings(
    max_examples=60 if MOST <= 100 else MOST,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as made:
        yield made


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@st.composite
def lines(draw: st.DrawFn) -> str:
    grammar = Grammar(lambda below: draw(st.integers(0, below - 1)))
    return grammar.mutated() if draw(st.booleans()) else grammar.line()


def unseen(box: Sandbox, shell: str, line: str) -> set[str]:
    """What really ran although the line was read with certainty and does not name it."""
    found = read_line(line)
    # Only what lets a call through must hold for every shell: dash is nobody's choice for an agent.
    if found.doubt or (shell == "dash" and found.strict_doubt):
        return set()
    return box.ran(shell, line) - {program.rpartition("/")[2] for program in found.programs}


@EXAMPLES
@given(line=lines())
def test_nothing_runs_that_was_not_seen(box: Sandbox, shell: str, line: str) -> None:
    assert not unseen(box, shell, line)


def test_enough_lines_are_read_with_certainty() -> None:
    grammars = [Grammar(random.Random(seed).randrange) for seed in range(400)]
    certain = [not read_line(grammar.line()).doubt for grammar in grammars]
    assert sum(certain) > len(certain) / 4


def test_the_sandbox_sees_what_runs(box: Sandbox, shell: str) -> None:
    assert box.ran(shell, "rm a; env curl | ls && $(echo git)") == set(PROGRAMS)


def test_nothing_but_stubs_is_found_in_the_sandbox(box: Sandbox, shell: str) -> None:
    assert box.ran(shell, "cat f || sed f || python3 f || rm") == {"rm"}


@pytest.mark.parametrize(
    "line",
    [
        "bash rm",
        "curl&!rm",
        "X=(a)E git",
        "2\\\n>&1 git",
        "l ${x-$(time -p(<'')\nc {}<<\"E\"\n$(ls\nE\n\"\" `''`)}",
        "echo ${$(ls)}",
        "{rm}",
        "{ ls } always { rm }\n}",
        "function { rm }",
        "x='a[$(rm)]'; echo $((x))",
        "x='psvar[$(rm)]'; exit $x",
        "x='-va[$(rm)]'; printf \"$x\" 1",
        'a=-v b=\'a[$(rm)]\'; [ "$a" "$b" ]',
        "y=(); x='($(rm))'; declare y=\"$x\"",
        "declare -i y; y='a[$(rm)]'",
        "OPTIND='a[$(rm)]'",
        "x='$(rm)'; echo ${x@P}",
        "y='psvar[$(rm)]'; echo $path[y]",
        "find . {-exec,rm} ';'",
        "ls &>f rm",
        "[[ x || rm ]]",
        "((rm))",
        "echo $'a\\' ; rm #'",
        "trap rm EXIT",
        "for x in rm; do $x; done",
        "cat <<E\n$(rm)\nE",
        'sh -c \'sh -c "sh -c \\"sh -c rm\\""\'',
    ],
)
def test_a_line_that_once_slipped_through_or_could_have(box: Sandbox, shell: str, line: str) -> None:
    assert not unseen(box, shell, line)
