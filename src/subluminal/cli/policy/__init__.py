"""`sub policy`: one module for each of its commands, imported when it is used."""

from subluminal.host.msgspec_import import import_msgspec

import_msgspec()  # before any of them does, at its full price
