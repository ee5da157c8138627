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
    """Lines of every construct that the splitter knows, with the programs of `PROGRAMS`."""

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
                piece = _PIECES[self._pick(len(_PIECES))]
                line = line[:at] + piece + line[at + (what == 1) :]
        return line

    def _one(self, *choices: str) -> str:
        return choices[self._pick(len(choices))]

    def _list(self, depth: int) -> str:
        line = self._pipeline(depth)
        for _ in range(self._pick(3)):
            line += self._one(" && ", " || ", "; ", "\n", " & ", ";", "&&", "\n\n") + self._pipeline(depth)
        return line

    def _pipeline(self, depth: int) -> str:
        start = self._one("", "", "", "", "! ", "time ", "time -p ")
        line = start + self._command(depth)
        if not self._pick(5):
            line += self._one(" | ", "|", " |& ", " |\n") + self._command(depth)
        return line

    def _command(self, depth: int) -> str:
        if depth <= 0 or self._pick(3):
            return self._simple(depth)
        inner = self._list(depth - 1)
        other = self._list(depth - 1)
        return self._one(
            f"({inner})",
            f"{{ {inner}; }}",
            f"if {inner}; then {other}; fi",
            f"if {inner}\nthen {other}\nelse ls; fi",
            f"if {inner}; then ls; elif {other}; then rm; fi",
            f"for x in 1 b; do {inner}; done",
            f"for x in $({other}) y\ndo {inner}\ndone",
            f"while {inner}; do {other}; break; done",
            f"until {inner}; do {other}; break; done",
            f"case a in a) {inner};; *) {other};; esac",
            f"case $x in (a|b) {inner} ;; (*)\n{other}\nesac",
            f"f() {{ {inner}; }}; f",
            f"g () ({inner}); g",
            f"function h {{ {inner}; }}; h",
            f"[[ a == a ]] && {inner}",
            f"[[ -n $({inner}) ]]",
            f"(({self._pick(9)}+1)) && {inner}",
            f"{{ {inner}; }} > f 2>&1",
            f"({inner}) < f",
            f"cat <<E\n$({inner})\nE\n{other}",
            f"eval '{self._quotable(depth)}'",
            f"trap '{self._quotable(depth)}' EXIT",
            f"sh -c '{self._quotable(depth)}'",
            f'bash -c "{self._program()} $x; {self._program()}"',
        )

    def _quotable(self, depth: int) -> str:
        return self._list(depth - 2).replace("'", '"')

    def _simple(self, depth: int) -> str:
        line = "" if self._pick(4) else self._one("X=1 ", "X=$(ls) ", "Y='a b' ", "> f ", "2>&1 ", "X= ", "<f ")
        line += ("" if self._pick(4) else self._wrapper()) + self._program()
        for _ in range(self._pick(3)):
            line += " " + self._argument(depth)
        return line + ("" if self._pick(4) else self._one(" # rm", " #", " > f", " 2>&1", " >&2", self._document()))

    def _wrapper(self) -> str:
        return self._one(
            "env ", "env X=1 ", 'env -i PATH="$PATH" ', "nice ", "nice -n 5 ", "timeout 5 ", "timeout -k 1 5 ", "nohup ",
            "command ", "exec ", "builtin ", "stdbuf -o0 ", "xargs ", "xargs -n 1 ", "xargs -I{} ", "find . -exec ",
            "env -u X nice ", "time ", "command -v ", "env -S ", "eval ", "X=1 ",
        )  # fmt: skip

    def _program(self) -> str:
        name = PROGRAMS[self._pick(len(PROGRAMS))]
        if self._pick(4):
            return name
        if self._pick(12):
            return self._one(
                f"\\{name}", f'"{name}"', f"'{name}'", f"{name[0]}''{name[1:]}", f"$'{name}'", f'{name[0]}"{name[1:]}"',
                f"{name[0]}\\\n{name[1:]}", f'$"{name}"',
            )  # fmt: skip
        return self._one(
            f"$(echo {name})", f"`echo {name}`", "$x", f"{{{name},a}}", "r?", f"~{name}", f"$EMPTY {name}",
            f'"$(echo {name})"', f"${{x:-{name}}}", f"={name}",
        )  # fmt: skip

    def _argument(self, depth: int) -> str:
        inner = self._list(depth - 2) if depth > 1 else self._program()
        return self._one(
            "a", "-x", "'a b'", '"a $x b"', "$x", "*", "{a,b}", "$'a\\tb'", "$'a\\'b'", "$((1 + 2))", "$((x+1))", "${x:-y}",
            '"${x:-y z}"', "${#x}", f"$({inner})", f'"$({inner})"', f"<({inner})", f"`{self._program()}`", f'"`{self._program()}`"',
            f"${{x:-$({inner})}}", f'"${{x:-`{self._program()}`}}"', f"$(( $({self._program()}) + 1 ))", "a\\ b", "\\;", "a=b",
            '"a\\"b"', "'a'\"'\"'b'", "a#b", "''", '""', "<<<$(ls)", f">({inner})", "\\\n", "-c", "{}", "{} +", "+", "\\;",
        )  # fmt: skip

    def _document(self) -> str:
        body = self._one("a", "$(curl)", "`git`", "a\\", "E", "\tE", "$x ${x:-$(rm)}", "'", '"', "$((1+1))", "\\$(rm)")
        start, end = self._one("<<E|E", "<<'E'|E", "<<-E|\tE", '<<"E"|E', "<<\\E|E", "<<E|E ", "<< E|E").split("|")
        return f" {start}\n{body}\n{end}\n{self._program()}"


_PIECES = (
    "'", '"', "`", "\\", "$", "(", ")", "{", "}", "[", "]", "<", ">", "&", "|", ";", "#", "!", "=", "~", "*", "?", " ", "\n",
    "\t", "\r", "$(", "))", "((", "${", "<<", "<(", "&>", ">&", ";;", "||", "&&", "rm", "ls", " rm ", "\\\n", "-", "1", "E",
    "$'", '$"', "[[", "]]", ",", "@", ":", "+", "%", "^", "do", "in", "x", "=(",
)  # fmt: skip
