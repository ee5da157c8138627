"""The path of a request: its segments, as they were sent and as a server reads them, and what speaks against it.

Servers, and whoever stands before them, decode paths once or twice, before or after taking them apart; some drop empty
segments, dots at the end and what follows a semicolon. A path has one reading if none of this changes anything.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

# Digits as every server reads them, within 64 bits.
WHOLE_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z")
_PLAIN = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})+\Z")


class Path:
    """`raw`: segments as they were sent; `values`: decoded once. `doubt`: why there is more than one reading, if so."""

    __slots__ = ("doubt", "raw", "slash", "values")

    def __init__(self, text: str) -> None:
        """`text` begins with a slash and is visible ASCII."""
        self.raw = text[1:].split("/")
        self.slash = self.raw[-1] == ""
        if self.slash:
            self.raw.pop()
        self.values: list[str] = []
        self.doubt: str | None = None
        for segment in self.raw:
            value, doubt = _read(segment)
            self.values.append(value)
            self.doubt = self.doubt or doubt

    def generously(self) -> list[str]:
        """The segments as a server finds them that decodes twice, knows backslashes, and tidies up."""
        steps: list[str] = []
        for segment in self.raw:
            plain = _decoded(_decoded(segment.partition(";")[0]))
            for step in plain.replace("\\", "/").split("/"):
                step = step.partition(";")[0].rstrip(". \0") if step != ".." else step
                if step == "..":
                    del steps[-1:]
                elif step:
                    steps.append(step)
        return steps


def _read(segment: str) -> tuple[str, str | None]:
    if not segment:
        return "", "an empty segment in the path"
    if ";" in segment:
        return segment, "a semicolon in the path"
    if not _PLAIN.match(segment):
        return segment, "characters that a path may not have"
    if "%" not in segment:
        value = segment
    else:
        try:
            value = unquote_to_bytes(segment).decode("utf-8")
        except UnicodeDecodeError:
            return segment, "a path that is not UTF-8"
        if "/" in value or "\\" in value:
            return value, "an encoded slash in the path"
        if "%" in value:
            return value, "an encoded percent sign in the path"
        if ";" in value:
            return value, "a semicolon in the path"
        if "?" in value or "#" in value:
            return value, "an encoded ? or # in the path"
        if not value.isprintable():
            return value, "an encoded control character in the path"
    if value in (".", ".."):
        return value, "a dot segment in the path"
    if value[-1] in ". " or value[0] == " ":
        return value, "a segment that ends with a dot or a space"
    return value, None


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.encode("utf-8", "replace")).decode("utf-8", "replace")
