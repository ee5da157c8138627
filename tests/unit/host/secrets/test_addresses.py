"""Addresses of servers: what is usable, what is shown, and what in them is a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import load_config
from subluminal.host.secrets.addresses import address_fault, address_of, confirmed_form, public_form, secret_parts
from subluminal.host.secrets.confirmation import Reached, withheld_at

PATH_TOKEN = "NDk1MjA3YzYtNzhmZC00YjA5"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://e.test/mcp", []),
        ("http://127.0.0.1:8000/mcp?region=eu&page=2", []),
        ("https://e.test/streamable-http-endpoint/v2", []),
        ("https://user:pass@e.test/", ["user", "pass"]),
        ("https://token@e.test/", ["token"]),
        ("https://e.test/mcp?api_key=abc&x=1", ["abc"]),
        ("https://e.test/mcp?apiKey=abc", ["abc"]),
        ("https://e.test/mcp?access-token=a%2Fb", ["a/b"]),
        ("https://e.test/mcp?sig=abc", ["abc"]),
        (f"https://e.test/s/{PATH_TOKEN}/mcp", [PATH_TOKEN]),
        ("https://e.test/0c2f5a1e-4c1b-4f0e-9a53-1f6f0a2f7d11/mcp", ["0c2f5a1e-4c1b-4f0e-9a53-1f6f0a2f7d11"]),
    ],
)
def test_what_in_a_url_is_a_secret(url: str, parts: list[str]) -> None:
    assert secret_parts(url) == parts
    assert not any(part in public_form(url) for part in parts)
    assert not any(part in confirmed_form(url) for part in parts)


@pytest.mark.parametrize(
    "url",
    ["", "e.test", "ws://e.test", "unix:///run/x", "file:///etc/passwd", "http://", "https:///mcp", "http://e.test:x/",
     "http://e.test:99999/", "http://e.test/a b", "http://e.test/\r\nX: y", "http://e.test/\0", "http://[::1/", "http://é/",
     "https://e.test/" + "a" * 9000, "javascript:alert(1)", "--url"],
)  # fmt: skip
def test_what_is_no_address_is_a_sentence_that_does_not_repeat_it(url: str) -> None:
    assert address_fault(url) is not None
    with pytest.raises(ConfigError) as raised:
        address_of({}, url, None)
    assert len(url) < 8 or url not in str(raised.value)


def test_an_address_may_stand_in_a_variable() -> None:
    assert address_of({"U": "https://e.test/mcp"}, None, "U") == "https://e.test/mcp"
    with pytest.raises(ConfigError, match="U is not set"):
        address_of({}, None, "U")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://E.test:443/mcp?x=1#y", "https://e.test/mcp"),
        ("http://e.test:80", "http://e.test/"),
        ("https://u:p@e.test/mcp", "https://e.test/mcp"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
    ],
)
def test_an_address_is_confirmed_by_origin_and_path(url: str, same: str) -> None:
    assert confirmed_form(url) == same
    assert Reached(url, {}).fault([Reached(same, {}).record()]) is None


def test_another_origin_path_or_scheme_was_not_confirmed() -> None:
    record = [Reached("https://e.test/mcp", {}).record()]
    for url in ("http://e.test/mcp", "https://e.test:8443/mcp", "https://evil.test/mcp", "https://e.test/mcp2"):
        assert Reached(url, {}).fault(record) == "this is not the address that you have confirmed"
    assert Reached("https://e.test/mcp", {}).fault([{"command": ["https://e.test/mcp"]}]) is not None
    assert Reached("https://e.test/mcp", {}).fault([]) == "no address was confirmed for it"


def test_tokens_in_paths_are_told_apart_without_being_kept() -> None:
    url = f"https://e.test/s/{PATH_TOKEN}/mcp"
    record = Reached(url, {}).record()
    assert PATH_TOKEN not in str(record)
    assert Reached(url, {}).fault([record]) is None
    assert Reached(url.replace("NDk1", "NDk2"), {}).fault([record]) is not None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"])
def test_an_entry_that_chooses_whom_we_believe_is_not_the_confirmed_one(name: str) -> None:
    record = [Reached("https://e.test/mcp", {}).record()]
    assert name in (Reached("https://e.test/mcp", {name: "/repo/ca.pem"}, [name]).fault(record) or "")


def test_what_was_confirmed_is_read_from_config_toml(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    bound = 'secret_bindings = [{ inject_as = "header:X-Key", secret_ref = "k" }]'
    config.write_text(f'[servers.docs]\n{bound}\nconfirmed = [{{ url = "https://e.test/mcp" }}]\n')
    environ = {"SUB_HOME": str(tmp_path)}
    loaded = load_config(environ, str(tmp_path))
    assert withheld_at(loaded.server("docs"), loaded, "https://e.test/mcp?x=1", environ) is None
    refused = withheld_at(loaded.server("docs"), loaded, "https://evil.test/mcp", environ)
    assert refused is not None and "header:X-Key" in str(refused)


@pytest.mark.parametrize("text", ["[{url=1}]", "[{url='u', command=['x']}]", "[{}]"])
def test_a_confirmation_is_a_url_or_a_command(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(f"[servers.a]\nconfirmed = {text}\n")
    with pytest.raises(ConfigError, match="confirmed"):
        load_config({"SUB_HOME": str(tmp_path)}, str(tmp_path))
