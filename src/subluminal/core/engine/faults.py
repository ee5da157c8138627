"""Why a rule cannot be judged for a call."""

from __future__ import annotations


class Unavailable(Exception):
    """`reason_code` for machines; `why`, a clause for people, where the code alone does not say what to mend."""

    def __init__(self, reason_code: str, why: str = "") -> None:
        super().__init__(reason_code)
        self.reason_code = reason_code
        self.why = why
