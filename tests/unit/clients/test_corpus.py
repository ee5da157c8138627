"""Import and restore over a corpus of files as users really have them."""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.client_files import CORPUS, SUB, ClientHome, entries
from subluminal.clients import routed, wrapping
from subluminal.clients.codex import PASSED_VARIABLES
from subluminal.clients.registry import CLIENTS

WHOLE = sorted(path for path in CORPUS.glob("*/*") if path.parent.name != "broken")
BROKEN = sorted((CORPUS / "broken").iterdir())
# Once such a file was edited, restore cannot tell the user's own routing from ours: see test_restoring.py.
ROUTED_BY_HAND = ("already-by-hand.json",)
# A client that writes its file anew merges duplicate names.
PLAIN_JSON = [
    path
    for path in WHOLE
    if CLIENTS.get(path.parent.name, CLIENTS["claude"]).dialect == "json"
    and path.name not in (*ROUTED_BY_HAND, "duplicate-names.json")
]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def client_and_scope(path: Path) -> tuple[str, str]:
    """The directory names the client; Claude Code's user and project files are kept apart."""
    folder = path.parent.name
    if folder.startswith("claude-") and folder != "claude-desktop":
        return "claude", folder.removeprefix("claude-")
    return folder, "user"


def edited(client: str, data: bytes) -> bytes:
    """What a client may do to its file: new settings at the top. Everything else stays where it is."""
    bom, text = (b"\xef\xbb\xbf", data[3:]) if data.startswith(b"\xef\xbb\xbf") else (b"", data)
    if client == "codex":
        return bom + b'# edited\nadded = "by the client"\n' + text
    brace = text.index(b"{") + 1
    comma = b"" if text[brace:].strip() == b"}" else b","
    return bom + text[:brace] + b'\n  "added": {"by": ["the client"]}' + comma + text[brace:]


def as_the_client_reads(data: bytes) -> Any:
    """As JavaScript does: what is beyond a double is written back as null."""

    def finite(text: str) -> float | None:
        return float(text) if math.isfinite(float(text)) else None

    return json.loads(data.decode("utf-8-sig"), parse_float=finite)


def test_the_corpus_is_large_enough() -> None:
    assert len(WHOLE) >= 40
    assert len(BROKEN) >= 15


@pytest.mark.contract("IMP-001")
@pytest.mark.parametrize("path", WHOLE, ids=name_of)
def test_restore_gives_back_every_byte_and_import_keeps_every_name(home: ClientHome, path: Path) -> None:
    client, scope = client_and_scope(path)
    original = path.read_bytes()
    target = home.write(client, original, scope)
    before, old = entries(CLIENTS[client], original, scope)

    first = home.imported(client, scope)
    assert first.error is None
    imported = target.read_bytes()
    after, new = entries(CLIENTS[client], imported, scope)
    assert [entry.key for entry in new] == [entry.key for entry in old]
    statuses = [server.status for server in first.servers]
    for status, was, entry in zip(statuses, old, new, strict=True):
        found = routed.recognise(entry)
        if status in ("wrapped", "updated"):
            assert found is not None and found.sub == SUB and found.server_name == entry.name
            assert routed.meaning(was, CLIENTS[client], before) == routed.meaning(entry, CLIENTS[client], after)
        else:
            assert status in ("http", "login", "skipped")
            assert before.raw(was.node) == after.raw(entry.node)

    again = home.imported(client, scope)
    assert again.status == "unchanged"
    assert target.read_bytes() == imported

    home.restored(client, scope)
    assert target.read_bytes() == original


@pytest.mark.contract("IMP-001")
@pytest.mark.parametrize("path", [p for p in WHOLE if p.name not in ROUTED_BY_HAND], ids=name_of)
def test_what_the_client_wrote_after_the_import_survives_the_restore(home: ClientHome, path: Path) -> None:
    client, scope = client_and_scope(path)
    original = path.read_bytes()
    target = home.write(client, original, scope)
    home.imported(client, scope)
    target.write_bytes(edited(client, target.read_bytes()))

    report = home.restored(client, scope)

    assert target.read_bytes() == edited(client, original)
    assert report.exact in (False, None)


@pytest.mark.parametrize("path", WHOLE, ids=name_of)
def test_without_any_backup_every_server_is_launched_as_before(home: ClientHome, path: Path) -> None:
    client, scope = client_and_scope(path)
    original = path.read_bytes()
    target = home.write(client, original, scope)
    home.imported(client, scope)
    shutil.rmtree(home.sub_home, ignore_errors=True)

    home.restored(client, scope)

    before, old = entries(CLIENTS[client], original, scope)
    after, new = entries(CLIENTS[client], target.read_bytes(), scope)
    assert not [entry.name for entry in new if routed.recognise(entry)]
    servers = [(a, b) for a, b in zip(old, new, strict=True) if wrapping.oddity(a, CLIENTS[client], before) is None]
    servers += [(a, b) for a, b in zip(old, new, strict=True) if a.node.kind == "table" and routed.is_http(a)]
    kind = CLIENTS[client]
    assert all(routed.meaning(a, kind, before) == routed.meaning(b, kind, after) for a, b in servers)


@pytest.mark.parametrize("path", PLAIN_JSON, ids=name_of)
def test_a_client_that_writes_its_whole_file_anew_loses_nothing(home: ClientHome, path: Path) -> None:
    client, scope = client_and_scope(path)
    target = home.write(client, path.read_bytes(), scope)
    home.imported(client, scope)
    target.write_text(json.dumps(as_the_client_reads(target.read_bytes()), indent=4))

    home.restored(client, scope)

    assert as_the_client_reads(target.read_bytes()) == as_the_client_reads(path.read_bytes())


@pytest.mark.parametrize("path", [p for p in WHOLE if p.parent.name == "codex"], ids=name_of)
def test_codex_servers_see_the_identity_variables(home: ClientHome, path: Path) -> None:
    target = home.write("codex", path.read_bytes())
    report = home.imported("codex")
    servers = tomllib.loads(target.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")).get("mcp_servers", {})
    seeing = 0
    for name, server in servers.items():
        if "command" in server and name:
            names = [v["name"] if isinstance(v, dict) else v for v in server["env_vars"]]
            assert set(PASSED_VARIABLES) <= set(names)
            assert len(names) == len(set(names))
            seeing += 1
    assert seeing >= report.count("wrapped")


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_a_file_that_cannot_be_read_is_refused_with_its_line_and_left_alone(home: ClientHome, path: Path) -> None:
    client, line, _ = path.name.split("--")
    target = home.write(client, path.read_bytes())

    report = home.imported(client)

    assert report.status == "refused"
    assert report.line == int(line), report.error
    assert f"line {line}" in (report.error or "")
    assert target.read_bytes() == path.read_bytes()
    assert home.restored(client).status == "refused"
    assert target.read_bytes() == path.read_bytes()
