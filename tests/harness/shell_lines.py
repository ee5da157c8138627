"""Shell lines made up from a grammar, and real shells that run them where only stubs can be found.

Every program of `PROGRAMS` is a stub that writes down its own name. Lines have no `/` in them, so nothing outside the
sandbox is named; the shell starts in an empty directory, with a `PATH` of stubs alone, as nobody where the tests run as
root, with bounds on time, memory, files and processes, and its process group is killed behind it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("rm", "curl", "git", "ls")
# Run the program that they are given: the real ones, found beside the stubs.
WRAPPERS = ("env", "nice", "timeout", "nohup", "xargs", "find", "stdbuf", "sh", "bash")
SHELLS = ("bash", "dash", "zsh")
NOBODY = 65534
GENEROUS_S = 10

Pick = Callable[[int], int]  # a number below the one that is given


class Sandbox:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = 0
        self.stub = root / "stub"
        self.stub.write_text('#!/bin/sh\necho "${0##*/}" >> "${0%/*}/../ran"\n')
        self.stub.chmod(0o755)
        self.links = {name: shutil.which(name) for name in WRAPPERS} | dict.fromkeys(PROGRAMS, str(self.stub))

    def ran(self, shell: str, line: str) -> set[str]:
        """The names of the stubs that this shell really ran."""
        # Of its own: what outlives a run must not be taken for a part of the next one.
        self.runs += 1
        home = self.root / str(self.runs)
        work = home / "a" / "b" / "c" / "d"
        work.mkdir(parents=True)
        stubs, log = home / "stubs", home / "ran"
        stubs.mkdir()
        for name, path in self.links.items():
            if path:
                (stubs / name).symlink_to(path)
        log.touch()
        for path in (work, log):
            path.chmod(0o777)
        options = ["-f"] if shell == "zsh" else []
        process = subprocess.Popen(
            [str(shutil.which(shell)), *options, "-c", line],
            cwd=work,
            env={"PATH": str(stubs), "HOME": str(work)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_confine,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GENEROUS_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ran = set(log.read_text().split())
        shutil.rmtree(home, ignore_errors=True)
        return ran


def _confine() -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, 2),
        (resource.RLIMIT_FSIZE, 1 << 16),
        (resource.RLIMIT_AS, 1 << 30),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))


@contextlib.contextmanager
def sandbox() -> Iterator[Sandbox]:
    # Not pytest's: nobody must be able to reach it.
    with tempfile.TemporaryDirectory(prefix="sub-shell-") as root:
        os.chmod(root, 0o755)
        yield Sandbox(Path(root))


class Grammar:
    """Lines of every construct that the splitter knows, with the programs of `PROGRAMS`.

    In a template `@L` is a list of commands, `@Q` one without single quotes, and `@P` a program. Picking nothing but
    zeros gives the shortest line.
    """

    def __init__(self, pick: Pick) -> None:
        self._pick = pick

    def line(self) -> str:
        return self._list(3)

    def mutated(self) -> str:
        line = self.line()
        for _ in range(1 + self._pick(3)):
            at = self._pick(len(line) + 1)
            what = self._pick(4)
            if what == 0:
                line = line[:at] + line[at + 1 :]
            else:
                piece = PIECES[self._pick(len(PIECES))]
                line = line[:at] + piece + line[at + (what == 1) :]
        return line

    def _one(self, choices: tuple[str, ...]) -> str:
        return choices[self._pick(len(choices))]

    def _once_in(self, times: int) -> bool:
        return self._pick(times) == times - 1

    def _filled(self, template: str, depth: int) -> str:
        text, *parts = template.split("@")
        for part in parts:
            text += {"L": self._list, "Q": self._quotable, "P": self._program}[part[0]](depth) + part[1:]
        return text

    def _list(self, depth: int) -> str:
        line = self._pipeline(depth)
        for _ in range(self._pick(3)):
            line += self._one(JOINTS) + self._pipeline(depth)
        return line

    def _quotable(self, depth: int) -> str:
        return self._list(depth - 1).replace("'", '"')

    def _pipeline(self, depth: int) -> str:
        line = (self._one(("! ", "time ", "time -p ")) if self._once_in(8) else "") + self._command(depth)
        if self._once_in(5):
            line += self._one((" | ", "|", " |& ", " |\n")) + self._command(depth)
        return line

    def _command(self, depth: int) -> str:
        if depth > 0 and self._once_in(3):
            return self._filled(self._one(DOUBTFUL_COMPOUNDS if self._once_in(12) else COMPOUNDS), depth - 1)
        return self._simple(depth)

    def _simple(self, depth: int) -> str:
        line = self._one(PREFIXES) if self._once_in(4) else ""
        line += self._one(WRAPPINGS) if self._once_in(4) else ""
        line += self._program(depth)
        for _ in range(self._pick(3)):
            argument = self._one(DOUBTFUL_ARGUMENTS if self._once_in(20) else ARGUMENTS)
            line += " " + self._filled(argument, depth - 2)
        if self._once_in(4):
            line += self._document(depth) if self._once_in(3) else self._one(SUFFIXES)
        return line

    def _program(self, depth: int) -> str:
        name = PROGRAMS[self._pick(len(PROGRAMS))]
        if not self._once_in(4):
            return name
        spelling = self._one(NOT_WRITTEN_OUT if self._once_in(12) else SPELLINGS)
        return spelling.format(name, name[0], name[1:])

    def _document(self, depth: int) -> str:
        start, end = self._one(DOCUMENTS).split("|")
        return f" {start}\n{self._one(BODIES)}\n{end}\n{self._program(depth)}"


JOINTS = (" && ", " || ", "; ", "\n", " & ", ";", "&&", "\n\n", "&")
COMPOUNDS = (
    "(@L)", "{ @L; }", "if @L; then @L; fi", "if @L\nthen @L\nelse ls; fi", "if @L; then ls; elif @L; then rm; fi",
    "for x in 1 b; do @L; done", "for x in $(@L) y\ndo @L\ndone", "while @L; do @L; break; done",
    "until @L; do @L; break; done", "case a in a) @L;; *) @L;; esac", "case $x in (a|b) @L ;; (*)\n@L\nesac",
    "f() { @L; }; f", "g () (@L); g", "function h { @L; }; h", "[[ a == a ]] && @L", "[[ -n $(@L) ]]",
    "((1+1)) && @L", "{ @L; } > f 2>&1", "(@L) < f", "cat <<E\n$(@L)\nE\n@L", "eval '@Q'", "trap '@Q' EXIT",
    "sh -c '@Q'", "x=1; y=$((x + 1)); @L", "(( x = 2 )); @L", "for ((i=0;i<2;i++)); do @L; done", "a=(1 $(@L))",
    "f() @P; f", '[ -n "$(@L)" ] && @L', "! (@L)",
)  # fmt: skip
DOUBTFUL_COMPOUNDS = (
    "coproc @L", "((@L))", "((@P); @L)", "$((@L))", 'bash -c "@P $x; @P"', "[ $(@L) ]", "{@L}", "@P() { ls; }",
)  # fmt: skip
PREFIXES = (
    "X=1 ", "X=$(ls) ", "Y='a b' ", "> f ", "2>&1 ", "X= ", "<f ", "X=`git` ", "&>f ", "<<<a ", "X=(a) ", "X+=1 ",
)  # fmt: skip
WRAPPINGS = (
    "env ", "env X=1 ", 'env -i PATH="$PATH" ', "nice ", "nice -n 5 ", "timeout 5 ", "timeout -k 1 5 ", "nohup ",
    "command ", "exec ", "builtin ", "stdbuf -o0 ", "xargs ", "xargs -n 1 ", "xargs -I{} ", "find . -exec ",
    "env -u X nice ", "time ", "command -v ", "env -S ", "eval ", "X=1 ", "command -p ", "exec -a x ", "sh ",
    "bash -c ",
)  # fmt: skip
SPELLINGS = ("\\{0}", '"{0}"', "'{0}'", "{1}''{2}", "$'{0}'", '{1}"{2}"', "{1}\\\n{2}", '$"{0}"')
NOT_WRITTEN_OUT = (
    "$(echo {0})", "`echo {0}`", "$x", "{{{0},a}}", "r?", "~{0}", "$EMPTY {0}", '"$(echo {0})"', "${{x:-{0}}}",
    "={0}",
)  # fmt: skip
ARGUMENTS = (
    "a", "-x", "'a b'", '"a $x b"', "$x", "*", "{a,b}", "$'a\\tb'", "$'a\\'b'", "$((1 + 2))", "$((x+1))", "${x:-y}",
    '"${x:-y z}"', "${#x}", "$(@L)", '"$(@L)"', "<(@L)", "`@P`", '"`@P`"', "${x:-$(@L)}", '"${x:-`@P`}"', "a\\ b",
    "\\;", "a=b", '"a\\"b"', "'a'\"'\"'b'", "a#b", "''", '""', "<<<$(ls)", ">(@L)", "\\\n", "-c", "{}", "{} +", "+",
    '"${x:-$(@L)}"', "${x:1}", "`echo \\`@P\\``", "${x#'}'}", "$(@L # )\n)", '"$(@P "$(@L)")"', "> f", "2>&1",
    "$(cat <<E\n$(@L)\nE\n)", "$(case a in a) @L;; esac)", "$x[1]",
)  # fmt: skip
DOUBTFUL_ARGUMENTS = ("$(( $(@P) + 1 ))", "$[1]", "${!x}", '"a`@P "b"`"', "a}", "}", "=(@L)", "*(e:@P:)", "${x:-<(@L)}")
SUFFIXES = (" # rm", " #", " > f", " 2>&1", " >&2", " &>f", " <<<$(ls)", " >| f", " <&-")
DOCUMENTS = (
    "<<E|E", "<<'E'|E", "<<-E|\tE", '<<"E"|E', "<<\\E|E", "<<E|E ", "<< E|E", "<<E <<F|E\nF", "<<E;|E", "<<E |E",
)  # fmt: skip
BODIES = (
    "a", "$(curl)", "`git`", "a\\", "E", "\tE", "$x ${x:-$(rm)}", "'", '"', "$((1+1))", "\\$(rm)", "E\\", "$(ls\n)",
)  # fmt: skip
PIECES = (
    "'", '"', "`", "\\", "$", "(", ")", "{", "}", "[", "]", "<", ">", "&", "|", ";", "#", "!", "=", "~", "*", "?",
    " ", "\n", "\t", "\r", "$(", "))", "((", "${", "<<", "<(", "&>", ">&", ";;", "||", "&&", "rm", "ls", " rm ",
    "\\\n", "-", "1", "E", "$'", '$"', "[[", "]]", ",", "@", ":", "+", "%", "^", "do", "in", "x", "=(",
)  # fmt: skip
