"""`sub`: the shim goes straight to its own module; everything else to the command line.

The shim's start-up is on every agent's critical path, so nothing is imported here that it does not need.
"""

from __future__ import annotations

import sys


def main() -> int:
    argv = sys.argv
    if len(argv) > 1 and argv[1] == "shim":
        _isolate(argv)
        from subluminal.adapters.stdio import shim

        return shim.main(argv[2:])
    from subluminal.cli.light import run

    return run(argv[1:])


def _isolate(argv: list[str]) -> None:
    """A server's own PYTHONPATH or PYTHONHOME is meant for the server: start again without it for ourselves.

    Its modules could otherwise stand in for ours. The variables stay in the environment that the server inherits.
    """
    import os

    if not sys.flags.isolated and ("PYTHONPATH" in os.environ or "PYTHONHOME" in os.environ):
        os.execv(sys.executable, [sys.executable, "-I", "-m", "subluminal", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
