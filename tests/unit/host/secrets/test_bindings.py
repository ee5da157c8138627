"""Secret bindings: who gets which value, and who does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.keychain import NONE, use_keychain
from subluminal.contracts.errors import ConfigError
from subluminal.host.config import ServerConfig, load_config
from subluminal.host.secrets.bindings import (
    Binding,
    parse_bindings,
    placeholder,
    resolve,
    spawn_environ,
    upstream_environ,
)
from subluminal.host.secrets.keystore import open_store

VALUE = "v4lue-of-the-secret"


@pytest.fixture(autouse=True)
def no_keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keychain(monkeypatch, tmp_path, NONE)


def server(*bindings: Binding, allow: tuple[str, ...] | None = None) -> ServerConfig:
    config = ServerConfig("s", "after", "error", None)
    config.secret_bindings = list(bindings)
    config.env_allowlist = allow
    return config


@pytest.mark.contract("SEC-001")
@pytest.mark.parametrize("name", ["SUB_SECRET_GITHUB_TOKEN", "github_token", "GITHUB_TOKEN"])
def test_an_env_secret_reaches_the_server_under_its_new_name_only(name: str) -> None:
    environ = {"PATH": "/bin", name: VALUE}
    resolved = spawn_environ(environ, server(Binding("TOKEN", "github_token")))
    assert resolved.child_environ == {"PATH": "/bin", "TOKEN": VALUE}
    assert resolved.secrets == [VALUE]
    assert resolved.errors == []


def test_a_secret_may_keep_its_name() -> None:
    resolved = spawn_environ({"GITHUB_TOKEN": VALUE}, server(Binding("GITHUB_TOKEN", "GITHUB_TOKEN")))
    assert resolved.child_environ == {"GITHUB_TOKEN": VALUE}


def test_the_prefixed_variable_is_tried_first() -> None:
    environ = {"SUB_SECRET_A_B": VALUE, "a-b": "other", "A_B": "another"}
    resolved = resolve([Binding("X", "a-b")], environ)
    assert resolved.child_environ == {"X": VALUE}


def test_one_secret_can_be_injected_under_two_names() -> None:
    resolved = resolve([Binding("X", "ref"), Binding("Y", "ref")], {"SUB_SECRET_REF": VALUE})
    assert resolved.child_environ == {"X": VALUE, "Y": VALUE}


@pytest.mark.contract("SEC-002")
def test_the_metadata_of_an_injection_holds_no_value() -> None:
    resolved = resolve([Binding("X", "ref"), Binding("Y", "gone", required=False)], {"SUB_SECRET_REF": VALUE})
    assert resolved.injections == [
        {"inject_as": "X", "secret_ref": "ref", "source": "env", "success": True},
        {"inject_as": "Y", "secret_ref": "gone", "source": "env", "success": False},
    ]
    assert VALUE not in json.dumps(resolved.injections) + repr(resolved) + repr(resolved.injections)


def test_a_missing_required_secret_is_an_error_with_a_way_out() -> None:
    (error,) = resolve([Binding("TOKEN", "github_token")], {}).errors
    assert "'github_token' (for TOKEN) was not found" in str(error)
    assert "SUB_SECRET_GITHUB_TOKEN" in (error.hint or "")


def test_a_missing_optional_secret_is_not_an_error() -> None:
    resolved = resolve([Binding("TOKEN", "github_token", required=False)], {})
    assert (resolved.errors, resolved.child_environ, resolved.secrets) == ([], {}, [])


def test_a_placeholder_is_replaced_by_the_secret_and_never_taken_for_one() -> None:
    binding = Binding("TOKEN", "ref", required=False)
    environ = {"TOKEN": placeholder("ref"), "SUB_SECRET_REF": VALUE}
    assert resolve([binding], environ).child_environ == {"TOKEN": VALUE}
    assert resolve([binding], {"TOKEN": placeholder("ref")}).child_environ == {}


def test_a_value_too_short_to_mask_is_refused_unless_it_need_not_be_masked() -> None:
    resolved = resolve([Binding("PIN", "pin")], {"SUB_SECRET_PIN": "123"})
    assert "too short" in str(resolved.errors[0])
    assert "123" not in str(resolved.errors[0]) + (resolved.errors[0].hint or "")
    assert "PIN" not in resolved.child_environ
    resolved = resolve([Binding("PIN", "pin", redact=False)], {"SUB_SECRET_PIN": "123"})
    assert (resolved.errors, resolved.secrets, resolved.child_environ["PIN"]) == ([], [], "123")


def test_a_stored_secret_is_read_from_its_store(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path)}
    open_store("file", environ).put("ref", VALUE)
    resolved = resolve([Binding("X", "ref", "file")], environ)
    assert resolved.child_environ["X"] == VALUE
    (error,) = resolve([Binding("X", "other", "file")], environ).errors
    assert "sub secrets add other --source file" in (error.hint or "")


def test_an_unusable_store_is_an_error_not_a_crash(tmp_path: Path) -> None:
    environ = {"SUB_HOME": str(tmp_path)}
    open_store("file", environ).put("ref", VALUE)
    (tmp_path / "secrets").chmod(0o755)
    (error,) = resolve([Binding("X", "ref", "file")], environ).errors
    assert "chmod 700" in (error.hint or "")


def test_the_upstream_sees_the_client_s_environment_but_not_our_controls() -> None:
    environ = {
        "PATH": "/bin",
        "SUBMARINE": "1",
        "SUB_TITLE": "theirs",
        "SUB_RUN_ID": "r",
        "SUB_POLICY": "/p",
        "SUB_SECRET_OTHER": VALUE,
        "SUB_SECRET_BINDINGS": "[]",
        "SUB_AUDIT": "before",
        "SUB_CORE": "c",
    }
    kept = {"PATH", "SUBMARINE", "SUB_TITLE"}
    assert upstream_environ(environ, server()) == {name: environ[name] for name in kept}


def test_the_secrets_of_other_servers_are_withheld_by_name_and_by_value() -> None:
    environ = {"SLACK_TOKEN": VALUE, "COPY": VALUE, "PLAIN": "x"}
    others = [Binding("T", "slack_token")]
    assert upstream_environ(environ, server(), others) == {"PLAIN": "x"}
    assert upstream_environ(environ, server(allow=("COPY",)), others) == {"COPY": VALUE}


def test_an_allowlist_is_a_whitelist_beside_what_every_program_needs() -> None:
    environ = {"PATH": "/bin", "HOME": "/h", "LC_CTYPE": "C", "AWS_KEY": "k", "GH_HOST": "h", "GH_X": "x", "ONE": "1"}
    child = upstream_environ(environ, server(allow=("GH_*", "ONE")))
    assert set(child) == {"PATH", "HOME", "LC_CTYPE", "GH_HOST", "GH_X", "ONE"}
    assert set(upstream_environ(environ, server(allow=()))) == {"PATH", "HOME", "LC_CTYPE"}


def test_the_client_s_environment_itself_is_never_changed() -> None:
    environ = {"GITHUB_TOKEN": VALUE}
    spawn_environ(environ, server(Binding("X", "github_token")))
    resolve([Binding("X", "github_token")], environ)
    assert environ == {"GITHUB_TOKEN": VALUE}


def test_bindings_come_from_the_environment_as_a_list_or_by_server(tmp_path: Path) -> None:
    one = {"inject_as": "T", "secret_ref": "r"}
    for value in ([one], {"a": [one], "b": []}):
        environ = {"SUB_HOME": str(tmp_path), "SUB_SECRET_BINDINGS": json.dumps(value)}
        config = load_config(environ, str(tmp_path))
        assert [b.inject_as for b in config.server("a").secret_bindings] == ["T"]
    assert config.server("b").secret_bindings == []
    assert config.server("c").secret_bindings == []


ONE = {"inject_as": "T", "secret_ref": "r"}


@pytest.mark.contract("SEC-001")
def test_the_contract_s_own_object_is_understood(tmp_path: Path) -> None:
    mine, other = ({"server_name": name, "secret_bindings": [ONE]} for name in ("a", "b"))
    for value, names in ((mine, {"a"}), ([mine, other], {"a", "b"})):
        environ = {"SUB_HOME": str(tmp_path), "SUB_SECRET_BINDINGS": json.dumps(value)}
        config = load_config(environ, str(tmp_path))
        assert {name for name in "abc" if config.server(name).secret_bindings} == names


@pytest.mark.parametrize(
    "value",
    [
        "text", "1", "null", "{", "[1]", '["a"]', '{"a": 1}', '{"b": [{}]}', '{"server_name": "a"}',
        '{"secret_bindings": []}', '{"server_name": "", "secret_bindings": []}',
        '{"server_name": 1, "secret_bindings": []}', '{"server_name": "a", "secret_bindings": {}}',
        '{"server_name": "a", "secret_bindings": [], "more": 1}', '{"server_name": "b", "secret_bindings": [{}]}',
        '[{"server_name": "a", "secret_bindings": []}, {"server_name": "a", "secret_bindings": []}]',
        '[{"server_name": "a", "secret_bindings": []}, {"inject_as": "T", "secret_ref": "r"}]',
        '{"inject_as": "T", "secret_ref": "r"}', '[{"server_name": "a", "inject_as": "T", "secret_ref": "r"}]',
    ],
)  # fmt: skip
def test_what_cannot_be_understood_there_is_an_error_and_never_nothing(tmp_path: Path, value: str) -> None:
    environ = {"SUB_HOME": str(tmp_path), "SUB_SECRET_BINDINGS": value}
    with pytest.raises(ConfigError, match="SUB_SECRET_BINDINGS") as raised:
        load_config(environ, str(tmp_path)).server("a")
    assert "For example" in (raised.value.hint or "") or "Keep one" in (raised.value.hint or "")


@pytest.mark.parametrize("ref", ["", "a/b", "../x", ".hidden", "-x", "a b", "ä", "x" * 129, "a\nb"])
def test_a_reference_is_a_plain_word(ref: str) -> None:
    with pytest.raises(ConfigError):
        parse_bindings([{"inject_as": "A", "secret_ref": ref}], "here")
