"""Tools that differ from their pins, as the events of a run tell it: what CI fails on."""

from __future__ import annotations

from msgspec import UNSET, Struct

from subluminal.contracts import events as ev
from subluminal.surface.differences import Version, lines
from subluminal.surface.items import item_key

MAX_DRIFTS = 100


class Drift(Struct):
    """`diff`: lines to read, with nothing hidden."""

    server_name: str
    name: str
    kind: str
    fields: list[str]
    diff: list[str]

    @property
    def title(self) -> str:
        return f"{self.server_name}/{item_key(self.kind, self.name)}"


def drifts_of(event: ev.ToolsSeen) -> list[Drift]:
    found = []
    for item in event.tools.items:
        if item.pinned is not True:
            continue
        was = "" if item.was_definition is UNSET else item.was_definition
        now = "" if item.definition is UNSET else item.definition
        before = Version("" if item.was is UNSET else item.was, {}, was)
        diff = lines(before, Version(item.fingerprint, {}, now))
        fields = [] if item.changed is UNSET else item.changed
        found.append(Drift(event.tools.server_name, item.name, item.kind, fields, diff))
    return found
