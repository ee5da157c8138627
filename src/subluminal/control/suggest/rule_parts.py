"""Pieces of which suggested rules are made."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from subluminal.control.suggest.limits.limit import Limit

# The server, the tool and the argument that something is about.
About = tuple[str, str, str]

_NO_WORD = re.compile(r"[^a-z0-9]+")
_WRITES = frozenset((
    "add", "append", "approve", "assign", "book", "cancel", "charge", "close", "comment", "commit", "copy", "create",
    "delete", "deploy", "edit", "execute", "insert", "invite", "merge", "move", "notify", "order", "pay", "post",
    "publish", "push", "put", "refund", "remove", "rename", "reply", "reset", "restart", "schedule", "send", "set",
    "submit", "transfer", "trigger", "update", "upload", "write",
))  # fmt: skip


class Drafted(Struct, eq=False):
    """One rule. `about`: the tool and the argument that it is about, for who widens."""

    rule: dict[str, Any]
    comments: list[str] = field(default_factory=list)
    about: About | None = None
    limit: Limit | None = None


def is_write(tool_name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", tool_name)
    return any(word.lower() in _WRITES for word in words)


def named(server_name: str, tool_names: list[str]) -> dict[str, Any]:
    names = list(map(glob, tool_names))
    return {"server_name": {"glob": [glob(server_name)]}, "tool_name": {"glob": names}}


def deny(
    rule_id: str, match: dict[str, Any], unless: dict[str, Any] | None = None, message: str = "", severity: str = "warn"
) -> dict[str, Any]:
    rule: dict[str, Any] = {"rule_id": rule_id, "kind": "deny"}
    if severity != "warn":
        rule["severity"] = severity
    rule["match"] = match
    if unless is not None:
        rule["unless"] = unless
    rule["effect"] = {"action": "BLOCK", **({"message": _braced(message)} if message else {})}
    return rule


def _braced(message: str) -> str:
    """A message may name fields in braces: what was seen must not be taken for one."""
    return message.replace("{", "(").replace("}", ")")


def glob(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def unique(wanted: str, ids: set[str]) -> str:
    stem = _NO_WORD.sub("-", wanted.lower()).strip("-")[:120] or "rule"
    found, number = stem, 2
    while found in ids:
        found, number = f"{stem}-{number}", number + 1
    ids.add(found)
    return found


def times(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
