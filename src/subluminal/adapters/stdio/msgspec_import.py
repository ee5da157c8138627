"""Import msgspec without typing_extensions: 15 ms and 1.8 MB that a shim need not spend.

msgspec takes the names it wants from `typing` where typing_extensions is not installed. Here it is made to look so for
the moment of that one import; whoever wants typing_extensions later gets it.
"""

from __future__ import annotations

import sys


def import_msgspec() -> None:
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the import system's own mark for "absent"
    try:
        import msgspec as msgspec
    finally:
        del sys.modules["typing_extensions"]
