"""A login (`sub login`) behind the HTTP door: the client needs none, and nobody sees the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.logins import logged_in, use_home
from harness.oauth_server import OAuthServer, oauth_server
from harness.proxy import proxy

NAME = "guarded"


@pytest.fixture(scope="module")
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return use_home(monkeypatch, tmp_path)


def test_a_token_is_renewed_for_the_client_and_masked_in_the_record(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    with proxy(tmp_path, name=NAME, url=server.url) as door:
        assert door.initialize().status == 200
        told = [door.call("token_shown").text]
        server.forget_tokens("access")
        told.append(door.call("token_shown", request_id=2).text)
    assert len(set(told)) == 2 and all(token.startswith("access-") for token in told)
    recorded = door.events.raw()
    assert recorded.count(b"[REDACTED:injected_secret]") >= 2
    assert not any(token.encode() in recorded for token in told)


def test_a_login_that_is_made_while_the_proxy_runs_is_found(tmp_path: Path, server: OAuthServer) -> None:
    with proxy(tmp_path, name=NAME, url=server.url) as door:
        refused = door.initialize()
        assert refused.status == 401 and "resource_metadata" in refused.header("www-authenticate")
        logged_in(server.url, NAME)
        assert door.initialize().status == 200
        assert door.call("add", {"a": 1, "b": 2}).text == "3"


def test_a_credential_that_the_proxy_was_given_leaves_no_room_for_a_login(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    options = ["--bearer-env", "TOKEN"]
    with proxy(tmp_path, name=NAME, url=server.url, options=options, env={"TOKEN": "not-the-right-one"}) as door:
        assert door.initialize().status == 401
