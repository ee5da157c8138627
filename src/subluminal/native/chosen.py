"""Which core this process uses. Imported after the server was started, by the rooms that have twins."""

from __future__ import annotations

import os

from subluminal.native.loading import VARIABLE, load

core = load(os.environ.get(VARIABLE, ""))
NAME = "py" if core is None else "c"
