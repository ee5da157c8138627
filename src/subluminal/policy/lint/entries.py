"""Entries of `path_within`, `host_in` and `command` that say something else than they seem to."""

from __future__ import annotations

from subluminal.contracts.globs import glob_fault
from subluminal.core.engine.hosts import pattern_fault
from subluminal.core.engine.paths import entry_fault
from subluminal.core.engine.shell.findings import WRITES
from subluminal.policy.lint.directories import is_everything, leaves_root
from subluminal.policy.lint.findings import shown
from subluminal.policy.lint.parts import Part, Place
from subluminal.policy.lint.reporter import Linter

_GLOB = frozenset("*?[")
_SHELL = frozenset(" \t\n|&;<>()$`\"'")


def check_entries(part: Part, linter: Linter) -> None:
    for key, entries in part.args.get("path_within", {}).items():
        for number, entry in enumerate(entries):
            _check_directory(entry, (*part.place, "args", "path_within", key, number), linter)
    for key, patterns in part.args.get("host_in", {}).items():
        for number, pattern in enumerate(patterns):
            _check_host(pattern, (*part.place, "args", "host_in", key, number), linter)
    for key, command in part.args.get("command", {}).items():
        for number, program in enumerate(command["programs"]):
            where = (*part.place, "args", "command", key, "programs", number)
            _check_program(program, where, linter, part.generous)


def _check_directory(entry: str, where: Place, linter: Linter) -> None:
    if not entry.strip():
        message = "an empty entry of path_within is no directory"
        linter.error(where, "bad-path", message, 'write "." for the repository, "~" for home')
    elif "://" in entry:
        message = f"{shown(entry)} is a URL; entries of path_within are directories"
        linter.error(where, "bad-path", message, "write the directory alone, or use host_in for hosts")
    elif _GLOB & set(entry):
        fixed = entry[: min(entry.index(char) for char in _GLOB & set(entry))].rpartition("/")[0] or "."
        message = f"{shown(entry)} is a pattern; an entry of path_within is a directory with all below it"
        linter.error(where, "bad-path", message, f"write {shown(fixed)}, or use key_glob for a pattern on the text")
    elif leaves_root(entry):
        message = f"{shown(entry)} leads out of the directory it starts from"
        linter.warn(where, "bad-path", message, "write where it leads, from / or ~")
    elif is_everything(entry):
        linter.warn(where, "matches-all", "every path lies within /", "name the directories that are meant")
    elif fault := entry_fault(entry):
        linter.error(where, "bad-path", f"{shown(entry)} {fault}", "write a directory, from / or ~ or the repository")


def _check_host(pattern: str, where: Place, linter: Linter) -> None:
    fix = f"write {shown(_host(pattern))}"
    if not pattern.strip():
        linter.error(where, "bad-host", "an empty entry of host_in is no host", 'write "*" for any')
    elif "://" in pattern or "@" in pattern or ("/" in pattern and not _is_network(pattern)):
        linter.error(where, "bad-host", f"{shown(pattern)} is a URL; host_in compares its host alone", fix)
    elif _has_port(pattern):
        linter.error(where, "bad-host", f"{shown(pattern)} has a port; host_in compares the host alone", fix)
    elif pattern != pattern.lower():
        linter.error(where, "bad-host", f"{shown(pattern)} has capital letters; hosts are compared in lower case", fix)
    elif pattern.strip("*.") == "":
        linter.warn(where, "matches-all", f"{shown(pattern)} matches every host", "use has_keys if that is meant")
    elif fault := pattern_fault(pattern):
        linter.error(where, "bad-host", f"{shown(pattern)} {fault}", fix)


def _is_network(pattern: str) -> bool:
    from ipaddress import ip_network  # few policies name addresses

    try:
        ip_network(pattern, strict=False)
    except ValueError:
        return False
    return True


def _has_port(pattern: str) -> bool:
    if pattern.startswith("["):
        return not pattern.endswith("]")
    return pattern.count(":") == 1


def _host(text: str) -> str:
    """The host that was probably meant."""
    host = text.strip().partition("://")[2] or text.strip()
    host = host.partition("/")[0].rpartition("@")[2]
    return (host if host.startswith("[") else host.partition(":")[0]).lower() or "*"


def _check_program(program: str, where: Place, linter: Linter, generous: bool) -> None:
    name = program.strip().split("/")[-1] if not _SHELL & set(program.strip()) else program.split()[0].split("/")[-1]
    if not program.strip():
        linter.error(where, "bad-program", "an empty entry of programs names no program", "write its name")
    elif program == WRITES:  # what writes to a file is listed like a program
        return
    elif _SHELL & set(program):
        message = f"{shown(program)} is a command line; programs are names, such as {shown(name)}"
        linter.error(where, "bad-program", message, f"write {shown(name)}, and key_regex for its options")
    elif generous and "/" in program and not program.startswith(("*", "./", "../")):
        message = f"{shown(program)} stands for the program by this path alone: {shown(name)} does not match it"
        linter.warn(where, "bad-program", message, f"write {shown(name)}, which is the program by any path")
    elif program == "*":
        linter.warn(where, "matches-all", "* matches every program", "use has_keys if that is meant")
    elif fault := glob_fault(program):
        linter.error(where, "bad-program", f"{shown(program)}: {fault[0]}", fault[1])
