"""Servers that mean harm: every row ends in a sentence, before anything is opened, sent or stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from harness.logins import logged_in, use_home
from harness.ports import nobody_listens
from harness.scripted_http import ScriptedHttp, scripted_http
from harness.waiting import pause
from subluminal.contracts.errors import LoginError, LoginUnreachable
from subluminal.logins import fetch, kept
from subluminal.logins.addresses import AddressError, named_by, read
from subluminal.logins.discovery import discover

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"
TOKEN = {"access_token": "an-access-token", "token_type": "Bearer", "expires_in": 60}


class Server(ScriptedHttp):
    """One with which a login works; tests then change a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.url = self.origin + "/mcp"
        self.resource = {"resource": self.url, "authorization_servers": [self.origin]}
        self.metadata: dict[str, Any] = {
            "issuer": self.origin,
            "authorization_endpoint": self.origin + "/authorize",
            "token_endpoint": self.origin + "/token",
            "registration_endpoint": self.origin + "/register",
            "code_challenge_methods_supported": ["S256"],
        }
        self.json("/mcp", {}, 401, WWW_Authenticate=f'Bearer resource_metadata="{self.origin}{RESOURCE}"')
        self.json("/register", {"client_id": "us"}, 201)
        self.json("/token", TOKEN)
        self.routes["/authorize"] = self.authorize
        self.publish()

    def publish(self) -> None:
        self.json(RESOURCE, self.resource)
        self.json(METADATA, self.metadata)

    def authorize(self, handler: BaseHTTPRequestHandler, **more: str) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        handler.send_response(302)
        back = urlencode({"code": "a-code", "state": query["state"], **more})
        handler.send_header("Location", f"{query['redirect_uri']}?{back}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return use_home(monkeypatch, tmp_path)


def refused(server: Server, words: str, kind: type[LoginError] = LoginError) -> str:
    with pytest.raises(kind, match=words) as caught:
        logged_in(server.url)
    assert kept.notes() == []
    sentence = f"{caught.value} {caught.value.hint or ''}"
    assert sentence.isprintable() and len(sentence) < 1000
    return sentence


def test_the_server_without_a_fault_is_logged_in_at(server: Server) -> None:
    assert logged_in(server.url)[0].issuer == server.origin


def test_a_right_issuer_in_the_redirect_is_taken(server: Server) -> None:
    server.metadata["authorization_response_iss_parameter_supported"] = True
    server.publish()
    server.routes["/authorize"] = lambda handler: server.authorize(handler, iss=server.origin)
    assert logged_in(server.url)


def test_an_issuer_that_promised_its_name_and_does_not_give_it_is_refused(server: Server) -> None:
    server.metadata["authorization_response_iss_parameter_supported"] = True
    server.publish()
    refused(server, "came back from nobody")


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "http://evil.example/authorize",
        "https://user:password@evil.example/authorize",
        "https://evil.example/authorize#x",
        "https://evil.example/\x1b[31m",
        "https://evil.example/\r\nX: y",
        "https://evil.example/a b",
        'https://evil.example/"$(id)"',
        "https://evil.example\\@other.example/",
        "https:///authorize",
        "https://[::1/authorize",
        "https://evil.example:99999/",
        "https://evil.example/" + "x" * 10_000,
        "//evil.example/authorize",
        7,
        ["https://evil.example/"],
    ],
)
@pytest.mark.parametrize("key", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
def test_an_endpoint_that_is_no_https_url_is_never_used(server: Server, key: str, url: object) -> None:
    server.metadata[key] = url
    server.publish()
    refused(server, key)
    assert not [path for path in server.paths() if path.startswith(("GET /authorize", "POST /token"))]


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("https://other.example/mcp", "tokens are for https://other.example/mcp, which is another server"),
        ("{origin}/other", "which is another server"),
        ("{origin}/mc", "which is another server"),
        ("{origin}/mcp/deeper", "which is another server"),
        ("javascript:alert(1)", "resource is not an https URL"),
        ("http://other.example/mcp", "resource is not https"),
        ("", "resource is not a URL"),
        (None, "resource is not a URL"),
        ({"a": 1}, "resource is not a URL"),
    ],
)
def test_a_resource_that_is_another_is_refused(server: Server, resource: Any, words: str) -> None:
    server.resource["resource"] = resource.format(origin=server.origin) if isinstance(resource, str) else resource
    server.publish()
    refused(server, words)


