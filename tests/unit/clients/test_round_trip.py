"""Generated files of every layout: import and an entry-by-entry restore are exact inverses, to the byte."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.client_files import SUB
from harness.jsonc_texts import written
from subluminal.clients import jsonc, routed, wrapping
from subluminal.clients.base import Client
from subluminal.clients.document import Document
from subluminal.clients.registry import CLIENTS
from subluminal.clients.spans import apply

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5) | st.sampled_from(
    ["--", "shim", "sub", "--server-name", "${HOME}/x", "C:\\x"]
)
JSON_ENTRIES = st.fixed_dictionaries(
    {"command": WORDS}, optional={"args": st.lists(WORDS, max_size=3), "env": st.dictionaries(NAMES, WORDS, max_size=2)}
)
JSON_FILES = st.fixed_dictionaries(
    {"mcpServers": st.dictionaries(NAMES, JSON_ENTRIES, max_size=3)}, optional={"other": st.lists(WORDS, max_size=2)}
)


def route(client: Client, text: str) -> tuple[str, dict[Any, Any]]:
    document = client.read(text)
    edits, records, touched = [], {}, set()
    for entry in client.entries(document, "user"):
        if routed.recognise(entry) is None and wrapping.oddity(entry, client, document) is None:
            changes, record = wrapping.wrap(entry, client, document, SUB)
            edits += changes
            records[entry.key] = record
            touched.add(entry.key)
    after = apply(text, edits)
    wrapping.check(client, "user", document, client.read(after), touched)
    return after, records


def unroute(client: Client, text: str, records: dict[Any, Any]) -> str:
    document = client.read(text)
    edits = []
    for entry in client.entries(document, "user"):
        found = routed.recognise(entry)
        if entry.key in records:
            assert found is not None and found.server_name == entry.name and found.sub == SUB
            edits += wrapping.unwrap(entry, found, client, document, records[entry.key])
    return apply(text, edits)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(written(JSON_FILES))
def test_json_with_comments(case: tuple[str, Any]) -> None:
    text, value = case
    client = CLIENTS["gemini"]
    changed, records = route(client, text)
    assert unroute(client, changed, records) == text
    after = client.read(changed)
    for entry in client.entries(after, "user"):
        if entry.key in records:
            was = value["mcpServers"][entry.name]
            assert routed.launch(entry, after) == [was["command"], *was.get("args", [])]


BLANK = st.text(" \t", max_size=2)
NEWLINE = st.sampled_from(["\n", "\r\n"])
COMMENTS = st.sampled_from(["", "", ' # note, with [brackets] "and" = quotes', "#"])


@st.composite
def toml_strings(draw: st.DrawFn, value: str) -> str:
    """One of TOML's four ways to write a string down."""
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    forms = [quoted, f'""{quoted}""']
    if not any(c == "'" or (ord(c) < 32 and c != "\t") or ord(c) == 127 for c in value):
        forms += [f"'{value}'", f"'''{value}'''"]
    return draw(st.sampled_from(forms))


@st.composite
def toml_files(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    newline = draw(NEWLINE)
    layout = draw(st.sampled_from(["header", "dotted", "inline", "mixed"]))
    servers = draw(st.dictionaries(NAMES, JSON_ENTRIES, max_size=3))

    def key(name: str) -> str:
        if name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name) and draw(st.booleans()):
            return name
        return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")

    def array(words: list[str]) -> str:
        lines = draw(st.booleans())
        gap = lambda: (draw(COMMENTS) + newline + draw(BLANK)) if lines else draw(BLANK)  # noqa: E731
        body = ",".join(gap() + draw(toml_strings(word)) + draw(BLANK) for word in words)
        return "[" + body + ("," if words and draw(st.booleans()) else "") + gap() + "]"

    def pairs(entry: dict[str, Any], prefix: str = "") -> list[str]:
        found = [f"{prefix}command{draw(BLANK)}={draw(BLANK)}{draw(toml_strings(entry['command']))}"]
        if "args" in entry:
            found.append(f"{prefix}args = {array(entry['args'])}")
        if "env" in entry:
            inside = ", ".join(f"{key(k)} = {draw(toml_strings(v))}" for k, v in entry["env"].items())
            found.append(f"{prefix}env = {{{inside}}}")
        return draw(st.permutations(found))

    lines = ['model = "x"', ""] if draw(st.booleans()) else []
    if layout in ("dotted", "inline") and servers:
        lines.append("[mcp_servers]")
    for name, entry in servers.items():
        if layout == "inline":
            lines.append(f"{key(name)} = {{ {', '.join(pairs(entry))} }}")
        elif layout == "dotted":
            lines += pairs(entry, prefix=key(name) + ".")
        else:
            lines.append(f"{draw(BLANK)}[mcp_servers.{key(name)}]{draw(COMMENTS)}")
            lines += [draw(BLANK) + pair + draw(COMMENTS) for pair in pairs(entry)]
    text = newline.join(lines) + draw(st.sampled_from(["", newline]))
    return draw(st.sampled_from(["", "\ufeff"])) + text, servers


def readable(text: str) -> bool:
    try:
        tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        return False
    return True


@settings(max_examples=100, deadline=None, derandomize=True)
@given(toml_files().filter(lambda case: readable(case[0])))
def test_toml(case: tuple[str, dict[str, Any]]) -> None:
    text, servers = case
    client = CLIENTS["codex"]
    changed, records = route(client, text)
    values = tomllib.loads(changed.removeprefix("\ufeff")).get("mcp_servers", {})
    assert list(values) == list(servers)
    assert unroute(client, changed, records) == text


def test_the_generated_literals_mean_the_same_in_both_languages() -> None:
    document = Document("{}", "json")
    for value in ("", "é", '"', "\\", "\x7f", "\x00\x1f", "😀", "\u2028", "a\nb\tc"):
        literal = document.literal(value)
        assert json.loads(literal) == value
        assert tomllib.loads("v = " + literal)["v"] == value
        assert jsonc.read(literal).root.value == value
