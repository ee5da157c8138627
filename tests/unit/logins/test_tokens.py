"""One token at a time: in force, expired, refused, renewed by one of many processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from harness.logins import initialize, logged_in, use_home
from harness.oauth_server import OAuthServer, oauth_server
from harness.scripted_http import ScriptedHttp, scripted_http
from subluminal.contracts.errors import LoginError, LoginUnreachable, SubluminalError
from subluminal.host.files import replace_file
from subluminal.host.secrets import keystore
from subluminal.logins import kept
from subluminal.logins.kept import Kept, Registered
from subluminal.logins.tokens import Login, find

NOW = 1_000_000.0


@pytest.fixture(scope="module")
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture
def scripted() -> Iterator[ScriptedHttp]:
    with scripted_http() as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return use_home(monkeypatch, tmp_path)


def stored(origin: str, **members: object) -> Login:
    """A login that expires at NOW and can be renewed at `/token`."""
    usual = {
        "name": "guarded",
        "url": f"{origin}/mcp",
        "access_token": "access-old-token",
        "refresh_token": "refresh-old-token",
        "obtained_at": NOW - 3600,
        "expires_at": NOW,
        "resource": f"{origin}/mcp",
        "token_endpoint": f"{origin}/token",
        "client": Registered("us"),
    }
    kept.store(Kept(**{**usual, **members}), "file")  # type: ignore[arg-type]
    login = find("guarded", f"{origin}/mcp")
    assert login is not None
    return login


def granted(scripted: ScriptedHttp, token: str = "access-new-token", **more: object) -> None:
    scripted.json("/token", {"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more})


@pytest.mark.parametrize(
    ("lifetime_s", "good_before_s"), [(3600, 30), (100, 10), (10, 1)], ids=["an hour", "a minute or two", "seconds"]
)
def test_a_token_is_out_of_force_a_moment_before_it_expires(lifetime_s: float, good_before_s: float) -> None:
    login = stored("https://tools.example", obtained_at=NOW - lifetime_s)
    assert login.access_token(NOW - good_before_s - 0.5) == "access-old-token"
    assert login.access_token(NOW - good_before_s + 0.5) is None
    assert login.access_token(NOW + 1) is None


def test_a_token_without_an_end_is_in_force_until_it_is_refused() -> None:
    assert stored("https://tools.example", expires_at=None).access_token(NOW * 10) == "access-old-token"


@pytest.mark.parametrize(
    "url",
    [
        "https://tools.example/other",
        "https://tools.example/",
        "https://tools.example/mcp/deeper",
        "https://tools.example:444/mcp",
        "https://tools.example.evil.example/mcp",
        "http://tools.example/mcp",
        "https://user@tools.example/mcp",
        "https://tools.example/mcp#fragment",
        "nonsense",
        "",
    ],
)
def test_a_login_is_for_its_name_and_its_url_alone(url: str) -> None:
    stored("https://tools.example")
    assert find("guarded", url) is None
    assert find("other", "https://tools.example/mcp") is None


@pytest.mark.parametrize(
    "url", ["https://TOOLS.example/mcp", "https://tools.example:443/mcp", "https://tools.example/mcp/", "https://tools.example/mcp?tenant=1"]
)  # fmt: skip
def test_spellings_of_the_same_url_are_the_same(url: str) -> None:
    stored("https://tools.example")
    assert find("guarded", url) is not None


def test_the_store_is_read_only_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    login = stored("https://tools.example")
    reads: list[str] = []
    load = kept.load
    monkeypatch.setattr(kept, "load", lambda ref: reads.append(ref) or load(ref))
    for _ in range(5):
        login.access_token(NOW - 100)
    assert reads == []
    stored("https://tools.example", access_token="access-from-elsewhere")
    reads.clear()
    assert login.access_token(NOW - 100) == "access-from-elsewhere"
    assert len(reads) == 1


def test_a_refused_token_is_renewed_once(server: OAuthServer) -> None:
    logged_in(server.url)
    login, other = find("guarded", server.url), find("guarded", server.url)
    assert login is not None and other is not None
    old = login.access_token(0)
    server.forget_tokens("access")
    assert old is not None and initialize(server.url, old) == 401
    before = server.requests("POST /token")
    new = login.refresh(0, old)
    assert new != old and initialize(server.url, new) == 200
    assert other.refresh(0, old) == new == other.access_token(0), "whoever comes second reads again"
    assert server.requests("POST /token") == before + 1
    newer = other.refresh(0, new)
    assert initialize(server.url, newer) == 200, "the refresh token that came with it was kept"


MANY = """
import sys
from subluminal.logins.tokens import find
login = find("guarded", sys.argv[1])
old = login.access_token(0)
print("ready", flush=True)
sys.stdin.readline()
print(login.refresh(float(sys.argv[2]), old if sys.argv[3] == "refused" else None))
"""


@pytest.mark.parametrize("why", ["refused", "expired"])
def test_sixteen_processes_ask_for_one_token(server: OAuthServer, why: str) -> None:
    note, _ = logged_in(server.url)
    assert note.expires_at is not None
    now_s = note.expires_at if why == "expired" else note.obtained_at
    before = server.requests("POST /token")
    command = [sys.executable, "-c", MANY, server.url, str(now_s), why]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(16)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    tokens = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 16
    assert len(tokens) == 1 and initialize(server.url, tokens.pop()) == 200
    assert server.requests("POST /token") == before + 1


def test_a_login_that_cannot_be_renewed_says_what_to_type(server: OAuthServer) -> None:
    logged_in(server.url)
    login = find("guarded", server.url)
    assert login is not None
    server.forget_tokens("refresh")
    before = server.requests("POST /token")
    for _ in range(3):
        with pytest.raises(LoginError, match=f"cannot be renewed.*sub login guarded --url {server.url}") as caught:
            login.refresh(0, login.access_token(0))
        assert not isinstance(caught.value, LoginUnreachable)
    assert server.requests("POST /token") == before + 1, "what is not good any more is asked for once"
    assert login.access_token(0) is not None, "whether the token itself is good, the server says"


def test_a_login_without_a_refresh_token_says_so_without_asking() -> None:
    login = stored("https://tools.example", refresh_token="")
    with pytest.raises(LoginError, match="has expired and cannot be renewed"):
        login.refresh(NOW)


def test_a_login_that_was_removed_meanwhile_is_gone() -> None:
    login = stored("https://tools.example")
    ref = kept.reference("guarded", "https://tools.example/mcp")
    assert ref is not None
    kept.remove(ref)
    with pytest.raises(LoginError, match="is gone; log in again: sub login guarded"):
        login.refresh(NOW)


@pytest.mark.parametrize("status", [500, 502, 503, 429, None])
def test_a_server_that_cannot_answer_now_costs_nothing(scripted: ScriptedHttp, status: int | None) -> None:
    login = stored(scripted.origin)
    if status is None:
        scripted.routes["/token"] = lambda handler: handler.connection.close()
    else:
        scripted.json("/token", {"error": "invalid_grant"}, status=status)
    with pytest.raises(LoginUnreachable):
        login.refresh(NOW)
    granted(scripted)
    assert login.refresh(NOW) == "access-new-token"
    assert b"refresh_token=refresh-old-token" in scripted.seen[-1].body


@pytest.mark.parametrize(
    ("given", "kept_token"), [({}, "refresh-old-token"), ({"refresh_token": "refresh-2nd-token"}, "refresh-2nd-token")]
)
def test_a_refresh_token_stays_unless_another_one_comes(
    scripted: ScriptedHttp, given: dict[str, str], kept_token: str
) -> None:
    login = stored(scripted.origin, scopes=["a", "b"])
    granted(scripted, **given)
    login.refresh(NOW)
    again = find("guarded", f"{scripted.origin}/mcp")
    assert again is not None and kept_token in again.secrets()
    assert kept.notes()[0].scopes == ["a", "b"] and kept.notes()[0].expires_at == NOW + 3600
    body = scripted.seen[-1].body.decode()
    assert "grant_type=refresh_token" in body and "client_id=us" in body and "resource=http" in body


def test_the_new_tokens_are_stored_before_anything_else_is_done(
    scripted: ScriptedHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed right after the value was written leaves a login that is good."""
    login = stored(scripted.origin)
    granted(scripted, refresh_token="refresh-2nd-token")

    def killed(*arguments: Any, **options: Any) -> None:
        """In place of the note, which comes after the value."""
        if scripted.seen:
            raise KeyboardInterrupt
        replace_file(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(kept, "replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            login.refresh(NOW)
    scripted.routes.clear()
    again = find("guarded", f"{scripted.origin}/mcp")
    assert again is not None and again.secrets() == ["access-new-token", "refresh-2nd-token"]
    assert again.refresh(NOW, "access-old-token") == "access-new-token"


@pytest.mark.parametrize("where", [kept, keystore], ids=["the note", "the value"])
def test_a_store_that_takes_nothing_is_found_before_the_refresh_token_is_spent(
    scripted: ScriptedHttp, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    login = stored(scripted.origin)
    granted(scripted, refresh_token="refresh-2nd-token")

    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(where, "replace_file", full)
    with pytest.raises(SubluminalError, match="No space left"):
        login.refresh(NOW)
    assert scripted.seen == []


def test_whoever_waits_for_the_lock_in_vain_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    login = stored("https://tools.example")
    ref = kept.reference("guarded", "https://tools.example/mcp")
    assert ref is not None
    wait = kept.locked
    monkeypatch.setattr(kept, "locked", lambda ref: wait(ref, 0.05))
    with wait(ref), pytest.raises(LoginUnreachable, match="another process"):
        login.refresh(NOW)


def test_no_sentence_holds_what_was_sent(scripted: ScriptedHttp) -> None:
    login = stored(scripted.origin, client=Registered("us", "the-client-secret", "client_secret_post"))
    told = "\x1b[31mrefresh-old-token and the-client-secret\x07" + "x" * 1000
    scripted.json("/token", {"error": "invalid_grant", "error_description": told}, status=400)
    with pytest.raises(LoginError) as caught:
        login.refresh(NOW)
    sentence = f"{caught.value} {caught.value.hint}"
    assert "refresh-old-token" not in sentence and "the-client-secret" not in sentence
    assert sentence.isprintable() and len(sentence) < 700
    assert "invalid_grant" in sentence
