"""Load the C part where it was built. `SUB_CORE=c` and `SUB_CORE=py` insist on one, and fail with a sentence."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

VARIABLE = "SUB_CORE"
# What `_core.SOURCES` must be: an extension of other sources is none. A test keeps it.
SOURCES = "20bdd0d6e0a0f68e"


class CoreError(ImportError):
    """What is asked for is not there. `hint`: what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.message, self.hint = message, hint


def load(wanted: str) -> ModuleType | None:
    """`wanted`: `c`, `py`, or nothing: then the C part where there is one. None: the twins do everything."""
    if wanted not in ("", "c", "py"):
        raise CoreError(f"{VARIABLE} is {wanted!r}, which is no core.", "Set it to `c` or `py`, or leave it out.")
    if wanted == "py":
        return None
    found = _built()
    if wanted == "c" and found is None:
        message = f"{VARIABLE} asks for the core in C, which is not built for this Python and this version."
        raise CoreError(message, f"Run `{sys.executable} -m subluminal.native.build`, or leave the variable out.")
    return found


def _built() -> ModuleType | None:
    try:
        from subluminal.native import _core
    except ImportError:  # not built, or for another Python
        return None
    return _core if _core.SOURCES == SOURCES else None
