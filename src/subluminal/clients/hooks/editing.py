"""Adding our hooks to the text of a file, and taking them out again: exact inverses, in JSON and TOML.

Every step reads the text anew, so that no step has to know what the one before it moved.

In TOML a group is a section of its own at the end of the file, with a blank line before it, unless the user keeps
hooks in lists or in an inline table: then ours go there.
"""

from __future__ import annotations

import json
from typing import Any

from subluminal.clients import toml_spans
from subluminal.clients.document import Document
from subluminal.clients.hooks.groups import STATE, Handler, Known, hooks_table
from subluminal.clients.hooks.wanted import EVENTS, MATCHER, Wanted, hooks_of
from subluminal.clients.report import HookReport
from subluminal.clients.spans import Edit, Member, Node, apply
from subluminal.contracts.errors import ClientConfigError

Keys = list[list[str]]
_INDENT = "  "


def read(text: str, dialect: str) -> Document:
    return Document(text, dialect, (("hooks",),))


def install(text: str, dialect: str, client: str, known: Known) -> tuple[str, list[HookReport], Keys]:
    """The text with one hook of ours on each event, what became of each, and the keys that were not there before."""
    reports: list[HookReport] = []
    added: Keys = []
    for wanted in EVENTS[client]:
        text, status = _with_hook(text, dialect, wanted, known, added)
        reports.append(HookReport(wanted.event, status))
    return text, reports, added


def whole_file(client: str) -> tuple[str, list[HookReport], Keys]:
    """The same for a JSON file that has nothing in it."""
    table = hooks_of(client)
    keys = [["hooks"], *(["hooks", event] for event in table)]
    text = json.dumps({"hooks": table}, indent=_INDENT, ensure_ascii=False) + "\n"
    return text, [HookReport(event, "added") for event in table], keys


def _with_hook(text: str, dialect: str, wanted: Wanted, known: Known, added: Keys) -> tuple[str, str]:
    document = read(text, dialect)
    mine = [handler for handler in known.ours(document) if handler.event.key == wanted.event]
    before = text
    while len(mine) > 1 or (mine and not mine[0].is_alone and _matcher(mine[0]) != MATCHER):
        text = _without(document, mine[-1])
        document = read(text, dialect)
        mine = [handler for handler in known.ours(document) if handler.event.key == wanted.event]
    if not mine:
        return _add(document, wanted, known.current[wanted.event], added), "added" if text == before else "updated"
    text = apply(text, _correct(document, mine[0], wanted, known.current[wanted.event]))
    return text, "already" if text == before else "updated"


def _matcher(handler: Handler) -> str | None:
    node = handler.group.get("matcher")
    return node.value if node is not None and node.kind == "string" else None


def _correct(document: Document, handler: Handler, wanted: Wanted, command: str) -> list[Edit]:
    """What differs from an entry as it would be written today, in its place."""
    edits = _set(document, handler.node, "timeout", str(wanted.timeout))
    edits += _set(document, handler.node, "command", document.literal(command))
    edits += _set(document, handler.node, "type", document.literal("command"))
    if _matcher(handler) != MATCHER:
        edits += _set(document, handler.group, "matcher", document.literal(MATCHER))
    return edits


def _set(document: Document, table: Node, key: str, literal: str) -> list[Edit]:
    member = table.member(key)
    if member is None:
        beside = table.member("command") or table.member("hooks")
        assert beside is not None
        return [document.insert_after(beside, key, literal)]
    wanted = json.loads(literal)
    is_same = member.node.value == wanted if member.node.kind == "string" else document.raw(member.node) == literal
    return [] if is_same else [Edit(member.node.start, member.node.end, literal)]


def _add(document: Document, wanted: Wanted, command: str, added: Keys) -> str:
    group = wanted.group(command)
    table = hooks_table(document)
    event = table.member(wanted.event) if table is not None else None
    if event is not None and event.node.kind != "array":
        raise ClientConfigError(f'has "{wanted.event}" in "hooks" that is not a list')
    if document.dialect == "toml":
        return _add_toml(document, table, event, wanted.event, group, added)
    if event is not None:
        literal = _json(document, group, event.node.items[-1].start if event.node.items else event.start)
        return apply(document.text, [document.append_item(event.node, literal)])
    if table is None:
        added.append(["hooks"])
        beside = document.root.members[-1].start if document.root.members else document.root.start
        literal = _json(document, {wanted.event: [group]}, beside)
        added.append(["hooks", wanted.event])
        return apply(document.text, [document.add_member(document.root, "hooks", literal)])
    added.append(["hooks", wanted.event])
    beside = table.members[-1].start if table.members else table.start
    return apply(document.text, [document.add_member(table, wanted.event, _json(document, [group], beside))])


