"""References that a client fills in (`${VAR}`, `${VAR:-word}`, `${env:VAR}`, `{env:VAR}`), from an environment at hand.

Others (`${input:key}`, `$VAR`) stand as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}|\{env:(\w+)\}")


def filled_in(text: str, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return environ.get(match[1] or match[3]) or (match[2] if match[2] is not None else match[0])

    return _REFERENCE.sub(value, text)
