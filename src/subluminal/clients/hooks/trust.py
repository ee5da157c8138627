"""Codex runs a hook of the user only if the user trusts it: by its place and by a hash of what it does.

`[hooks.state."FILE:pre_tool_use:0:0"]` in the user's `config.toml` names the file, the event, the group and the
handler; `trusted_hash` is the SHA-256 of the entry with its defaults stated, as compact JSON with sorted keys. An entry
that has no such state, or another hash, is passed over in silence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from subluminal.clients.base import Place
from subluminal.clients.document import Document
from subluminal.clients.hooks.editing import (
    Keys,
    append_section,
    inline,
    read,
    remove_section,
    trusted_table,
)
from subluminal.clients.hooks.groups import MAX_HANDLERS, STATE, Handler, hooks_table
from subluminal.clients.hooks.wanted import EVENTS, MATCHER, commands_of
from subluminal.clients.spans import Edit, Member, Node, apply
from subluminal.clients.toml_spans import sections
from subluminal.contracts.digest import sha256_hex_once
from subluminal.contracts.errors import ClientConfigError

HASH = "trusted_hash"
_DEFAULT_TIMEOUT_S = 600
# These are cut short, because the user waits for them.
_BOUNDED = {"session_end": (1, 3), "interrupt": (1, 3)}
# A matcher means nothing here, and is left out of the hash.
_UNMATCHED = frozenset(["stop", "user_prompt_submit", "interrupt"])
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class Trust(NamedTuple):
    """The state that one handler needs."""

    key: str
    hash: str


def event_label(event: str) -> str:
    """`PreToolUse` as it stands in keys and hashes: `pre_tool_use`."""
    return _WORD_START.sub("_", event).lower()


def trust_hash(event: str, matcher: str | None, handler: Mapping[str, Any]) -> str:
    label = event_label(event)
    entry = {
        "type": "command",
        "command": handler["command"],
        "timeout": _timeout(label, handler.get("timeout")),
        "async": bool(handler.get("async", False)),
    }
    if handler.get("statusMessage") is not None:
        entry["statusMessage"] = handler["statusMessage"]
    identity: dict[str, Any] = {"event_name": label, "hooks": [entry]}
    if matcher is not None and label not in _UNMATCHED:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + sha256_hex_once(text.encode("utf-8", "surrogatepass"))


def usual() -> set[str]:
    """The hashes of our entries, as they are written today."""
    commands = commands_of("codex")
    return {trust_hash(each.event, MATCHER, each.handler(commands[each.event])) for each in EVENTS["codex"]}


def _timeout(label: str, timeout: int | None) -> int:
    if label in _BOUNDED:
        low, high = _BOUNDED[label]
        return min(max(timeout if timeout is not None else low, low), high)
    return max(timeout if timeout is not None else _DEFAULT_TIMEOUT_S, 1)


def trust_of(handler: Handler, document: Document, named: str) -> Trust:
    """What Codex wants to find for a handler of the file that it calls `named`."""
    matcher = handler.group.get("matcher")
    values = {member.key: _scalar(member.node, document) for member in handler.node.members}
    found = trust_hash(handler.event.key, matcher.value if matcher is not None else None, values)
    return Trust(f"{named}:{event_label(handler.event.key)}:{handler.group_at}:{handler.at}", found)


def _scalar(node: Node, document: Document) -> Any:
    if node.kind == "string":
        return node.value
    raw = document.raw(node)
    return int(raw) if raw.isdecimal() else raw == "true"


def codex_home(place: Place) -> str:
    """The directory as Codex calls it: one that is named in the environment is resolved, the usual one is not."""
    named = place.environ.get("CODEX_HOME")
    return os.path.realpath(named) if named else place.at_home(".codex")


def called(path: str, place: Place) -> str:
    """A file in that directory, as the keys of states call it."""
    return os.path.join(codex_home(place), os.path.basename(path))


def stated(document: Document) -> dict[str, tuple[str | None, bool]]:
    """Key of a handler -> its hash, and whether it is switched on, as the file says."""
    table = trusted_table(document)
    found: dict[str, tuple[str | None, bool]] = {}
    for member in table.members if table is not None else ():
        if member.node.kind == "table":
            state = member.node.get(HASH)
            enabled = member.node.get("enabled")
            is_on = enabled is None or document.raw(enabled) != "false"
            found[member.key] = (state.value if state is not None and state.kind == "string" else None, is_on)
    return found


def trust(text: str, wanted: list[Trust], known: set[str]) -> tuple[str, Keys]:
    """The text of `config.toml` with these handlers trusted, and no other that has a hash of ours."""
    keys = {each.key for each in wanted}
    text = distrust(text, known | {each.hash for each in wanted}, [], keep=keys)
    added: Keys = []
    for each in wanted:
        text = _with_state(text, each, added)
    return text, added


def _with_state(text: str, each: Trust, added: Keys) -> str:
    document = read(text, "toml")
    table = hooks_table(document)
    states = trusted_table(document)
    member = states.member(each.key) if states is not None else None
    if member is not None:
        return apply(text, _set_hash(document, member, each.hash))
    state = {HASH: each.hash}
    if states is not None and text.startswith("{", states.start):
        return apply(text, [document.add_member(states, _quoted(each.key), inline(state))])
    if table is not None and text.startswith("{", table.start):
        added.append(["hooks", STATE])
        value = "{ " + f"{_quoted(each.key)} = {inline(state)}" + " }"
        return apply(text, [document.add_member(table, STATE, value)])
    return append_section(text, f"[hooks.{STATE}.{_quoted(each.key)}]", state)


def _quoted(key: str) -> str:
    return inline(key)


def _set_hash(document: Document, member: Member, wanted: str) -> list[Edit]:
    if member.node.kind != "table":
        raise ClientConfigError(f'has "{member.key}" in "hooks.{STATE}" that is not a table')
    found = member.node.get(HASH)
    if found is not None:
        return [] if found.value == wanted else [Edit(found.start, found.end, inline(wanted))]
    if not member.node.members:
        raise ClientConfigError(f'has an empty "{member.key}" in "hooks.{STATE}"; remove it')
    return [document.insert_after(member.node.members[-1], HASH, inline(wanted))]


def distrust(text: str, hashes: set[str], added: Keys, keep: set[str] | frozenset[str] = frozenset()) -> str:
    """The text without states that hold one of these hashes, but for those of the keys in `keep`."""
    for _ in range(MAX_HANDLERS):
        document = read(text, "toml")
        states = trusted_table(document)
        stale = [m for m in states.members if m.key not in keep and _hash_of(m) in hashes] if states else []
        if not stale:
            return _without_state(text, added)
        assert states is not None
        text = _without(document, states, stale[-1])
    raise ClientConfigError(f"holds more than {MAX_HANDLERS} trusted hooks of Subluminal; take them out by hand")


def _hash_of(member: Member) -> str | None:
    node = member.node.get(HASH) if member.node.kind == "table" else None
    return node.value if node is not None and node.kind == "string" else None


def _without(document: Document, states: Node, member: Member) -> str:
    if len(member.node.members) > 1:
        found = member.node.member(HASH)
        assert found is not None
        return apply(document.text, [document.remove_member(member.node, found)])
    if document.text.startswith("{", member.node.start):
        return apply(document.text, [document.remove_member(states, member)])
    for section in sections(document.text):
        if section.keys == ("hooks", STATE, member.key):
            return remove_section(document.text, section)
    found = member.node.member(HASH)
    assert found is not None
    return apply(document.text, [document.remove_member(member.node, found)])


def _without_state(text: str, added: Keys) -> str:
    if ["hooks", STATE] not in added:
        return text
    document = read(text, "toml")
    table, states = hooks_table(document), trusted_table(document)
    member = table.member(STATE) if table is not None else None
    if table is None or states is None or member is None or states.members:
        return text
    return apply(text, [document.remove_member(table, member)])
