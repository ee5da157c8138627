"""The stores: what is on disk, who can read it, and what a hostile directory can do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harness.keychain import FILE, NONE, use_keychain
from subluminal.contracts.errors import ConfigError, SecretError
from subluminal.host.secrets.keystore import LOGINS, FileStore, keychain_available, open_store

VALUE = 'a "value"\nwith ünicode \\ and more'


@pytest.fixture(autouse=True)
def no_keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keychain(monkeypatch, tmp_path, NONE)


@pytest.fixture
def keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_keychain: None) -> None:
    use_keychain(monkeypatch, tmp_path, FILE)


def file_store(tmp_path: Path) -> FileStore:
    store = open_store("file", {"SUB_HOME": str(tmp_path / "home")})
    assert isinstance(store, FileStore)
    return store


@pytest.mark.parametrize("value", [VALUE, "x" * 8192, "-----BEGIN KEY-----\n" + "A" * 500 + "\n", "\udcff\udcfe"])
def test_a_stored_value_comes_back_unchanged(tmp_path: Path, value: str) -> None:
    store = file_store(tmp_path)
    assert store.get("ref") is None
    store.put("ref", "first")
    store.put("ref", value)
    assert store.get("ref") == value
    assert [entry.secret_ref for entry in store.refs()] == ["ref"]
    assert store.remove("ref") is True
    assert store.remove("ref") is False
    assert store.refs() == []


def test_files_and_directory_are_private_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        store = file_store(tmp_path)
        store.put("ref", VALUE)
    finally:
        os.umask(previous)
    directory = Path(store.directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [p.name for p in directory.iterdir()] == ["ref"]
    assert stat.S_IMODE((directory / "ref").stat().st_mode) == 0o600


def test_without_a_keychain_the_store_says_that_it_is_not_encrypted(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    assert store.put("ref", VALUE).encrypted is False
    assert store.refs()[0].encrypted is False
    assert VALUE.encode() in (Path(store.directory) / "ref").read_bytes()


@pytest.mark.usefixtures("keychain")
def test_with_a_keychain_the_file_is_encrypted_and_bound_to_its_name(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    assert store.put("ref", VALUE).encrypted is True
    path = Path(store.directory) / "ref"
    assert VALUE.encode() not in path.read_bytes()
    assert store.get("ref") == VALUE
    path.rename(path.with_name("other"))
    with pytest.raises(SecretError, match="cannot be decrypted"):
        store.get("other")


@pytest.mark.usefixtures("keychain")
def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    path = Path(store.directory) / "ref"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(SecretError, match="cannot be decrypted"):
        store.get("ref")


def test_an_encrypted_file_without_its_keychain_is_a_clear_error(
    tmp_path: Path, keychain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    use_keychain(monkeypatch, tmp_path, NONE)
    with pytest.raises(SecretError, match="no keychain was found"):
        store.get("ref")


@pytest.mark.usefixtures("keychain")
def test_the_keychain_keeps_lists_and_forgets(tmp_path: Path) -> None:
    assert keychain_available()
    environ = {"SUB_HOME": str(tmp_path / "home")}
    store = open_store("keychain", environ)
    assert store.get("ref") is None
    store.put("ref", VALUE)
    store.put("second", "another value")
    assert open_store("keychain", environ).get("ref") == VALUE
    assert [entry.secret_ref for entry in store.refs()] == ["ref", "second"]
    assert store.remove("ref") is True
    assert store.remove("ref") is False
    assert [entry.secret_ref for entry in store.refs()] == ["second"]
    on_disk = b"".join(p.read_bytes() for p in (tmp_path / "home").rglob("*") if p.is_file())
    assert b"another value" not in on_disk


@pytest.mark.parametrize("question", ["get", "remove"])
def test_without_a_keychain_the_error_says_what_to_use_instead(tmp_path: Path, question: str) -> None:
    assert not keychain_available()
    store = open_store("keychain", {"SUB_HOME": str(tmp_path)})
    with pytest.raises(SecretError, match="no keychain was found") as caught:
        getattr(store, question)("ref")
    assert "--source file" in (caught.value.hint or "")


def test_a_backend_that_keeps_plain_text_is_no_keychain_unless_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keychain(monkeypatch, tmp_path, FILE)
    assert keychain_available()
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    assert not keychain_available()


@pytest.mark.parametrize(
    ("target", "mode", "fix"), [("secrets", 0o750, "chmod 700"), ("secrets/ref", 0o644, "chmod 600")]
)
def test_a_store_that_others_can_read_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, target: str, mode: int, fix: str
) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    path = tmp_path / "home" / target
    path.chmod(mode)
    with pytest.raises(SecretError, match="other users") as caught:
        store.get("ref")
    assert f"{fix} {path}" in (caught.value.hint or "")
    assert VALUE not in str(caught.value)


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secrets").symlink_to(elsewhere)
    store = file_store(tmp_path)
    for attempt in (lambda: store.put("ref", VALUE), lambda: store.get("ref"), store.refs):
        with pytest.raises(SecretError, match="not a directory of ours"):
            attempt()
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_secret_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    path = Path(store.directory) / "ref"
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(SecretError, match="cannot be read"):
        store.get("ref")
    store.put("ref", VALUE)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert store.get("ref") == VALUE


def test_a_hard_link_and_a_named_pipe_are_refused(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    os.link(Path(store.directory) / "ref", tmp_path / "second-name")
    with pytest.raises(SecretError, match="one name"):
        store.get("ref")
    os.mkfifo(Path(store.directory) / "pipe", 0o600)
    with pytest.raises(SecretError, match="regular file"):
        store.get("pipe")


@pytest.mark.parametrize("ref", ["../ref", "a/b", ".keychain", "", "a\0b"])
@pytest.mark.parametrize("source", ["file", "keychain"])
def test_a_reference_cannot_leave_the_store(tmp_path: Path, source: str, ref: str) -> None:
    store = open_store(source, {"SUB_HOME": str(tmp_path)})
    for attempt in (lambda: store.get(ref), lambda: store.put(ref, VALUE), lambda: store.remove(ref)):
        with pytest.raises(ConfigError):
            attempt()


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 65537])
def test_a_value_that_cannot_be_injected_is_not_stored(tmp_path: Path, value: str) -> None:
    with pytest.raises(SecretError):
        file_store(tmp_path).put("ref", value)


def test_a_foreign_file_in_the_store_is_named(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.put("ref", VALUE)
    (Path(store.directory) / "ref").write_bytes(b"something else")
    with pytest.raises(SecretError, match="not a stored secret"):
        store.get("ref")


@pytest.mark.parametrize("keychain", [NONE, FILE])
@pytest.mark.parametrize("source", ["file", "keychain"])
def test_kinds_of_values_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, keychain: str
) -> None:
    use_keychain(monkeypatch, tmp_path, keychain)
    if source == "keychain" and keychain == NONE:
        source = "file"
    environ = {"SUB_HOME": str(tmp_path / "home")}
    secrets, logins = open_store(source, environ), open_store(source, environ, LOGINS)
    logins.put("ref", VALUE)
    assert secrets.get("ref") is None and secrets.refs() == []
    secrets.put("ref", "another value of the same name")
    assert logins.get("ref") == VALUE
    assert logins.remove("ref") and secrets.get("ref") == "another value of the same name"


def test_an_encrypted_login_is_no_secret_wherever_it_is_moved_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keychain(monkeypatch, tmp_path, FILE)
    environ = {"SUB_HOME": str(tmp_path / "home")}
    secrets = open_store("file", environ)
    secrets.put("other", VALUE)
    assert open_store("file", environ, LOGINS).put("ref", VALUE).encrypted
    (tmp_path / "home" / "logins" / "ref").rename(tmp_path / "home" / "secrets" / "ref")
    with pytest.raises(SecretError, match="cannot be decrypted"):
        secrets.get("ref")


def test_env_stores_nothing_and_says_which_variable_to_set() -> None:
    store = open_store("env", {"SUB_SECRET_REF": VALUE})
    assert store.get("ref") == VALUE
    assert store.refs() == []
    with pytest.raises(SecretError) as caught:
        store.put("ref", VALUE)
    assert "SUB_SECRET_REF" in (caught.value.hint or "")
