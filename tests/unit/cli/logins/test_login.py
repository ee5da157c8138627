"""`sub login`, `sub logout` as a user types them: a real server, a program as browser, no token on any stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import pytest

from harness import browser
from harness.command_line import SUB, run_sub
from harness.keychain import NONE
from harness.ledger import sub_environment
from harness.logins import initialize
from harness.oauth_server import OAuthServer, oauth_server
from harness.ports import listening
from harness.terminal import TerminalProgram

QUIET = {"PYTHON_KEYRING_BACKEND": NONE, "no_proxy": "*", "DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
TOKENS = re.compile(r"(access|refresh)-[\w-]{20}")


@pytest.fixture(scope="module")
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "sub"


def sub(home: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    result = run_sub(home, *arguments, **{**QUIET, **extra})
    assert not TOKENS.search(result.stdout + result.stderr)
    return result


def log_in(home: Path, server: OAuthServer, *more: str) -> subprocess.CompletedProcess[str]:
    result = sub(home, "login", "guarded", "--url", server.url, *more, BROWSER=browser.COMMAND)
    assert result.returncode == 0, result.stderr
    return result


def stored_token(home: Path) -> str:
    """As the door of a server finds it."""
    texts = [path.read_text() for path in (home / "logins").iterdir() if "." not in path.name]
    (found,) = [json.loads(text.partition("\n")[2]) for text in texts]
    return str(found["access_token"])


def test_a_login_and_a_logout(home: Path, server: OAuthServer) -> None:
    made = log_in(home, server)
    assert made.stdout == "" and f"{server.origin}/authorize?" in made.stderr
    assert "Logged in: guarded" in made.stderr and "NOT encrypted" in made.stderr
    token = stored_token(home)
    assert initialize(server.url, token) == 200
    listed = sub(home, "login", "--list")
    assert server.url in listed.stdout and "renewed when needed" in listed.stdout
    again = log_in(home, server)
    assert again.returncode == 0
    gone = sub(home, "logout", "guarded")
    assert gone.returncode == 0 and "taken its tokens back" in gone.stderr
    assert initialize(server.url, token) == 401
    assert "No logins" in sub(home, "login", "--list").stderr
    missing = sub(home, "logout", "guarded")
    assert missing.returncode == 2 and "there is no login for guarded" in missing.stderr


def test_programs_read_what_may_be_told(home: Path, server: OAuthServer) -> None:
    made = json.loads(log_in(home, server, "--json").stdout)
    assert made.pop("obtained_at") < made.pop("expires_at")
    assert made == {
        "name": "guarded",
        "url": server.url,
        "kind": "oauth",
        "issuer": server.origin,
        "scopes": ["read"],
        "refreshable": True,
        "source": "file",
        "encrypted": False,
    }
    listed = json.loads(sub(home, "login", "--list", "--json").stdout)
    assert listed["name"] == "guarded" and set(listed) == {*made, "obtained_at", "expires_at"}
    gone = json.loads(sub(home, "logout", "guarded", "--json").stdout)
    assert gone == {"name": "guarded", "url": server.url, "removed": True, "revoked": True}
    assert sub(home, "login", "--list", "--json").stdout == ""


def test_secrets_do_not_list_a_login(home: Path, server: OAuthServer) -> None:
    log_in(home, server)
    assert sub(home, "secrets", "list", "--json").stdout == ""
    ref = next(path.name for path in (home / "logins").iterdir() if "." not in path.name)
    assert sub(home, "secrets", "get", ref).returncode == 2


def test_a_url_is_found_by_its_name(home: Path, server: OAuthServer) -> None:
    unknown = sub(home, "login", "guarded")
    assert unknown.returncode == 2 and "sub login guarded --url URL" in unknown.stderr
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'[proxy.servers.guarded]\nurl = "{server.url}"\n')
    (home / "config.toml").chmod(0o600)
    assert sub(home, "login", "guarded", BROWSER=browser.COMMAND).returncode == 0
    (home / "config.toml").unlink()
    assert sub(home, "login", "guarded", BROWSER=browser.COMMAND).returncode == 0, "that of the login it has"


def test_a_token_from_the_environment(home: Path, server: OAuthServer) -> None:
    made = sub(home, "login", "ci", "--url", server.url, "--token-env", "MY_TOKEN", MY_TOKEN="a-token-from-elsewhere")
    assert made.returncode == 0 and "a-token-from" not in made.stdout + made.stderr
    assert stored_token(home) == "a-token-from-elsewhere"
    gone = sub(home, "logout", "ci")
    assert gone.returncode == 0 and "take it back where you got it" in gone.stderr
    for extra, words in (({}, "MY_TOKEN is not set"), ({"MY_TOKEN": "to\nken-of-mine"}, "holds characters")):
        bad = sub(home, "login", "ci", "--url", server.url, "--token-env", "MY_TOKEN", **extra)
        assert bad.returncode == 2 and words in bad.stderr and "Traceback" not in bad.stderr


class Stay(HTTPRedirectHandler):
    """Where a browser would be sent, without going there."""

    def redirect_request(self, *_: object) -> None:
        return None


def test_without_a_browser_the_redirect_is_pasted(home: Path, server: OAuthServer) -> None:
    """The browser is on another machine: it ends at an address that it cannot reach."""
    command = [*SUB, "login", "guarded", "--url", server.url, "--no-browser"]
    env = sub_environment(home, **QUIET)
    with TerminalProgram(command, env=env, columns=200) as program:
        assert program.process.stderr is not None
        told = ""
        while "press Enter" not in told:
            told += program.process.stderr.readline().decode()
        address = next(line.strip() for line in told.splitlines() if "/authorize?" in line)
        with pytest.raises(HTTPError) as sent:
            build_opener(Stay).open(address, timeout=30)
        target = sent.value.headers["Location"]
        os.write(program._master, target.encode() + b"\n")
        assert program.end() == 0, program.process.stderr.read()
    assert initialize(server.url, stored_token(home)) == 200


def test_the_port_can_be_chosen_and_the_time_is_bounded(home: Path, server: OAuthServer) -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        bad = sub(home, "login", "guarded", "--url", server.url, "--callback-port", str(port))
        assert bad.returncode == 2 and f"port {port} of this machine cannot be used" in bad.stderr
    late = sub(home, "login", "guarded", "--url", server.url, "--callback-port", str(port), "--timeout", "1")
    assert late.returncode == 2 and "within 1 seconds" in late.stderr
    assert f"127.0.0.1%3A{port}%2Fcallback" in late.stderr
    assert sub(home, "login", "--list", "--json").stdout == ""


def test_a_store_that_cannot_be_used_is_found_before_the_browser_is_opened(home: Path, server: OAuthServer) -> None:
    bad = sub(home, "login", "guarded", "--url", server.url, "--source", "keychain", "--timeout", "1")
    assert bad.returncode == 2 and "no keychain was found" in bad.stderr and "/authorize" not in bad.stderr
    (home / "logins").mkdir(parents=True)
    home.chmod(0o700)
    (home / "logins").chmod(0o755)
    bad = sub(home, "login", "guarded", "--url", server.url, "--timeout", "1")
    assert bad.returncode == 2 and "chmod 700" in bad.stderr and "/authorize" not in bad.stderr


def test_logins_of_one_name_at_two_urls_are_told_apart(home: Path, server: OAuthServer) -> None:
    urls = [server.url, "https://tools.example/mcp"]
    for url in urls:
        assert sub(home, "login", "two", "--url", url, "--token-env", "T", T="a-token-from-elsewhere").returncode == 0
    both = sub(home, "logout", "two")
    assert both.returncode == 2 and all(url in both.stderr for url in urls)
    assert sub(home, "login", "two", "--token-env", "T", T="x" * 20).returncode == 2
    assert sub(home, "logout", "two", "--url", urls[1]).returncode == 0
    assert sub(home, "logout", "two").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["login"], "whose login?"),
        (["login", "--list", "x"], "--list takes nothing but --json"),
        (["login", "x", "--url", "http://tools.example/mcp"], "the server's URL is not https"),
        (["login", "x", "--url", "https://u:secret@tools.example/mcp"], "holds a user name"),
        (["login", "x\x1b[31m", "--url", "https://tools.example"], "characters that can be printed"),
        (["login", "x", "--url", "https://t.example", "--scope", 'a"b'], "is not a scope"),
        (["login", "x", "--url", "https://t.example", "--client-secret-env", "S"], "goes with --client-id"),
        (["login", "x", "--url", "https://t.example", "--token-env", "S", "--no-browser"], "instead of a login"),
        (["logout", "\x1b[31m"], "there is no login for"),
    ],
)
def test_a_mistake_is_a_sentence(home: Path, arguments: list[str], words: str) -> None:
    result = sub(home, *arguments)
    assert result.returncode == 2 and words in result.stderr
    assert "\x1b" not in result.stderr and "secret" not in result.stderr.replace("client-secret", "")


def test_a_page_of_another_site_does_not_disturb_a_login(home: Path, server: OAuthServer) -> None:
    """Wrong state, another path, another host: the login waits on, and the right redirect ends it."""
    command = [*SUB, "login", "guarded", "--url", server.url, "--no-browser"]
    process = subprocess.Popen(
        command, env=sub_environment(home, **QUIET), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    told = ""
    while "Waiting" not in told:
        told += process.stderr.readline()
    address = next(line.strip() for line in told.splitlines() if "/authorize?" in line)
    port = re.search(r"127\.0\.0\.1%3A(\d+)%2Fcallback", address)
    assert port is not None
    for target in ("/callback?code=evil&state=evil", "/", "/callback"):
        with pytest.raises(OSError, match="HTTP Error 40"):
            urlopen(f"http://127.0.0.1:{port[1]}{target}", timeout=30)
    Thread(target=server.browse, args=(address,), daemon=True).start()
    assert process.wait(30) == 0
    process.stderr.close()
