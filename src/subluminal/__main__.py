"""`sub`: the shim goes straight to its own module; everything else to the command line.

The shim's start-up is on every agent's critical path, so nothing is imported here that it does not need.
"""

from __future__ import annotations

import os
import sys

# The commands that start fast end before they have made so many.
COLLECT_AFTER_OBJECTS = 100_000


def main() -> int:
    argv = sys.argv
    is_shim = len(argv) > 1 and argv[1] == "shim"
    if is_shim:
        _isolate(argv)
    if "SUB_CORE" in os.environ and not _has_core():
        return 2
    if is_shim:
        from subluminal.adapters.stdio import shim

        return shim.main(argv[2:])
    return _command(argv[1:])


def _command(args: list[str]) -> int:
    """A command line. Collecting garbage was a sixth of a short command: while it imports, and when it has ended."""
    import gc

    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    from subluminal.cli.light import run

    try:
        return run(args, lambda: gc.set_threshold(*usual))
    finally:
        gc.freeze()  # the interpreter's last search for cycles finds nothing to go through


def _isolate(argv: list[str]) -> None:
    """A server's own PYTHONPATH or PYTHONHOME is meant for the server: start again without it for ourselves.

    Its modules could otherwise stand in for ours. The variables stay in the environment that the server inherits.
    """
    if not sys.flags.isolated and ("PYTHONPATH" in os.environ or "PYTHONHOME" in os.environ):
        os.execv(sys.executable, [sys.executable, "-I", "-m", "subluminal", *argv[1:]])


def _has_core() -> bool:
    """Whoever insists on one hears at once that it cannot be had, before a server is started."""
    from subluminal.native.loading import VARIABLE, CoreError, load

    try:
        load(os.environ[VARIABLE])
    except CoreError as error:
        sys.stderr.write(f"sub: {error.message}\n  {error.hint}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
