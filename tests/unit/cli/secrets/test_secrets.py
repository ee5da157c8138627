"""`sub secrets`: values go in by prompt or pipe, and come out only on a terminal that asks."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from harness.keychain import FILE, NONE, use_keychain
from subluminal.cli.main import run

VALUE = "v4lue-of-the-secret"
SUB = (sys.executable, "-m", "subluminal")


class Sub:
    """Runs commands in this process with a piped stdin, and keeps what they printed."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.out = self.err = ""

    def __call__(self, *args: str, stdin: bytes = b"") -> int:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(["secrets", *args])
        self.out, self.err = self._capsys.readouterr()
        assert VALUE not in self.out + self.err
        return code

    def json(self, *args: str, stdin: bytes = b"") -> object:
        assert self(*args, "--json", stdin=stdin) == 0, self.err
        rows = [json.loads(line) for line in self.out.splitlines()]
        return rows if args[0] == "list" else rows[0]

    def config(self) -> dict[str, object]:
        return tomllib.loads((self.home / "config.toml").read_text())


@pytest.fixture
def sub(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sub:
    use_keychain(monkeypatch, tmp_path, NONE)
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "work" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return Sub(tmp_path / "sub", capsys, monkeypatch)


def test_a_piped_value_is_stored_listed_and_removed_without_being_shown(sub: Sub) -> None:
    added = sub.json("add", "ref", stdin=VALUE.encode() + b"\n")
    assert added == {
        "secret_ref": "ref",
        "source": "file",
        "stored": True,
        "encrypted": False,
        "bound_to": [],
        "dry_run": False,
    }
    assert (sub.home / "secrets" / "ref").read_bytes().endswith(b"\n" + VALUE.encode())
    (row,) = sub.json("list")  # type: ignore[misc]
    assert (row["secret_ref"], row["source"], row["stored"], row["encrypted"]) == ("ref", "file", True, False)
    assert sub("list") == 0
    assert "plain file" in sub.out
    got = sub.json("get", "ref")
    assert isinstance(got, dict)
    assert got["modified_at"]
    removed = {"secret_ref": "ref", "source": "file", "removed": True, "dry_run": False, "bound_to": []}
    assert sub.json("remove", "ref") == removed
    assert sub.json("list") == []
    assert sub("remove", "ref") == 2


def test_a_value_that_is_there_is_replaced_only_when_asked_for(sub: Sub) -> None:
    assert sub("add", "ref", "--bind", "github:TOKEN", stdin=VALUE.encode()) == 0
    assert sub("add", "ref", stdin=b"another value") == 2
    assert "github:TOKEN" in sub.err and "--replace" in sub.err
    assert (sub.home / "secrets" / "ref").read_bytes().endswith(VALUE.encode())
    assert sub("add", "ref", "--replace", stdin=b"another value") == 0
    assert (sub.home / "secrets" / "ref").read_bytes().endswith(b"another value")


def test_removing_names_the_servers_that_go_without(sub: Sub) -> None:
    assert sub("add", "ref", "--bind", "github:TOKEN", stdin=VALUE.encode()) == 0
    assert sub("remove", "ref", "--dry-run") == 0 and "github:TOKEN would go without" in sub.err
    assert sub("remove", "ref") == 0 and "github:TOKEN goes without" in sub.err


def test_an_empty_input_is_said_to_be_empty(sub: Sub) -> None:
    assert sub("add", "ref", stdin=b"") == 2
    assert "nothing came on standard input" in sub.err and "printf" in sub.err


def test_a_scope_that_there_is_not_lists_those_there_are(sub: Sub) -> None:
    for words in (("adopt", "github", "TOKEN"), ("confirm", "github")):
        assert sub(*words, "--scope", "moon") == 2
        assert "'moon' is not one of 'user', 'local'" in sub.err


def test_an_unencrypted_store_is_said_plainly(sub: Sub) -> None:
    assert sub("add", "ref", stdin=VALUE.encode()) == 0
    assert "NOT encrypted" in sub.err


def test_with_a_keychain_it_is_the_default(sub: Sub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keychain(monkeypatch, tmp_path, FILE)
    added = sub.json("add", "ref", stdin=VALUE.encode())
    assert isinstance(added, dict)
    assert added["source"] == "keychain"
    assert not (sub.home / "secrets" / "ref").exists()
    assert sub.json("remove", "ref", "--source", "keychain")


def test_a_value_on_the_command_line_is_refused_and_not_repeated(sub: Sub) -> None:
    assert sub("add", "ref", VALUE) == 2
    assert "never taken from the command line" in sub.err
    assert not (sub.home / "secrets").exists()


@pytest.mark.parametrize("value", [b"", b"abc", b"abc\n", b"a\0bcdef"])
def test_a_value_that_cannot_be_protected_is_not_stored(sub: Sub, value: bytes) -> None:
    assert sub("add", "ref", stdin=value) == 2
    assert sub.json("list") == []


@pytest.mark.parametrize("ref", ["../x", "a b", ".x", "ä"])
def test_a_bad_reference_is_refused(sub: Sub, ref: str) -> None:
    assert sub("add", ref, stdin=VALUE.encode()) == 2
    assert "not usable" in sub.err


def test_a_dry_run_changes_nothing(sub: Sub) -> None:
    assert sub("add", "ref", "--bind", "github:TOKEN", "--dry-run", stdin=VALUE.encode()) == 0
    assert "Would store" in sub.err
    assert not sub.home.exists()


def test_binding_on_the_way_keeps_comments_and_other_settings(sub: Sub) -> None:
    sub.home.mkdir()
    (sub.home / "config.toml").write_text(
        "# mine\n[shim]\ntimeout_ms = 5 # short\n\n[servers.github]\ntimeout_ms = 7\n"
    )
    assert sub("add", "ref", "--bind", "github:TOKEN", "--bind", "other.one:T2", stdin=VALUE.encode()) == 0
    text = (sub.home / "config.toml").read_text()
    assert "# mine" in text
    assert "timeout_ms = 5 # short" in text
    servers = sub.config()["servers"]
    binding = {"inject_as": "TOKEN", "secret_ref": "ref", "source": "file"}
    assert servers == {
        "github": {"timeout_ms": 7, "secret_bindings": [binding]},
        "other.one": {"secret_bindings": [{**binding, "inject_as": "T2"}]},
    }
    assert (sub.home / "config.toml").stat().st_mode & 0o777 == 0o600


def test_binding_again_replaces_the_binding_of_the_same_variable(sub: Sub) -> None:
    for form in ("[[servers.a.secret_bindings]]\ninject_as = 'T'\nsecret_ref = 'old'\nrequired = false\n", ""):
        sub.home.mkdir(exist_ok=True)
        (sub.home / "config.toml").write_text(form)
        for ref in ("one", "two"):
            assert sub("add", ref, "--replace", "--bind", "a:T", stdin=VALUE.encode()) == 0
        (binding,) = sub.config()["servers"]["a"]["secret_bindings"]  # type: ignore[index]
        assert binding["secret_ref"] == "two"
        assert sub("add", "three", "--replace", "--bind", "a:U", stdin=VALUE.encode()) == 0
        assert len(sub.config()["servers"]["a"]["secret_bindings"]) == 2  # type: ignore[index]


def test_a_broken_config_is_not_edited(sub: Sub) -> None:
    sub.home.mkdir()
    (sub.home / "config.toml").write_text("[shimm]\n")
    assert sub("add", "ref", "--bind", "a:T", stdin=VALUE.encode()) == 2
    assert "Did you mean 'shim'?" in sub.err
    assert not (sub.home / "secrets").exists()


def test_check_names_what_is_missing_and_what_to_do(sub: Sub) -> None:
    assert sub("add", "ref", "--bind", "github:TOKEN", stdin=VALUE.encode()) == 0
    assert sub("check") == 0
    assert "ok" in sub.out
    assert sub("remove", "ref") == 0
    assert sub("check") == 1
    assert "MISSING" in sub.out
    assert "sub secrets add ref --source file" in sub.err
    assert sub("check", "--json") == 1
    report = json.loads(sub.out)
    assert report["bindings"][0]["success"] is False
    assert sub("check", "--server", "nobody") == 2


def test_an_optional_binding_without_its_secret_is_no_violation(sub: Sub) -> None:
    sub.home.mkdir()
    (sub.home / "config.toml").write_text(
        "[servers.a]\nsecret_bindings = [{inject_as='T', secret_ref='r', source='env', required=false}]\n"
    )
    assert sub("check") == 0
    assert "absent" in sub.out


def test_a_value_is_not_revealed_to_a_pipe(sub: Sub) -> None:
    assert sub("add", "ref", stdin=VALUE.encode()) == 0
    assert sub("get", "ref", "--reveal") == 2
    assert "only on a terminal" in sub.err


def test_a_value_is_revealed_on_a_terminal_that_asks(sub: Sub) -> None:
    assert sub("add", "ref", stdin=VALUE.encode()) == 0
    ours, theirs = pty.openpty()
    child = subprocess.Popen([*SUB, "secrets", "get", "ref", "--reveal"], stdout=theirs, stdin=theirs, env=os.environ)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how a terminal says that nobody writes to it any more
        while chunk := os.read(ours, 1000):
            shown += chunk
    assert child.wait(30) == 0
    os.close(ours)
    assert shown.strip() == VALUE.encode()


def test_a_value_typed_at_the_prompt_is_not_echoed(sub: Sub) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*SUB, "secrets", "add", "ref"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    for question in (b"Value of ref:", b"Repeat"):
        while question not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, VALUE.encode() + b"\n")
    try:
        while chunk := os.read(ours, 1000):
            shown += chunk
    except OSError:
        pass
    assert child.wait(30) == 0
    os.close(ours)
    assert VALUE.encode() not in shown
    assert (sub.home / "secrets" / "ref").read_bytes().endswith(VALUE.encode())


def claude_config(tmp_path: Path, value: str = VALUE) -> Path:
    path = tmp_path / ".claude.json"
    entry = {"command": "sub", "args": ["shim", "--server-name", "github", "--", "gh-mcp"], "env": {"GH_TOKEN": value}}
    path.write_text(json.dumps({"mcpServers": {"github": entry}}, indent=2))
    return path


def test_adopting_moves_a_literal_into_the_store_and_leaves_a_placeholder(sub: Sub, tmp_path: Path) -> None:
    path = claude_config(tmp_path)
    before = path.read_text()
    assert sub("adopt", "github", "GH_TOKEN", "--dry-run") == 0
    assert "Would move" in sub.err
    assert path.read_text() == before
    assert not sub.home.exists()

    report = sub.json("adopt", "github", "GH_TOKEN")
    assert isinstance(report, dict)
    assert (report["client"], report["files"]) == ("claude", [str(path)])
    assert path.read_text() == before.replace(VALUE, "sub://gh_token")
    assert sub.config()["servers"] == {
        "github": {
            "secret_bindings": [{"inject_as": "GH_TOKEN", "secret_ref": "gh_token", "source": "file"}],
            "confirmed": [{"command": ["gh-mcp"]}],
        }
    }
    assert sub("check") == 0
    assert sub("adopt", "github", "GH_TOKEN") == 2
    assert "adopted before" in sub.err


def test_adopting_tells_of_backups_that_still_hold_the_value(sub: Sub, tmp_path: Path) -> None:
    claude_config(tmp_path)
    backup = sub.home / "backups" / "claude.json"
    backup.parent.mkdir(parents=True)
    backup.write_text(f'"{VALUE}"')
    assert sub("adopt", "github", "GH_TOKEN", "--client", "claude") == 0
    assert str(backup) in sub.err


@pytest.mark.parametrize(
    ("value", "args", "says"),
    [
        (VALUE, ("github", "NO_SUCH"), "sets NO_SUCH for a server called 'github'"),
        (VALUE, ("gitlab", "GH_TOKEN", "--client", "claude"), "sets no GH_TOKEN"),
        (VALUE, ("github", "GH_TOKEN", "--client", "nobody"), "no client is called"),
        ("${GH_TOKEN}", ("github", "GH_TOKEN"), "no literal secret"),
        ("abc", ("github", "GH_TOKEN"), "too short"),
    ],
)
def test_adopting_what_cannot_be_adopted_says_why(
    sub: Sub, tmp_path: Path, value: str, args: tuple[str, ...], says: str
) -> None:
    path = claude_config(tmp_path, value)
    before = path.read_text()
    assert sub("adopt", *args) == 2
    assert says in sub.err
    assert path.read_text() == before
    assert not (sub.home / "secrets").exists()


def test_adopting_never_overwrites_another_stored_value(sub: Sub, tmp_path: Path) -> None:
    path = claude_config(tmp_path)
    assert sub("add", "gh_token", stdin=b"something else") == 0
    assert sub("adopt", "github", "GH_TOKEN") == 2
    assert "--ref" in sub.err
    assert VALUE in path.read_text()
    assert sub("adopt", "github", "GH_TOKEN", "--ref", "gh_two") == 0
    assert "sub://gh_two" in path.read_text()
