"""Build the C part beside this file: `python -m subluminal.native.build`. Needs a C compiler and Python's headers.

    build(flags=...) -> path        BuildError says why there is none
    sources_hash()                  what an extension was made of, so that no other is taken for it

Nothing of the package is imported: whoever makes a wheel runs this file before there is a package.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("messages.c", "arguments.c", "quoting.c", "credentials.c", "digests.c", "filling.c", "tables.c", "module.c")
HEADERS = ("text.h", "core.h")
FLAGS = ("-O2", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden")
_COMPILE_S = 300


class BuildError(Exception):
    """One sentence."""


def sources_hash(directory: str = HERE) -> str:
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        with open(os.path.join(directory, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def build(into: str = HERE, flags: Sequence[str] = ()) -> str:
    """The path of the extension. It appears in one step: somebody may be importing it at this moment."""
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise BuildError(f"{include} has no Python.h: install the headers of this Python (python3-dev)")
    name = f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    path = os.path.join(into, name)
    draft = f"{path}.{os.getpid()}.draft"
    command = shlex.split(os.environ.get("CC") or "cc")
    command += ["-shared", "-fPIC", *FLAGS, *flags, f'-DSUB_SOURCES="{sources_hash()}"', f"-I{include}"]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    command += [os.path.join(HERE, source) for source in SOURCES]
    try:
        done = subprocess.run([*command, "-o", draft], capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if done.returncode:
            raise BuildError(f"the compiler {command[0]} failed: {done.stderr.strip()[-2000:]}")
        os.replace(draft, path)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"the compiler {command[0]} cannot be run, or {into} cannot be written: {error}") from None
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
    return path


def main() -> int:
    try:
        print(build())
    except BuildError as error:
        print(f"sub: The C part was not built: {error}. Everything works without it.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
