"""Generated files of every layout with URLs in them: import and an entry-by-entry restore are exact inverses."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.client_files import SUB
from harness.jsonc_texts import written
from subluminal.clients import routed, wrapping
from subluminal.clients.base import Client
from subluminal.clients.registry import CLIENTS
from subluminal.clients.remote import routing, unrouting
from subluminal.clients.remote.reading import Remote, read_entry
from subluminal.clients.spans import apply

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
URLS = st.sampled_from(
    ["https://e.test/mcp", "http://u:p@127.0.0.1:1/", "${BASE}/x?token=${T}", "https://e.test/?q=1#f"]
)
HEADERS = st.dictionaries(
    st.sampled_from(["Authorization", "X-A", "x_a", "X.B", "cookie", "Accept"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=6),
    max_size=3,
)
ENTRIES = st.fixed_dictionaries(
    {"url": URLS},
    optional={
        "type": st.sampled_from(["http", "sse", "streamable-http"]),
        "headers": HEADERS,
        "timeout": st.integers(),
        "oauth": st.just(False),
        "note": NAMES,
    },
).flatmap(lambda entry: st.permutations(list(entry.items())).map(dict))


def route(client: Client, text: str) -> tuple[str, dict[Any, Any]]:
    document = client.read(text)
    edits, records = [], {}
    for entry in client.entries(document, "user"):
        remote = read_entry(entry, client, document)
        assert isinstance(remote, Remote), remote
        changes, records[entry.key] = routing.wrap(entry, client, document, SUB, remote)
        edits += changes
    after = apply(text, edits)
    wrapping.check(client, "user", document, client.read(after), set(records))
    return after, records


def unroute(client: Client, text: str, records: dict[Any, Any]) -> str:
    document = client.read(text)
    edits = []
    for entry in client.entries(document, "user"):
        found = routed.recognise(entry)
        assert found is not None and found.is_remote and found.server_name == entry.name
        assert unrouting.irreversible(entry, found, client) is None
        edits += unrouting.unwrap(entry, found, client, document, records.get(entry.key))
    after = apply(text, edits)
    wrapping.check(client, "user", document, client.read(after), {e.key for e in client.entries(document, "user")})
    return after


@settings(max_examples=80, deadline=None, derandomize=True)
@given(written(st.fixed_dictionaries({"mcpServers": st.dictionaries(NAMES, ENTRIES, max_size=3)})))
def test_json_with_comments(case: tuple[str, Any]) -> None:
    text, value = case
    client = CLIENTS["cursor"]
    changed, records = route(client, text)
    assert unroute(client, changed, records) == text
    again = client.read(unroute(client, changed, {}))  # without any record the meaning is kept
    assert [entry.name for entry in client.entries(again, "user")] == list(value["mcpServers"])


BLANK = st.text(" \t", max_size=2)
COMMENTS = st.sampled_from(["", "", ' # note, with [brackets] "and" = quotes', "#"])
CODEX = st.fixed_dictionaries(
    {"url": URLS},
    optional={
        "http_headers": HEADERS,
        "env_http_headers": st.dictionaries(st.sampled_from(["X-U", "X.V"]), st.sampled_from(["VU", "VV"]), min_size=1),
        "bearer_token_env_var": st.just("TOKEN"),
        "tool_timeout_sec": st.just(60),
        "scopes": st.just(["a", "b"]),
        "oauth": st.just({"client_id": "c", "x": "y"}),
    },
).flatmap(lambda entry: st.permutations(list(entry.items())).map(dict))


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines = ["[mcp_servers]"] if draw(st.booleans()) else []
    nested = not lines

    def key(name: str) -> str:
        bare = all(c.isalnum() or c in "-_" for c in name) and name.isascii()
        return name if bare and draw(st.booleans()) else json.dumps(name)

    def value(item: Any) -> str:
        if isinstance(item, dict):
            inside = ",".join(f"{draw(BLANK)}{key(k)}{draw(BLANK)}={draw(BLANK)}{value(v)}" for k, v in item.items())
            return "{" + inside + draw(BLANK) + "}"
        return json.dumps(item) if "'" in str(item) or not isinstance(item, str) else f"'{item}'"

    for number, entry in enumerate(draw(st.lists(CODEX, max_size=3))):
        name = key(f"s {number}" if draw(st.booleans()) else f"s{number}")
        form = (
            draw(st.sampled_from(["header", "header", "subtables"]))
            if nested
            else draw(st.sampled_from(["inline", "dotted"]))
        )
        if form == "inline":
            lines.append(f"{name} = {value(entry)}")
            continue
        prefix = "" if nested else name + "."
        tables = [k for k, v in entry.items() if isinstance(v, dict) and v and form == "subtables"]
        if nested:
            lines.append(f"{draw(BLANK)}[mcp_servers.{name}]{draw(COMMENTS)}")
        for k, v in entry.items():
            if isinstance(v, dict) and v and k not in tables and draw(st.booleans()):
                lines += [f"{prefix}{k}.{key(n)} = {value(x)}{draw(COMMENTS)}" for n, x in v.items()]
            elif k not in tables:
                lines.append(f"{prefix}{k}{draw(BLANK)}={draw(BLANK)}{value(v)}{draw(COMMENTS)}")
        for k in tables:
            lines.append(f"[mcp_servers.{name}.{k}]{draw(COMMENTS)}")
            lines += [f"{key(n)} = {value(x)}{draw(COMMENTS)}" for n, x in entry[k].items()]
    return draw(st.sampled_from(["", "\ufeff"])) + newline.join(lines) + draw(st.sampled_from(["", newline]))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(toml_files())
def test_toml(text: str) -> None:
    client = CLIENTS["codex"]
    changed, records = route(client, text)
    tomllib.loads(changed.removeprefix("\ufeff"))
    assert unroute(client, changed, records) == text
    unroute(client, changed, {})
