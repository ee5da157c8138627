"""Which input schema the arguments of a tool must fit: those of its pins, else the one that its server listed.

    schemas.learn(tool, pins, listed)
    schemas.first_error(tool, args)        a clause; None: they fit, or nothing is asked of them

What stands in a lock may have been masked, or left out for its size. Then the digest of the member says whether the
definition that was listed has the very schema that was pinned; where it has not, nothing can be judged.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.surface.items import MAX_ITEMS, digest
from subluminal.surface.schemas import Checker, Unjudged, make_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from subluminal.surface.differences import Version

_MEMBER = "inputSchema"
NOT_KEPT = "the tool's input schema is not at hand: it was too large to keep, masked, or given twice"

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class InputSchemas:
    """Of one server. `of_tools`: by a tool's name and which schemas count, until `forget`; a text says why none can be
    judged."""

    __slots__ = ("_checkers", "of_tools")

    def __init__(self) -> None:
        self.of_tools: dict[tuple[str, str], list[Checker] | str] = {}
        self._checkers: dict[bytes, Checker] = {}
        make_ready()

    def forget(self) -> None:
        self.of_tools.clear()

    def learn(self, tool: tuple[str, str], pins: Sequence[Version], listed: Version | None) -> None:
        """Pins count, all of them; where there are none, what was `listed`."""
        try:
            texts = {schema_of(version, listed) for version in pins or (listed,) if version is not None}
            self.of_tools[tool] = [self._checker(text) for text in sorted(texts - {b""})]
        except Unjudged as fault:
            self.of_tools[tool] = str(fault)

    def first_error(self, tool: tuple[str, str], args: dict[str, Any]) -> str | None:
        known = self.of_tools[tool]
        if not known:
            return None
        try:
            if isinstance(known, str):
                raise Unjudged(known)
            for checker in known:
                error = checker.first_error(args)
                if error is not None:
                    return error
        except Unjudged as fault:
            raise Unavailable(UNJUDGED_ARGS, str(fault)) from None
        return None

    def _checker(self, text: bytes) -> Checker:
        if text not in self._checkers:
            if len(self._checkers) >= MAX_ITEMS:
                self._checkers.clear()
            self._checkers[text] = Checker(text)
        return self._checkers[text]


def schema_of(version: Version, listed: Version | None) -> bytes:
    """In canonical form; nothing where it asks nothing. Unjudged: it is not at hand."""
    wanted = version.fields.get(_MEMBER)
    if wanted is None and version.fields:
        return b""
    for each in (version, listed):
        text = None if each is None else _member(each.definition)
        if text is not None and digest(text) == wanted:
            return text
    raise Unjudged(NOT_KEPT)


def _member(definition: str) -> bytes | None:
    try:
        return canonical_bytes(bytes(_members(definition)[_MEMBER]))
    except (msgspec.MsgspecError, KeyError, CanonicalError):
        return None
