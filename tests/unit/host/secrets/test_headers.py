"""Headers for servers that are reached over HTTP: where their values come from, and what never becomes one."""

from __future__ import annotations

import json

import pytest

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import ServerConfig, load_config
from subluminal.host.secrets.bindings import Binding, parse_bindings, spawn_environ
from subluminal.host.secrets.headers import MAX_VALUE_BYTES, header_fault, resolve_headers

TOKEN = "tok-0123456789abcdef"


def server(*bindings: Binding) -> ServerConfig:
    found = ServerConfig("docs", "after", "error", None)
    found.secret_bindings = list(bindings)
    return found


def test_values_come_from_the_variables_that_are_named_and_are_masked() -> None:
    environ = {"SUB_HEADER_X_KEY": TOKEN, "REGION": "eu", "OTHER": "no"}
    found = resolve_headers(environ, server(), [("X-Key", "SUB_HEADER_X_KEY"), ("X-Region", "REGION")])
    assert found.headers == {"X-Key": TOKEN, "X-Region": "eu"}
    assert found.secrets == [TOKEN]
    assert (found.errors, found.left_out, found.injections) == ([], [], [])
    assert TOKEN not in repr(found)


def test_a_credential_is_masked_with_and_without_the_word_before_it() -> None:
    found = resolve_headers(
        {"A": f"Bearer {TOKEN}", "B": "abcd"}, server(), [("Authorization", "A"), ("X-Api-Key", "B")]
    )
    assert set(found.secrets) == {f"Bearer {TOKEN}", TOKEN, "abcd"}


def test_a_bearer_token_comes_from_its_variable_or_the_server_is_not_reached() -> None:
    assert resolve_headers({"T": TOKEN}, server(), bearer_env="T").headers == {"Authorization": f"Bearer {TOKEN}"}
    for environ in ({}, {"T": ""}, {"T": "sub://gone"}):
        found = resolve_headers(environ, server(), bearer_env="T")
        assert found.headers == {} and "T is not set" in str(found.errors[0])


def test_a_header_without_a_value_is_left_out_and_told() -> None:
    found = resolve_headers({"B": "sub://gone"}, server(), [("X-A", "A"), ("X-B", "B")])
    assert (found.headers, found.errors) == ({}, [])
    assert ["A is not set" in found.left_out[0], "secret" in found.left_out[1]] == [True, True]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "é", "x" * (MAX_VALUE_BYTES + 1)])
def test_a_value_that_no_header_can_have_is_an_error_that_does_not_tell_it(value: str) -> None:
    found = resolve_headers({"A": value}, server(), [("X-A", "A")])
    assert found.headers == {}
    assert "X-A" in str(found.errors[0]) and value not in str(found.errors[0])


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "X Y", "X\r\nY", "X:Y", "", "é", "x" * 200]
)
def test_headers_of_the_connection_and_names_that_are_none_are_refused(name: str) -> None:
    assert header_fault(name) is not None
    found = resolve_headers({"A": "value"}, server(), [(name, "A")])
    assert found.headers == {} and found.errors


def test_what_the_transport_writes_itself_is_dropped() -> None:
    found = resolve_headers({"A": "application/json"}, server(), [("Content-Type", "A"), ("accept", "A")])
    assert (found.headers, found.errors) == ({}, [])


@pytest.mark.parametrize("variable", ["SUB_POLICY", "SUB_SECRET_GITHUB", "SUB_RUN_ID", "GITHUB_TOKEN", "COPY"])
def test_our_own_variables_and_other_servers_secrets_are_not_to_be_had(variable: str) -> None:
    environ = {"SUB_POLICY": TOKEN, "SUB_SECRET_GITHUB": TOKEN, "SUB_RUN_ID": "r", "GITHUB_TOKEN": TOKEN, "COPY": TOKEN}
    others = [Binding("GH", "github_token")]
    found = resolve_headers(environ, server(), [("X-A", variable)], other_bindings=others)
    assert found.headers == {} and found.left_out


def test_a_binding_supplies_a_header_and_wins() -> None:
    bound = Binding("header:authorization", "docs_token", prefix="Bearer ")
    found = resolve_headers({"DOCS_TOKEN": TOKEN, "A": "old-value"}, server(bound), [("Authorization", "A")], "GONE")
    assert found.headers == {"authorization": f"Bearer {TOKEN}"}
    assert TOKEN in found.secrets and found.errors == []
    (injection,) = found.injections
    assert injection == {
        "inject_as": "header:authorization", "secret_ref": "docs_token", "source": "env", "success": True,
    }  # fmt: skip


def test_a_withheld_binding_gives_no_header() -> None:
    bound = Binding("header:X-Key", "docs_token")
    found = resolve_headers({"DOCS_TOKEN": TOKEN}, server(bound), withheld=[bound])
    assert (found.headers, found.errors) == ({}, [])
    assert found.injections[0]["success"] is False


def test_an_adopted_variable_is_filled_in_before_it_becomes_a_header() -> None:
    bound = Binding("SUB_HEADER_X_KEY", "docs_token")
    environ = {"DOCS_TOKEN": TOKEN, "SUB_HEADER_X_KEY": "sub://docs_token"}
    assert resolve_headers(environ, server(bound), [("X-Key", "SUB_HEADER_X_KEY")]).headers == {"X-Key": TOKEN}


def test_a_missing_secret_of_a_header_is_an_error_with_its_reference() -> None:
    found = resolve_headers({}, server(Binding("header:X-Key", "docs_token")))
    assert "docs_token" in str(found.errors[0])


def test_a_process_gets_no_header_and_not_the_variable_it_comes_from() -> None:
    both = server(Binding("header:X-Key", "docs_token"), Binding("KEY", "other_ref"))
    resolved = spawn_environ({"DOCS_TOKEN": TOKEN, "OTHER_REF": "other-secret"}, both)
    assert resolved.child_environ == {"KEY": "other-secret"}
    assert [injection["inject_as"] for injection in resolved.injections] == ["KEY"]


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        ({"inject_as": "header:", "secret_ref": "r"}, "names no header"),
        ({"inject_as": "header:X Y", "secret_ref": "r"}, "names no header"),
        ({"inject_as": "header:Host", "secret_ref": "r"}, "names no header"),
        ({"inject_as": "header:Accept", "secret_ref": "r"}, "names no header"),
        ({"inject_as": "header:X", "secret_ref": "r", "prefix": 1}, "prefix must be plain text"),
        ({"inject_as": "header:X", "secret_ref": "r", "prefix": "a\n"}, "prefix must be plain text"),
        ({"inject_as": "VARIABLE", "secret_ref": "r", "prefix": "a"}, "prefix is for a header"),
    ],
)
def test_a_binding_that_cannot_be_a_header_is_an_error(binding: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_bindings([binding], "config.toml")


def test_two_bindings_for_one_header_are_an_error_however_it_is_spelled() -> None:
    items = [{"inject_as": name, "secret_ref": "r"} for name in ("header:X-Key", "header:x-key")]
    with pytest.raises(ConfigError, match="two secret bindings"):
        parse_bindings(items, "config.toml")


def test_header_bindings_come_from_config_toml_and_from_the_environment(tmp_path: object) -> None:
    item = {"inject_as": "header:Authorization", "secret_ref": "r", "prefix": "Bearer "}
    environ = {"SUB_HOME": str(tmp_path), "SUB_SECRET_BINDINGS": json.dumps({"docs": [item]})}
    (binding,) = load_config(environ, str(tmp_path)).server("docs").secret_bindings
    assert (binding.header, binding.prefix) == ("Authorization", "Bearer ")
