"""Where a server's tokens come from: the places that are asked, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.logins import use_home
from harness.scripted_http import ScriptedHttp, scripted_http
from subluminal.contracts.errors import LoginError
from subluminal.logins.challenge import MAX_CHARS, bearer
from subluminal.logins.discovery import discover, scopes_wanted

RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    use_home(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as made:
        made.json("/a/mcp", {}, 401, WWW_Authenticate="Bearer")
        yield made


def metadata(server: ScriptedHttp, issuer: str, **more: Any) -> dict[str, Any]:
    ends = {name: f"{server.origin}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
    return {"issuer": issuer, **ends, "code_challenge_methods_supported": ["S256"], **more}


def asked(server: ScriptedHttp) -> list[str]:
    return [request.target for request in server.seen if request.method == "GET"]


def test_the_challenge_comes_first(server: ScriptedHttp) -> None:
    named = f'Bearer error="invalid_token", resource_metadata="{server.origin}/named", scope="a b"'
    server.json("/a/mcp", {}, 401, WWW_Authenticate=named)
    document = {
        "resource": server.origin + "/a/mcp",
        "authorization_servers": [server.origin],
        "scopes_supported": ["c"],
    }
    server.json("/named", document)
    server.json(OAUTH, metadata(server, server.origin))
    found = discover(server.origin + "/a/mcp")
    assert asked(server) == ["/named", OAUTH]
    assert found.scopes == ("a", "b") and found.issuer == server.origin


def test_then_the_well_known_places_of_the_resource(server: ScriptedHttp) -> None:
    document = {
        "resource": server.origin,
        "authorization_servers": [server.origin + "/tenant"],
        "scopes_supported": ["c", 7, "d\n"],
    }
    server.json(RESOURCE, document)
    server.json("/tenant" + OPENID, metadata(server, server.origin + "/tenant"))
    found = discover(server.origin + "/a/mcp?x=y")
    assert asked(server) == [
        f"{RESOURCE}/a/mcp", RESOURCE, f"{OAUTH}/tenant", f"{OPENID}/tenant", f"/tenant{OPENID}",
    ]  # fmt: skip
    assert found.scopes == ("c",) and found.resource == server.origin


def test_the_request_without_a_token_is_an_initialize(server: ScriptedHttp) -> None:
    server.json(OAUTH, metadata(server, server.origin))
    discover(server.origin + "/a/mcp?tenant=1")
    first = server.seen[0]
    assert (first.method, first.target) == ("POST", "/a/mcp?tenant=1")
    assert b'"initialize"' in first.body and first.headers["Authorization"] is None
    assert "text/event-stream" in first.headers["Accept"]


def test_an_old_server_is_its_own_authorization_server(server: ScriptedHttp) -> None:
    server.json(OAUTH, metadata(server, server.origin, revocation_endpoint=server.origin + "/revoke"))
    found = discover(server.origin + "/a/mcp")
    assert asked(server) == [f"{RESOURCE}/a/mcp", RESOURCE, OAUTH]
    assert found.resource == server.origin + "/a/mcp"
    assert found.registration_endpoint is None and found.revocation_endpoint == server.origin + "/revoke"


def test_an_old_server_may_call_its_issuer_by_a_path_of_its_own(server: ScriptedHttp) -> None:
    server.json(OAUTH, metadata(server, server.origin + "/oauth"))
    assert discover(server.origin + "/a/mcp").issuer == server.origin + "/oauth"
    server.json(OAUTH, metadata(server, "https://other.example/oauth"))
    with pytest.raises(LoginError, match="another issuer"):
        discover(server.origin + "/a/mcp")


def test_a_server_without_any_document_has_the_endpoints_of_2025_03_26(server: ScriptedHttp) -> None:
    found = discover(server.origin + "/a/mcp")
    assert found.authorization_endpoint == server.origin + "/authorize"
    assert found.token_endpoint == server.origin + "/token"
    assert found.registration_endpoint == server.origin + "/register"


@pytest.mark.parametrize("status", [404, 410])
def test_an_address_where_nothing_is_gets_no_login_of_its_origin(server: ScriptedHttp, status: int) -> None:
    server.json("/a/typo", {}, status)
    server.json(OAUTH, metadata(server, server.origin))
    with pytest.raises(LoginError, match=rf"there is no server at {server.origin}/a/typo \(status {status}\)"):
        discover(server.origin + "/a/typo")


@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_that_asks_for_nothing_needs_no_login(server: ScriptedHttp, status: int) -> None:
    server.json("/a/mcp", {}, status)
    with pytest.raises(LoginError, match=rf"asks for no login \(status {status}\)"):
        discover(server.origin + "/a/mcp")


def test_a_server_that_lets_anybody_begin_may_still_have_logins(server: ScriptedHttp) -> None:
    server.json("/a/mcp", {}, 200)
    server.json(RESOURCE + "/a/mcp", {"resource": server.origin + "/a/mcp"})
    server.json(OAUTH, metadata(server, server.origin))
    assert discover(server.origin + "/a/mcp").issuer == server.origin


def test_refresh_tokens_are_asked_for_where_they_have_a_scope(server: ScriptedHttp) -> None:
    document = {"resource": server.origin, "authorization_servers": [server.origin], "scopes_supported": ["a"]}
    server.json(RESOURCE, document)
    server.json(OAUTH, metadata(server, server.origin, scopes_supported=["a", "offline_access"]))
    assert discover(server.origin + "/a/mcp").scopes == ("a", "offline_access")


def test_a_document_may_have_moved_within_its_origin(server: ScriptedHttp) -> None:
    server.routes[OAUTH] = (301, {"Location": "/moved"}, b"")
    server.json("/moved", metadata(server, server.origin))
    assert discover(server.origin + "/a/mcp").token_endpoint == server.origin + "/token_endpoint"


@pytest.mark.parametrize(
    ("header", "parameters"),
    [
        ("Bearer", {}),
        ('bearer realm="a, b=c", scope="x y"', {"realm": "a, b=c", "scope": "x y"}),
        (
            'Basic realm="x", Bearer error="e" , resource_metadata = "https://h/p?a=b"',
            {"error": "e", "resource_metadata": "https://h/p?a=b"},
        ),
        ("Negotiate abc==, Bearer a=b", {"a": "b"}),
        ('Bearer a="\\"quoted\\\\", A="second"', {"a": '"quoted\\'}),
        ('Bearer a="never closed', {"a": "never closed"}),
        ("Bearer a=", {"a": ""}),
        (",,, Bearer ,, a=b", {"a": "b"}),
        ("Basic", None),
        ("", None),
        ("a=b", None),
        ("\x00\xff@@@", None),
    ],
)
def test_a_challenge_is_read(header: str, parameters: dict[str, str] | None) -> None:
    assert bearer(header) == parameters
    assert bearer(["Basic realm=x", header]) == parameters


def test_a_challenge_is_bounded() -> None:
    assert bearer("Bearer " + "a=b, " * 100_000) == {"a": "b"}
    assert bearer(" " * MAX_CHARS + "Bearer") is None
    assert bearer('Bearer a="' + "\\" * 100_000) is not None


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ('Bearer error="insufficient_scope", scope="files:read files:write"', "files:read files:write"),
        ('Bearer error="insufficient_scope", scope="a \x1b[31m b"', "a b"),
        ('Bearer error="insufficient_scope"', None),
        ('Bearer error="invalid_token", scope="a"', None),
        ('Basic realm="x"', None),
        ("", None),
    ],
)
def test_scopes_that_a_server_wants_on_top(header: str, wanted: str | None) -> None:
    assert scopes_wanted(header) == wanted
