"""Logins at a real authorization server with a real MCP server behind it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from harness.keychain import FILE
from harness.logins import initialize, logged_in, use_home
from harness.oauth_server import CLIENT_ID, CLIENT_SECRET, OAuthServer, oauth_server
from harness.ports import free_port
from subluminal.contracts.errors import LoginError
from subluminal.host.secrets.bindings import Binding, resolve
from subluminal.host.secrets.keystore import LOGINS, open_store
from subluminal.logins import kept
from subluminal.logins.login import keep_token, log_out
from subluminal.logins.tokens import find


@pytest.fixture(scope="module")
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return use_home(monkeypatch, tmp_path)


def token_of(server: OAuthServer, name: str = "guarded") -> str:
    login = find(name, server.url)
    assert login is not None
    token = login.access_token(0)
    assert token is not None
    return token


def test_the_token_of_a_login_opens_the_server(server: OAuthServer) -> None:
    assert initialize(server.url, None) == 401
    note, page = logged_in(server.url)
    assert initialize(server.url, token_of(server)) == 200
    assert (note.name, note.url, note.issuer) == ("guarded", server.url, server.origin)
    assert note.scopes == ["read"] and note.refreshable and note.expires_at is not None
    assert page.issuer == page.origin == page.token_origin == server.origin


def test_the_request_of_the_browser_is_bound_to_this_login_and_this_server(server: OAuthServer) -> None:
    _, page = logged_in(server.url)
    query = {name: values[0] for name, values in parse_qs(urlsplit(page.address).query).items()}
    assert query["code_challenge_method"] == "S256" and len(query["code_challenge"]) == 43
    assert query["resource"] == server.url and query["scope"] == "read" and len(query["state"]) >= 32
    assert query["redirect_uri"].startswith("http://127.0.0.1:") and query["redirect_uri"].endswith("/callback")
    again = parse_qs(urlsplit(logged_in(server.url)[1].address).query)
    assert again["state"][0] != query["state"] and again["code_challenge"][0] != query["code_challenge"]


def test_a_registration_is_used_again_while_it_fits(server: OAuthServer) -> None:
    before = server.requests("POST /register")
    logged_in(server.url)
    logged_in(server.url)
    assert server.requests("POST /register") == before + 1
    ref = kept.reference("guarded", server.url)
    assert ref is not None
    stored = kept.load(ref)
    assert stored is not None and stored.client is not None
    with socket.create_server(("127.0.0.1", stored.client.port)):
        logged_in(server.url)
    assert server.requests("POST /register") == before + 2, "the port of its redirect address was taken"


def test_a_login_for_more_keeps_what_was_there_and_registers_for_it(server: OAuthServer) -> None:
    logged_in(server.url)
    note, page = logged_in(server.url, scopes=("write",))
    assert note.scopes == list(page.scopes) == ["read", "write"]
    assert initialize(server.url, token_of(server)) == 200


def test_logout_takes_the_tokens_back_and_leaves_nothing(server: OAuthServer, home: Path) -> None:
    note, _ = logged_in(server.url)
    token = token_of(server)
    login = find("guarded", server.url)
    assert login is not None
    assert log_out(note) is True
    assert initialize(server.url, token) == 401
    assert login.access_token(0) is None and find("guarded", server.url) is None
    assert kept.notes() == []
    assert [path.suffix for path in (home / "logins").iterdir()] == [".lock"]


def test_a_client_that_was_registered_by_hand() -> None:
    port = free_port()
    with oauth_server(registration=False, callback_port=port) as server:
        with pytest.raises(LoginError, match="registers no clients") as caught:
            logged_in(server.url)
        assert "--client-id" in (caught.value.hint or "")
        logged_in(server.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, callback_port=port)
        assert initialize(server.url, token_of(server)) == 200
        logged_in(server.url, callback_port=port)
        login = find("guarded", server.url)
        assert login is not None and login.refresh(0, token_of(server)) != ""


def test_a_code_of_another_server_is_not_used() -> None:
    with oauth_server(iss="https://other.example") as server:
        with pytest.raises(LoginError, match=r"came back from https://other\.example; its code was not used"):
            logged_in(server.url)
        assert server.requests("POST /token") == 0


def test_the_store_shows_no_token_to_others(server: OAuthServer, home: Path) -> None:
    logged_in(server.url)
    token = token_of(server)
    assert (home / "logins").stat().st_mode & 0o777 == 0o700
    holding = [path for path in home.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert len(holding) == 1 and holding[0].stat().st_mode & 0o777 == 0o600
    notes = b"".join(path.read_bytes() for path in (home / "logins").glob("*.json"))
    ref = kept.reference("guarded", server.url)
    assert ref is not None
    stored = kept.load(ref)
    assert stored is not None and len(stored.secrets()) == 3
    for secret in stored.secrets():
        assert secret.encode() not in notes
        assert secret not in repr(stored) + repr(stored.client) + repr(find("guarded", server.url))


def test_no_binding_reaches_a_login(server: OAuthServer) -> None:
    logged_in(server.url)
    ref = kept.reference("guarded", server.url)
    assert ref is not None
    assert open_store("file", os.environ).refs() == []
    resolved = resolve([Binding("TOKEN", ref, "file")], dict(os.environ))
    assert resolved.secrets == [] and len(resolved.errors) == 1


def test_a_keychain_keeps_logins_apart_from_secrets(
    server: OAuthServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = use_home(monkeypatch, tmp_path, FILE)
    logged_in(server.url, source="keychain")
    token = token_of(server)
    assert initialize(server.url, token) == 200
    assert not [path for path in home.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    ref = kept.reference("guarded", server.url)
    assert ref is not None and open_store("keychain", os.environ).get(ref) is None
    logged_in(server.url, source="file")
    assert open_store("keychain", os.environ, LOGINS).get(ref) is None, "it was moved"


def test_a_token_from_elsewhere_is_kept_for_its_url_alone(server: OAuthServer) -> None:
    logged_in(server.url)
    note = keep_token("ci", server.url, token_of(server), "file")
    assert note.kind == kept.TOKEN and not note.refreshable and note.expires_at is None
    assert initialize(server.url, token_of(server, "ci")) == 200
    assert find("ci", server.origin + "/other") is None
    login = find("ci", server.url)
    assert login is not None
    with pytest.raises(LoginError, match=r"was refused and cannot be renewed; .*sub login ci .*--token-env"):
        login.refresh(0, token_of(server, "ci"))


def test_a_stored_login_of_another_server_is_not_used(server: OAuthServer, home: Path) -> None:
    note, _ = logged_in(server.url)
    ref, other = kept.reference("guarded", server.url), kept.reference("guarded", "https://evil.example/mcp")
    assert ref is not None and other is not None
    (home / "logins" / other).write_bytes((home / "logins" / ref).read_bytes())
    (home / "logins" / other).chmod(0o600)
    (home / "logins" / f"{other}.json").write_bytes(msgspec.json.encode(note))
    with pytest.raises(LoginError, match="damaged or of another server"):
        find("guarded", "https://evil.example/mcp")
