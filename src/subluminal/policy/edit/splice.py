"""A policy's text with one rule put in, limits raised or its version counted up: every other byte stays as it was.

Nothing is laid out anew. The parser says where things stand, text is put in there, and what comes out must read back as
exactly the values that were wanted: an editor that could change another rule would be worse than none. What cannot be
done so (a limit that several rules share by an anchor) is refused with the place, and is for a person to edit.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from msgspec import Struct

from subluminal.contracts.jsontext import quote, to_json
from subluminal.policy.document.tree import decode_text, parse_policy, plain_value
from subluminal.policy.edit.changes import Change
from subluminal.policy.lint.findings import ERROR, Finding, InvalidPolicy

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOM = b"\xef\xbb\xbf"
_LAST_NUMBER = re.compile(r"[0-9]+(?=[^0-9]*\Z)")
# Words that YAML takes for something else, or that could be: such a text is quoted.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))

Path = tuple[str | int, ...]


class Place(Struct, eq=False):
    """Where one value begins and ends in the text; `flow`: inside brackets. `end` of a collection: after its last."""

    start: int
    end: int
    line: int
    flow: bool


def changed_policy(source: bytes, filename: str, change: Change, comment: str = "") -> bytes:
    """The policy with the change, its version counted up. `comment` stands above a rule that was put in."""
    before = plain_value(parse_policy(source, filename))
    bom, text = (_BOM, decode_text(source)) if source.startswith(_BOM) else (b"", decode_text(source))
    edits: list[tuple[int, int, str]] = []
    places = _places(text)
    wanted = {**before, "version": next_version(str(before["version"])), "rules": list(before["rules"])}
    version = places[("version",)]
    edits.append((version.start, version.end, _counted_up(text[version.start : version.end])))
    number = next((n for n, rule in enumerate(before["rules"]) if rule.get("rule_id") == change.rule_id), None)
    if change.rule is not None:
        at = len(before["rules"]) if number is None else number
        written = written_rule(change.rule)
        wanted["rules"].insert(at, written)
        edits.append(_inserted(text, places, ("rules",), at, len(before["rules"]), written, comment))
    elif number is not None:
        rule = before["rules"][number]
        effect = {**rule["effect"][rule["kind"]], **change.limits}
        wanted["rules"][number] = {**rule, "effect": {**rule["effect"], rule["kind"]: effect}}
        for name, limit in change.limits.items():
            place = places.get(("rules", number, "effect", rule["kind"], name))
            if place is None:
                raise _by_hand(filename, places[("rules", number)].line, f"{name} stands elsewhere, behind an alias")
            edits.append((place.start, place.end, str(limit)))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return _proven(bom + text.encode(), filename, wanted)


def with_test(source: bytes, filename: str, case: dict[str, Any]) -> bytes:
    """A file of tests with one more, as the last."""
    before = plain_value(parse_policy(source, filename))
    bom, text = (_BOM, decode_text(source)) if source.startswith(_BOM) else (b"", decode_text(source))
    start, end, new = _inserted(text, _places(text), ("tests",), len(before["tests"]), len(before["tests"]), case, "")
    wanted = {**before, "tests": [*before["tests"], case]}
    return _proven(bom + (text[:start] + new + text[end:]).encode(), filename, wanted)


def next_version(version: str) -> str:
    """`1.4` is followed by `1.5`, `2026-01` by `2026-02`; a word gets a number."""
    return _counted_up(version)


def _counted_up(text: str) -> str:
    """The last number in it, one higher and as wide; what stands around it (quotes) stays."""
    found = _LAST_NUMBER.search(text)
    if found is None:
        closing = text[-1:] if text[-1:] in "'\"" else ""
        return text.removesuffix(closing) + "-1" + closing
    width = found.end() - found.start()
    return f"{text[: found.start()]}{int(found[0]) + 1:0{width}d}{text[found.end() :]}"


def written_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """As a person writes it: what is the default is left out."""
    effect = {name: value for name, value in rule["effect"].items() if value != ""}
    whole = {"rule_id": rule["rule_id"], "kind": rule["kind"], "match": rule["match"], "effect": effect}
    if "description" in rule:
        whole["description"] = rule["description"]
    return whole


# -- where things stand -------------------------------------------------------------------------------------------


def _places(text: str) -> dict[Path, Place]:
    """Of every value that stands in the text itself: not behind an alias, and not merged in."""
    found: dict[Path, Place] = {}
    # Of each open collection: its path, what comes next in it (a key, an index), and whether it is a mapping.
    stack: list[tuple[Path, Any, bool]] = []
    flows = 0
    for event in yaml.parse(text, Loader=_PARSER):
        mark: Any = event
        if isinstance(event, yaml.CollectionEndEvent):
            path, _, _ = stack.pop()
            flows -= found[path].flow and flows > 0
            found[path].end = mark.end_mark.index
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        is_key = bool(stack) and stack[-1][2] and stack[-1][1] is None
        if is_key:
            path, _, _ = stack[-1]
            stack[-1] = (path, event.value if isinstance(event, yaml.ScalarEvent) else object(), True)
            continue
        path = ()
        if stack:
            above, step, mapping = stack[-1]
            path = (*above, step)
            stack[-1] = (above, None if mapping else step + 1, mapping)
        is_collection = isinstance(event, yaml.CollectionStartEvent)
        flow = flows > 0 or (is_collection and bool(mark.flow_style))
        start = mark.start_mark
        found[path] = Place(start.index, mark.end_mark.index, start.line, flow)
        if is_collection:
            flows += flow
            mapping = isinstance(event, yaml.MappingStartEvent)
            stack.append((path, None if mapping else 0, mapping))
    return found


def _inserted(
    text: str, places: dict[Path, Place], listed: Path, at: int, count: int, item: dict[str, Any], comment: str
) -> tuple[int, int, str]:
    """(start, end, text) of one more item of the list at a path, as its `at`th."""
    whole = places[listed]
    newline = "\r\n" if "\r\n" in text else "\n"
    if whole.flow:
        return _in_flow(text, places, listed, at, count, to_json(item), newline)
    lines = text.split("\n")
    starts = _line_starts(lines)
    if at < count:
        line, indent = _dash(text, lines, places[(*listed, at)])
        while line > 0 and _is_comment(lines[line - 1], indent):
            line -= 1
        start, before = starts[line], ""
    else:
        _, indent = _dash(text, lines, places[(*listed, count - 1)])
        start = _after(text, places, (*listed, count - 1))
        before = "" if start == 0 or text[start - 1] == "\n" else newline
    margin = " " * indent
    noted = [f"{margin}# {line}" for line in comment.splitlines()]
    block = [*noted, *(f"{margin}{line}" for line in _block_item(item))]
    return start, start, before + newline.join(block) + newline


def _in_flow(
    text: str, places: dict[Path, Place], listed: Path, at: int, count: int, item: str, newline: str
) -> tuple[int, int, str]:
    if at < count:
        place = places[(*listed, at)]
        # On a line of its own where the others are.
        begin = text.rfind("\n", 0, place.start) + 1
        margin = text[begin : place.start]
        gap = newline + margin if margin.strip() == "" and begin > 0 else " "
        return place.start, place.start, f"{item},{gap}"
    if count == 0:
        place = places[listed]
        return place.start + 1, place.start + 1, item
    last = places[(*listed, count - 1)]
    begin = text.rfind("\n", 0, last.start) + 1
    margin = text[begin : last.start]
    gap = newline + margin if margin.strip() == "" and begin > 0 else " "
    return last.end, last.end, f",{gap}{item}"


def _dash(text: str, lines: list[str], place: Place) -> tuple[int, int]:
    """The line and the column of the dash before an item of a block: it may stand on a line above it.

    Lines are counted here: to YAML a bare CR and some characters of Unicode end one too.
    """
    line, head = text.count("\n", 0, place.start), text[text.rfind("\n", 0, place.start) + 1 : place.start]
    while line > 0 and not head.lstrip().startswith("-"):
        line -= 1
        head = lines[line]
    return line, len(head) - len(head.lstrip())


def _is_comment(line: str, indent: int) -> bool:
    """A comment that belongs to the rule below it."""
    return line.lstrip().startswith("#") and len(line) - len(line.lstrip()) >= indent


def _after(text: str, places: dict[Path, Place], path: Path) -> int:
    """The beginning of the line after all that belongs to an item: places come in the order of the text."""
    last = [place for where, place in places.items() if where[: len(path)] == path][-1]
    found = text.find("\n", max(last.end - 1, 0))
    return len(text) if found < 0 else found + 1


def _line_starts(lines: list[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


# -- how it is written --------------------------------------------------------------------------------------------


def _block_item(item: dict[str, Any]) -> list[str]:
    """Its members on lines of their own, all below them in one line each."""
    lines = [f"{name}: {_flow(value)}" for name, value in item.items()]
    return [f"{'- ' if number == 0 else '  '}{line}" for number, line in enumerate(lines)]


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _word(value) if isinstance(value, str) else to_json(value)


def _word(text: str) -> str:
    return text if _PLAIN.match(text) and text.lower() not in _WORDS else quote(text)


def _proven(source: bytes, filename: str, wanted: Any) -> bytes:
    try:
        found = plain_value(parse_policy(source, filename))
    except InvalidPolicy as invalid:
        raise _by_hand(filename, invalid.findings[0].line, "its layout cannot be edited here") from None
    if found != wanted:
        raise _by_hand(filename, 1, "the change would reach other rules as well (anchors, aliases or merges)")
    return source


def _by_hand(filename: str, line: int, why: str) -> InvalidPolicy:
    return InvalidPolicy([Finding(ERROR, "edit", why, "make the change by hand", filename, line, 1)])