@pytest.mark.parametrize("resource", ["{origin}", "{origin}/", "{origin}/mcp", "{origin}/mcp/"])
def test_a_resource_that_covers_the_server_is_asked_for_in_its_words(server: Server, resource: str) -> None:
    server.resource["resource"] = resource.format(origin=server.origin)
    server.publish()
    logged_in(server.url)
    (body,) = [request.body.decode() for request in server.seen if request.target == "/token"]
    assert parse_qs(body)["resource"] == [server.resource["resource"]]


@pytest.mark.parametrize("issuer", ["https://other.example", "", None, 7, "\x1b[31m", "{origin}/deeper"])
def test_metadata_of_another_issuer_is_refused(server: Server, issuer: Any) -> None:
    server.metadata["issuer"] = issuer.format(origin=server.origin) if isinstance(issuer, str) else issuer
    server.publish()
    refused(server, "another issuer")


@pytest.mark.parametrize("methods", [["plain"], [], None, "S256"])
def test_a_server_without_pkce_is_refused(server: Server, methods: Any) -> None:
    server.metadata["code_challenge_methods_supported"] = methods
    server.publish()
    refused(server, "does not support PKCE with S256")


def test_authorization_servers_must_be_https_as_well(server: Server) -> None:
    for named in (["http://evil.example"], ["file:///x"], [{}], ["https://evil.example/?a=b"]):
        server.resource["authorization_servers"] = named
        server.publish()
        refused(server, "authorization_servers|has a query")


def test_a_server_elsewhere_does_not_lead_us_to_this_machine() -> None:
    far = read("https://tools.example/mcp")
    for url in ("http://127.0.0.1:8080/token", "http://localhost/token", "https://[::1]/token", "https://127.8.8.8/x"):
        with pytest.raises(AddressError, match="this machine"):
            named_by(far, url)


def huge(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(100 << 20))
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" " * (1 << 20))


def deep(handler: BaseHTTPRequestHandler) -> None:
    body = b'{"resource":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def circle(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", handler.path)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def binary(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "4")
    handler.end_headers()
    handler.wfile.write(b"\xff\xfe{}")


@pytest.mark.parametrize("route", [huge, deep, circle, binary])
@pytest.mark.parametrize("path", [METADATA, RESOURCE])
def test_documents_beyond_bounds_count_as_none(
    server: Server, path: str, route: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    server.routes[path] = route
    if path == METADATA:
        refused(server, "publishes no metadata")
    else:
        assert discover(server.url).issuer == server.origin, "the server itself is asked, as an old one would be"
    assert len(server.seen) < 20


def test_an_endpoint_that_is_missing_is_refused(server: Server) -> None:
    del server.metadata["token_endpoint"]
    server.publish()
    refused(server, "token_endpoint is not a URL")


def test_a_document_elsewhere_is_not_fetched(server: Server) -> None:
    with scripted_http() as other:
        other.json("/metadata", server.metadata)
        server.routes[METADATA] = (302, {"Location": other.origin + "/metadata"}, b"")
        refused(server, "publishes no metadata")
        assert other.seen == []


@pytest.mark.parametrize("path", ["/token", "/register"])
def test_what_is_secret_follows_no_redirect(server: Server, path: str) -> None:
    with scripted_http() as other:
        server.routes[path] = (307, {"Location": other.origin + path}, b"")
        refused(server, "gave no token" if path == "/token" else "did not register us")
        assert other.seen == []


def test_a_server_that_is_elsewhere_is_named(server: Server) -> None:
    server.routes["/mcp"] = (308, {"Location": "https://evil.example/\x1b[31m"}, b"")
    assert "evil.example" in refused(server, "sends elsewhere")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({**TOKEN, "token_type": "mac"}, "of type mac"),
        ({**TOKEN, "token_type": None}, "of type unknown"),
        ({**TOKEN, "token_type": "\x1b[31m"}, "only Bearer"),
        ({**TOKEN, "access_token": "a-token\r\nX-Evil: 1"}, "access_token holds characters"),
        ({**TOKEN, "access_token": "a-token with spaces"}, "access_token holds characters"),
        ({**TOKEN, "access_token": "tøken-of-others"}, "access_token holds characters"),
        ({**TOKEN, "access_token": "x" * 20_000}, "access_token is not a text"),
        ({**TOKEN, "access_token": "x"}, "access_token is not a text"),
        ({**TOKEN, "access_token": None}, "access_token is not a text"),
        ({**TOKEN, "access_token": ["a-token-in-a-list"]}, "access_token is not a text"),
        ({**TOKEN, "refresh_token": "evil\nrefresh-token"}, "refresh_token holds characters"),
        ({**TOKEN, "error": "invalid_grant"}, "invalid_grant"),
        ({"error": "x\x1b[31m", "error_description": "\x07" * 5000}, "gave no token: x"),
        ({"error": {"a": 1}}, "no reason that can be understood"),
        (["a", "list"], "no reason that can be understood"),
        ("text", "no reason that can be understood"),
    ],
)
def test_a_token_that_cannot_be_used_is_not_stored(server: Server, answer: Any, words: str) -> None:
    server.json("/token", answer)
    assert "a-code" not in refused(server, words)


