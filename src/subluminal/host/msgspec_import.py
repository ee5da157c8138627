"""Import msgspec without what most processes have no use for: 18 ms and 2.2 MB.

msgspec takes the names it wants from `typing` where typing_extensions is not installed; it needs `textwrap` to describe
types as JSON Schema, and through `uuid` the whole of `platform` for the name of the system. Here they are made to look
absent, or small, for the moment of that one import; whoever wants them later gets them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Platform:
    @staticmethod
    def system() -> str:
        return os.uname().sysname


def import_msgspec() -> None:
    if "msgspec" in sys.modules:
        return
    # None is the import system's own mark for "absent".
    stand_ins: dict[str, Any] = {"typing_extensions": None, "textwrap": object(), "platform": _Platform}
    stand_ins = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import msgspec as msgspec
    finally:
        for name in stand_ins:
            del sys.modules[name]
