"""Put the hook command into `SUB_HOME/bin`: in C where there is a compiler, else in Python, as byte code.

Replaced in one step and only if it works: a client may be starting it at this very moment. Byte code is for the Python
that wrote it; after a change of version, hooks fail until they are imported again.
"""

from __future__ import annotations

import marshal
import os
import shutil
import sys
from importlib.util import MAGIC_NUMBER

from subluminal.host import home
from subluminal.host.files import replace_file

COMPILED = "sub-hook"
SCRIPT = "sub-hook.pyc"
# What the hook command answers when it is asked nothing: proof that it runs here.
EXIT_NOT_ASKED = 3
_FLAGS = ("-O2", "-Wall", "-Wextra", "-s")
_COMPILE_S = 60
_TRY_S = 10


def build_client(sub_home: str | None = None, *, compiler: str | None = "cc") -> str:
    """The path of what was put there. `compiler` None: that in Python. OSError: the home cannot be written."""
    where = home.ensure_private_dir(home.bin_dir(sub_home), sub_home)
    script = os.path.join(where, SCRIPT)
    replace_file(script, _byte_code(_source("client.py")), mode=0o700)
    compiled = os.path.join(where, COMPILED)
    if compiler is not None and (found := _found(compiler)) is not None:
        binary = _compiled(found, where)
        if binary is not None:
            replace_file(compiled, binary, mode=0o700)
            return compiled
    try:
        os.unlink(compiled)  # of another machine, or another time
    except FileNotFoundError:
        pass
    return script


def client_words(sub_home: str) -> list[str]:
    """How the hook command is started, as it was last built; before the first time, as it would be."""
    where = home.bin_dir(sub_home)
    compiled, script = os.path.join(where, COMPILED), os.path.join(where, SCRIPT)
    if os.access(compiled, os.X_OK) or (not os.path.exists(script) and _found("cc") is not None):
        return [compiled]
    # Without the way through a virtual environment, which it does not need.
    python = getattr(sys, "_base_executable", None) or sys.executable
    return [python, "-I", "-S", "-E", script]


def _found(compiler: str) -> str | None:
    return shutil.which(compiler) if sys.platform == "linux" else None


def _compiled(compiler: str, where: str) -> bytes | None:
    """The bytes of a binary that was tried; None where there is none, for whatever reason."""
    import subprocess  # to build it, and not for those who ask where it lies

    draft = os.path.join(where, f".{COMPILED}.{os.urandom(6).hex()}")
    try:
        command = [compiler, *_FLAGS, "-x", "c", "-", "-o", draft]
        made = subprocess.run(command, input=_source("client.c"), capture_output=True, timeout=_COMPILE_S, check=False)
        if made.returncode != 0:
            return None
        tried = subprocess.run([draft], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S, check=False)
        if tried.returncode != EXIT_NOT_ASKED:
            return None
        with open(draft, "rb") as file:
            return file.read()
    except (OSError, subprocess.SubprocessError):
        return None
    finally:
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass


def _byte_code(source: bytes) -> bytes:
    """As of a file that never changes: whoever starts it has no source to compare it with."""
    code = compile(source, SCRIPT, "exec", dont_inherit=True, optimize=2)
    return MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


def _source(name: str) -> bytes:
    from importlib.resources import files

    return files("subluminal.adapters.hook").joinpath(name).read_bytes()
