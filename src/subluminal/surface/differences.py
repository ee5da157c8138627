"""What differs between two versions of one thing: by fields, and as lines that a person reads.

Annotations that are left out are no difference: some servers leave them out when a client comes again, and what a
server does not say cannot lower a class (`standing`). Annotations that come, or say something else, are one.
"""

from __future__ import annotations

import difflib

import msgspec
from msgspec import Struct

from subluminal.surface.items import SERVER
from subluminal.surface.texts import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAY_BE_LEFT_OUT = frozenset(("annotations",))
# Of a server's own name and version: the version may change with every release, and steers nobody.
NOTED_ONLY = frozenset(("version",))
_ORDER = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
MAX_LINES = 400


class Version(Struct, eq=False):
    """As it was seen, or pinned. `definition`: canonical JSON as text; empty where it is not kept."""

    fingerprint: str
    fields: dict[str, str]
    definition: str = ""


def changed_fields(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The members that differ, the weightiest first; those that may be left out are not missed."""
    found = [
        member
        for member in {**old, **new}
        if old.get(member) != new.get(member)
        and not (member in MAY_BE_LEFT_OUT and member not in new)
        and not (kind == SERVER and member in NOTED_ONLY)
    ]
    return sorted(found, key=lambda member: (_ORDER.index(member) if member in _ORDER else len(_ORDER), member))


def is_same(kind: str, old: Version, new: Version) -> bool:
    if old.fingerprint == new.fingerprint:
        return True
    # Without members nothing tells what differs: a text, or what was not read.
    return bool(old.fields) and bool(new.fields) and not changed_fields(kind, old.fields, new.fields)


def describe(kind: str, old: Version, new: Version) -> str:
    """`description and inputSchema`: for a sentence."""
    fields = changed_fields(kind, old.fields, new.fields)
    if not fields:
        return "its text"
    shown = [visible(field, "")[:60] for field in fields[:4]]
    if len(fields) > 4:
        shown.append(f"{len(fields) - 4} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def lines(old: Version | None, new: Version) -> list[str]:
    """A unified diff of what is to be read, without its head; everything that shows nothing is spelled out."""
    before, after = [] if old is None else readable(old), readable(new)
    diff = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    return diff if len(diff) <= MAX_LINES else [*diff[:MAX_LINES], f"... {len(diff) - MAX_LINES} more lines"]


def readable(version: Version) -> list[str]:
    """Texts as the lines that they are, everything else as one line a value."""
    if not version.definition:
        return [f"(not kept: fingerprint {version.fingerprint})"]
    return list(_rows("", msgspec.json.decode(version.definition)))


def _rows(path: str, value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        keys = sorted(value, key=lambda key: (_ORDER.index(key) if not path and key in _ORDER else len(_ORDER), key))
        return [
            row for key in keys for row in _rows(f"{path}.{visible(key, '')}" if path else visible(key, ""), value[key])
        ]
    if isinstance(value, list) and value and any(isinstance(each, (dict, list)) for each in value):
        return [row for number, each in enumerate(value) for row in _rows(f"{path}[{number}]", each)]
    if isinstance(value, str):
        first, *more = visible(value).split("\n")
        return [f"{path}: {first}" if path else first, *(f"    {line}" for line in more)]
    return [f"{path}: {visible(msgspec.json.encode(value).decode(), '')}"]
