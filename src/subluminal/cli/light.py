"""The quick way in: commands of `options.Command` run without click wherever their command line is an ordinary one."""

from __future__ import annotations

import sys
from collections.abc import Callable

from subluminal.cli.commands import COMMANDS
from subluminal.cli.options import Command, Group, Misused
from subluminal.contracts.errors import SubluminalError
from subluminal.reports.printable import printable


class Finished(Exception):
    """All is told; what is left is the exit code."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code


def run(args: list[str], before_others: Callable[[], None] = lambda: None) -> int:
    """`before_others`: done before click runs a command, which may live for days."""
    try:
        return _run(args, before_others)
    except KeyboardInterrupt:  # also while an error is being told
        return 130


def _run(args: list[str], before_others: Callable[[], None]) -> int:
    open_streams()
    command, rest = _command(args)
    values = None if command is None else command.parse(rest)
    if command is not None and values is not None:
        try:
            return guarded(lambda: command.work(values))
        except Misused:
            pass
    from subluminal.cli import main

    before_others()
    return main.run(args)


def _command(args: list[str]) -> tuple[Command | None, list[str]]:
    """The command that is named, and the words after it; None: it is none of `options`."""
    from importlib import import_module

    table = COMMANDS
    for number, word in enumerate(args, 1):
        module, name, _ = table.get(word, ("", "", ""))
        if not name.isupper():
            break
        found: Command | Group = getattr(import_module(module), name)
        if isinstance(found, Command):
            return found, args[number:]
        table = found.table
    return None, args


def open_streams() -> None:
    """Whoever started us may have closed 0, 1 or 2: no file we open may take that number and be written to.

    A terminal or pipe that is not UTF-8 gets an escape for a character it cannot have.
    """
    import io
    import os

    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w" if descriptor else "r")
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper) and output.encoding.lower() != "utf-8":
            output.reconfigure(errors="backslashreplace")


def guarded(work: Callable[[], int]) -> int:
    """An error becomes a sentence and an exit code."""
    try:
        code = _exit_code(work)
        sys.stdout.flush()
    except SubluminalError as error:
        for line in [f"sub: {error}", *([f"  {error.hint}"] if error.hint else [])]:
            print(printable(line, keep="\n"), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader (`| head`) has gone: that is its right, not an error. Keep the interpreter's exit flush quiet.
        sys.stdout = None
        return 0
    except OSError as error:
        for line in _told(error):
            print(printable(line), file=sys.stderr)
        sys.stdout = None
        return 2
    except Exception as error:
        # Named, not imported: most commands never load sqlite3.
        if type(error).__module__ != "sqlite3":
            raise
        print(printable(f"sub: The ledger cannot be read: {error}."), file=sys.stderr)
        print("  Run `sub doctor` to see the state of the ledger.", file=sys.stderr)
        return 2
    return code


def _exit_code(work: Callable[[], int]) -> int:
    try:
        return work()
    except Finished as finished:
        return finished.exit_code


def _told(error: OSError) -> list[str]:
    """What the system says of a file. Only the working directory has no name: it was removed under us."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return [
            "sub: The working directory is gone",
            "  It was removed or renamed: `cd` to one that exists, and try again.",
        ]
    place = f"{error.filename}: " if error.filename is not None else ""
    return [f"sub: {place}{error.strerror or error}"]
