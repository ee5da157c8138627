"""A login (`sub login`) with a server behind a URL: its token is sent, renewed, and seen by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.driver import Agent
from harness.http_servers import Heard, Wire, raw_server
from harness.logins import logged_in, use_home
from harness.oauth_server import OAuthServer, oauth_server
from harness.shim import Shim
from subluminal.logins.tokens import find

NAME = "guarded"


@pytest.fixture(scope="module")
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return use_home(monkeypatch, tmp_path)


def shim(tmp_path: Path, url: str, *words: str, env: dict[str, str] | None = None) -> Shim:
    return Shim(tmp_path, NAME, ["--url", url, *words], env=env)


def begin(agent: Agent) -> dict[str, object]:
    return agent.request("initialize", {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    })  # fmt: skip


def test_a_token_that_is_good_no_more_is_renewed_once_for_all_who_wait(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    login = find(NAME, server.url)
    assert login is not None
    secrets = login.secrets()
    setup = shim(tmp_path, server.url)
    with setup.start() as agent:
        assert "result" in begin(agent)
        agent.notify("notifications/initialized")
        renewals = server.requests("POST /token")
        server.forget_tokens("access")
        ids = [agent.start_request("tools/list") for _ in range(5)]
        assert all("result" in reply for reply in agent.replies(ids))
        assert server.requests("POST /token") == renewals + 1
        assert agent.finish() == 0
        seen = b"".join(agent.received) + setup.events.raw() + agent.stderr.encode()
    again = find(NAME, server.url)
    assert again is not None and again.secrets() != secrets
    for secret in [*secrets, *again.secrets()]:
        assert secret.encode() not in seen


@pytest.mark.parametrize("made", ["before", "meanwhile"])
def test_a_token_that_its_server_tells_is_masked_in_the_record(tmp_path: Path, server: OAuthServer, made: str) -> None:
    """Also one that did not exist when the shim was started."""
    setup = shim(tmp_path, server.url)
    if made == "before":
        logged_in(server.url, NAME)
    with setup.start() as agent:
        if made == "meanwhile":
            assert "error" in begin(agent)
            logged_in(server.url, NAME)
        assert "result" in begin(agent)
        agent.notify("notifications/initialized")
        told = [agent.call_text("token_shown")]
        server.forget_tokens("access")
        told.append(agent.call_text("token_shown"))
        assert agent.finish() == 0
    assert len(set(told)) == 2 and all(token.startswith("access-") for token in told)
    recorded = setup.events.raw()
    assert recorded.count(b"[REDACTED:injected_secret]") >= 2
    assert not any(token.encode() in recorded for token in told)


def test_one_that_cannot_be_renewed_is_a_sentence_with_the_command(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    with shim(tmp_path, server.url).start() as agent:
        assert "result" in begin(agent)
        server.forget_tokens("access")
        server.forget_tokens("refresh")
        assert f"sub login {NAME}" in agent.request("tools/list")["error"]["message"]


def test_a_login_that_is_made_while_the_shim_runs_is_found(tmp_path: Path, server: OAuthServer) -> None:
    with shim(tmp_path, server.url).start() as agent:
        assert f"Tell the user to run: sub login {NAME} --url {server.url}" in str(begin(agent)["error"])
        logged_in(server.url, NAME)
        assert "result" in begin(agent)


def test_an_address_that_may_hold_a_secret_is_not_repeated_in_the_command(tmp_path: Path) -> None:
    key = "5f1d2c3b4a5968778695a4b3c2d1e0f9"

    def unauthorized(heard: Heard, wire: Wire) -> None:
        wire.head(401)

    with raw_server({"initialize": unauthorized}) as server:
        env = {"SUB_SERVER_URL": f"{server.url}?key={key}"}
        with Shim(tmp_path, NAME, ["--url-env", "SUB_SERVER_URL"], env=env).start() as agent:
            said = str(begin(agent)["error"])
    assert f"sub login {NAME} --url URL" in said and key not in said


def test_a_credential_of_the_entry_leaves_no_room_for_a_login(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    env = {"TOKEN": "not-the-right-one"}
    with shim(tmp_path, server.url, "--bearer-env", "TOKEN", env=env).start() as agent:
        assert "does not take the credential of its entry" in str(begin(agent)["error"])


def test_a_token_goes_only_where_it_was_made_for(tmp_path: Path, server: OAuthServer) -> None:
    logged_in(server.url, NAME)
    with raw_server() as other, shim(tmp_path, other.url).start() as agent:
        assert "result" in begin(agent)
        assert "authorization" not in other.heard[0].headers