def _add_toml(
    document: Document, table: Node | None, event: Member | None, name: str, group: dict[str, Any], added: Keys
) -> str:
    if event is not None and document.text.startswith("[", event.node.start):
        return apply(document.text, [document.append_item(event.node, inline(group))])
    if table is not None and document.text.startswith("{", table.start):
        added.append(["hooks", name])
        return apply(document.text, [document.add_member(table, name, f"[{inline(group)}]")])
    return append_section(document.text, f"[[hooks.{name}]]", group)


def inline(value: Any) -> str:
    """A value as TOML on one line; texts are spelled as in JSON, which TOML reads alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def append_section(text: str, header: str, values: dict[str, Any]) -> str:
    """A section behind everything else. A text that ends in no newline ends in none afterwards."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = newline.join([header, *(f"{key} = {inline(value)}" for key, value in values.items())])
    if not text.removeprefix("\ufeff"):
        return text + lines + newline
    return text + newline + lines + (newline if text.endswith("\n") else "")


def remove_section(text: str, section: toml_spans.Section) -> str:
    """The inverse of `append_section`, wherever the section stands by now."""
    before, after = text[: section.start], text[section.end :]
    if not text[: section.end].endswith("\n"):
        return before.removesuffix("\n").removesuffix("\r") + after
    stripped = before.removesuffix("\n").removesuffix("\r")
    return (stripped if stripped.endswith("\n") else before) + after


def _json(document: Document, value: Any, beside: int) -> str:
    """A value as the file writes its own: on lines, indented like what it stands beside, or on one line."""
    line = document.text.rfind("\n", 0, beside) + 1
    indent = document.text[line:beside]
    if "\n" not in document.text or indent.strip(" \t\ufeff{["):
        return json.dumps(value, ensure_ascii=False)
    newline = "\r\n" if "\r\n" in document.text else "\n"
    margin = indent.replace("\ufeff", "").rstrip("{[")
    return json.dumps(value, ensure_ascii=False, indent=_unit(document)).replace("\n", newline + margin)


def _unit(document: Document) -> str:
    """One step of the file's own indentation."""
    if not document.root.members:
        return _INDENT
    start = document.root.members[0].start
    indent = document.text[document.text.rfind("\n", 0, start) + 1 : start]
    return indent if indent and not indent.strip(" \t") else _INDENT


def uninstall(text: str, dialect: str, known: Known, added: Keys) -> str:
    """The text without any hook of ours, and without what only held them."""
    while mine := known.ours(document := read(text, dialect)):
        text = _without(document, mine[-1])
    return _without_empty(text, dialect, added)


def _without(document: Document, handler: Handler) -> str:
    table = handler.event.node
    in_list = document.dialect != "toml" or document.text.startswith("[", table.start)
    if handler.is_alone:
        if in_list:
            return apply(document.text, document.remove_items(table, {handler.group_at}))
        return remove_section(document.text, _section(document, handler))
    inner = handler.group.get("hooks")
    assert inner is not None
    if in_list or document.text.startswith("[", inner.start):
        return apply(document.text, document.remove_items(inner, {handler.at}))
    return remove_section(document.text, _section(document, handler, inner=True))


def _section(document: Document, handler: Handler, *, inner: bool = False) -> toml_spans.Section:
    """The section of a group, with those of its handlers; with `inner` that of one handler."""
    keys = ("hooks", handler.event.key)
    of_event = [section for section in toml_spans.sections(document.text) if section.keys[:2] == keys]
    starts = [at for at, section in enumerate(of_event) if section.keys == keys]
    first = starts[handler.group_at]
    following = [at for at in starts if at > first]
    group = of_event[first : following[0] if following else None]
    if inner:
        return [section for section in group if section.keys == (*keys, "hooks")][handler.at]
    return group[0]._replace(end=_end_of_run(document.text, group))


def _end_of_run(text: str, group: list[toml_spans.Section]) -> int:
    """Where the sections of a group end, as far as they stand together."""
    end = group[0].end
    for section in group[1:]:
        if text[end : section.start].strip():
            raise ClientConfigError("has a hook of Subluminal that was taken apart; remove it by hand")
        end = section.end
    return end


def _without_empty(text: str, dialect: str, added: Keys) -> str:
    """Keys that an import had to write, where nothing is left in them; the innermost first."""
    for path in sorted(added, key=len, reverse=True):
        document = read(text, dialect)
        table: Node | None = document.root
        for key in path[:-1]:
            table = table.get(key) if table is not None else None
        member = table.member(path[-1]) if table is not None else None
        if table is None or member is None or member.node.items or member.node.members:
            continue
        if member.layout != "line" or document.text.startswith(("{", "["), member.node.start):
            text = apply(text, [document.remove_member(table, member)])
    return text


def trusted_table(document: Document) -> Node | None:
    table = hooks_table(document)
    state = table.get(STATE) if table is not None else None
    return state if state is not None and state.kind == "table" else None