@pytest.mark.parametrize("expires_in", [-1, 0, "0", "soon", True, None, [], {}, 1e400, "9" * 5000])
def test_a_lifetime_that_makes_no_sense_is_none_or_bounded(server: Server, expires_in: Any) -> None:
    server.routes["/token"] = (200, {}, json.dumps({**TOKEN, "expires_in": expires_in}).encode())
    if expires_in == float("inf"):
        refused(server, "no reason that can be understood")
        return
    note = logged_in(server.url)[0]
    assert note.expires_at is None


@pytest.mark.parametrize(
    "answer", [{}, {"client_id": ""}, {"client_id": "a\nb"}, {"client_id": 7}, {"client_id": "x" * 9999}]
)
def test_a_registration_that_cannot_be_used_is_refused(server: Server, answer: dict[str, Any]) -> None:
    server.json("/register", answer, 201)
    refused(server, "without a client_id")


def test_what_a_registration_says_is_shown_not_obeyed(server: Server) -> None:
    server.json("/register", {"error": "invalid_redirect_uri", "error_description": "\x1b]0;owned\x07" * 500}, 400)
    refused(server, "did not register us")


def test_a_registration_with_a_way_to_prove_it_that_we_do_not_know(server: Server) -> None:
    server.json("/register", {"client_id": "us", "client_secret": "s" * 20, "token_endpoint_auth_method": "tls"}, 201)
    refused(server, "a way that we do not know: tls")


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte whenever one may be sent, for ever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        pause(0.02)


@pytest.mark.parametrize("path", [RESOURCE, METADATA, "/register", "/token"])
def test_a_server_that_never_comes_to_an_end_is_left(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TOTAL_S", 0.3)
    server.routes[path] = drip
    refused(server, "did not answer in time", LoginUnreachable)


def test_a_server_that_is_not_there(server: Server) -> None:
    with (
        nobody_listens() as port,
        pytest.raises(LoginUnreachable, match="cannot be reached: Connection refused"),
    ):
        discover(f"http://127.0.0.1:{port}/mcp")
    with pytest.raises(LoginUnreachable, match="cannot be reached"):
        discover(server.url.replace("http:", "https:"))


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.example/mcp",
        "ftp://x/",
        "",
        "mcp",
        "https://a b/",
        "https://u:p@tools.example/",
        "https://x/\x1b[31m",
    ],
)
def test_a_url_that_no_login_can_be_for(url: str) -> None:
    with pytest.raises(LoginError, match="the server's URL") as caught:
        discover(url)
    assert str(caught.value).isprintable() and (not url or url not in str(caught.value))
