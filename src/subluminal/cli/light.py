"""The quick way in: commands of `options.Command` run without click wherever their command line is an ordinary one."""

from __future__ import annotations

import sys
from collections.abc import Callable

from subluminal.cli.output import printable
from subluminal.contracts.errors import SubluminalError

# name -> (module, attribute) of its `options.Command`.
LIGHT = {
    "query": ("subluminal.cli.query", "QUERY"),
    "runs": ("subluminal.cli.runs", "RUNS"),
    "show": ("subluminal.cli.show", "SHOW"),
    "tail": ("subluminal.cli.tail", "TAIL"),
}


def run(args: list[str]) -> int:
    entry = LIGHT.get(args[0]) if args else None
    if entry is not None:
        from importlib import import_module

        command = getattr(import_module(entry[0]), entry[1])
        values = command.parse(args[1:])
        if values is not None:
            return guarded(lambda: command.work(values))
    from subluminal.cli import main

    return main.run(args)


def guarded(work: Callable[[], int]) -> int:
    """An error becomes a sentence and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
    except SubluminalError as error:
        for line in [f"sub: {error}", *([f"  {error.hint}"] if error.hint else [])]:
            print("\n".join(map(printable, line.split("\n"))), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone: that is its right, not an error. Keep the interpreter's exit flush quiet.
        sys.stdout = None
        return 0
    return code
