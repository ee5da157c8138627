"""The quick way in: commands of `options.Command` run without click wherever their command line is an ordinary one."""

from __future__ import annotations

import sys
from collections.abc import Callable

from subluminal.contracts.errors import SubluminalError
from subluminal.reports.printable import printable

# name -> (module, attribute) of its `options.Command`.
LIGHT = {
    "hints": ("subluminal.cli.control.hints", "HINTS"),
    "query": ("subluminal.cli.record.query", "QUERY"),
    "runs": ("subluminal.cli.record.runs", "RUNS"),
    "show": ("subluminal.cli.record.show", "SHOW"),
    "tail": ("subluminal.cli.tail.command", "TAIL"),
}


def run(args: list[str]) -> int:
    try:
        return _run(args)
    except KeyboardInterrupt:  # also while an error is being told
        return 130


def _run(args: list[str]) -> int:
    open_streams()
    entry = LIGHT.get(args[0]) if args else None
    if entry is not None:
        from importlib import import_module

        command = getattr(import_module(entry[0]), entry[1])
        values = command.parse(args[1:])
        if values is not None:
            return guarded(lambda: command.work(values))
    from subluminal.cli import main

    return main.run(args)


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
        code = work()
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


def _told(error: OSError) -> list[str]:
    """What the system says of a file. Only the working directory has no name: it was removed under us."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return [
            "sub: The working directory is gone",
            "  It was removed or renamed: `cd` to one that exists, and try again.",
        ]
    place = f"{error.filename}: " if error.filename is not None else ""
    return [f"sub: {place}{error.strerror or error}"]
