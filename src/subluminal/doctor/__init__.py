"""What `sub doctor` examines: one module for each area, and findings as data that any page or program can show.

Nothing here draws on a terminal or changes anything.
"""

from subluminal.host.msgspec_import import import_msgspec

import_msgspec()  # before any of them does, at its full price
