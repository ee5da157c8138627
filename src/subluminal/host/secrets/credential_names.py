"""Which names stand before a credential: of variables, headers, query parameters and settings."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?i)(token|secret|passw(or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|"
    r"bearer|cookie|(^|[-_])(pat|auth|key|pwd|dsn)$|connection_?string)"
)


def is_credential_name(name: str) -> bool:
    return _NAME.search(name) is not None
