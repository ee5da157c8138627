"""Programs of the harness that tests start by the thousand, compiled once: of a script, Python keeps no byte code."""

from __future__ import annotations

import functools
import os
import py_compile


@functools.cache
def compiled(path: str) -> str:
    """What runs the same as the file at `path`, and starts sooner. Written anew by each process, so never out of date;
    in one step, so whoever runs it meanwhile has the old one or the new one."""
    folder, name = os.path.split(path)
    program = os.path.join(folder, "__pycache__", f"{name}c")
    py_compile.compile(path, program, doraise=True)
    return program
