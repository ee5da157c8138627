"""Joined machines that ship with a client certificate: real TLS, a private authority, certificates that are renewed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.certificates import EXPIRED, Authority
from harness.collector import CollectorProcess, collector
from harness.command_line import run_sub, stored
from harness.fleet import Fleet, bundle
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from harness.waiting import wait_for
from subluminal.fleet.shipping.sending import Address, Collector, NoCredential

WORDS = "fleet", "join"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ours").mkdir()
    return Authority(tmp_path / "ours")


@pytest.fixture
def over_tls(tmp_path: Path, one_store: str, authority: Authority) -> Iterator[CollectorProcess]:
    server = str(authority.server_file("127.0.0.1"))
    options = ("--tls-cert", server, "--tls-key", server, "--client-ca", str(authority.file))
    with collector(tmp_path / "collector", one_store, *options) as fleet:
        fleet.url = fleet.url.replace("http:", "https:")
        fleet.certificate_authority = str(authority.file)
        yield fleet


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        made.publish(bundle("first"))
        yield made


def join(home: Path, origin: Fleet, collector: str, *shown: str) -> subprocess.CompletedProcess[str]:
    done = run_sub(home, *WORDS, origin.origin.url, "--root", origin.root, "--collector", collector, *shown)
    run_sub(home, "ledgerd", "--stop")
    return done


def kept(home: Path) -> str | None:
    """What the task that ships says of one step."""
    wait_for(lambda: "already" not in run_sub(home, "fleet", "keep", "--once").stderr, what="a step of the keeper")
    told: dict[str, Any] = json.loads(run_sub(home, "fleet", "status", "--json").stdout)
    error: str | None = told["shipping"]["last_error"]
    return error


def calls(fleet: CollectorProcess) -> int:
    return int(fleet.sub("query", "--count").stdout)


def test_a_joined_machine_ships_with_its_certificate_and_takes_up_a_new_one_without_a_restart(
    tmp_path: Path, over_tls: CollectorProcess, authority: Authority, origin: Fleet
) -> None:
    home, shown = tmp_path / "sub", tmp_path / "machine.pem"
    shutil.copy(authority.client_file("acme", "build-7"), shown)
    words = ("--client-cert", str(shown), "--client-key", str(shown), "--ca", str(authority.file))
    assert join(home, origin, over_tls.url, *words).returncode == 0
    stored(home, EventMaker(run_id(1), shim_id(1)).whole_run(2))
    command = [sys.executable, "-m", "subluminal", "fleet", "keep", "--quiet", "--until-eof"]
    with subprocess.Popen(command, env=sub_environment(home), stdin=subprocess.PIPE) as process:
        wait_for(lambda: calls(over_tls) == 2, what="what was recorded before")
        renewed = tmp_path / "new.pem"
        shutil.copy(authority.client_file("acme", "build-8"), renewed)
        os.rename(renewed, shown)
        stored(home, EventMaker(run_id(2), shim_id(2)).whole_run(3))
        wait_for(lambda: calls(over_tls) == 5, what="what was recorded afterwards")
        assert process.poll() is None
        process.kill()
    # One chain for each name that a certificate gives the machine.
    assert over_tls.rows("verify", run_id(2))[0]["ok"]
    now = Collector(Address(over_tls.url, ca_file=str(authority.file), certificate=(str(shown), str(shown))))
    assert now.cursor(run_id(2), shim_id(2)) == 11, "under the name of the new one"
    assert now.cursor(run_id(1), shim_id(1)) == 0
    now.close()


def test_a_certificate_that_cannot_be_used_is_a_sentence_and_nothing_is_lost(
    tmp_path: Path, over_tls: CollectorProcess, authority: Authority, origin: Fleet
) -> None:
    home, shown, key = tmp_path / "sub", tmp_path / "machine.pem", tmp_path / "machine.key"
    (tmp_path / "theirs").mkdir()
    good = authority.client_file("acme", "build-7").read_bytes()
    other = authority.client_file("acme", "build-8").read_bytes()
    words = ("--client-cert", str(shown), "--client-key", str(key), "--ca", str(authority.file))
    assert join(home, origin, over_tls.url, *words).returncode == 0
    stored(home, EventMaker(run_id(1), shim_id(1)).whole_run(2))
    cannot = f"The client certificate {shown} and {key} cannot be used: "
    ends = f"{over_tls.url} ends the connection without an answer: does it know who signed {shown}?"
    expired = authority.client_file("acme", "build-7", EXPIRED).read_bytes()
    unknown = Authority(tmp_path / "theirs").client_file("acme", "build-7").read_bytes()
    for certificate, its_key, said in (
        (None, None, f"{cannot}No such file or directory."),
        (good, None, f"{cannot}No such file or directory."),
        (good, b"no key\n", cannot),
        (good, other, f"{cannot}key values mismatch."),
        (expired, expired, f"The client certificate {shown} has expired: 2021-01-01 00:00Z."),
        (unknown, unknown, ends),
    ):
        for path, content in ((shown, certificate), (key, its_key)):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        told = kept(home)
        assert told is not None and told.startswith(said), told
        found = json.loads(run_sub(home, "doctor", "--json").stdout)["findings"]
        messages = [one["message"] for one in found if one["code"] == "fleet-no-credential"]
        assert messages == ([] if certificate == unknown else [f"nothing is shipped: {told}"])
    shown.write_bytes(good)
    key.write_bytes(good)
    assert kept(home) is None and calls(over_tls) == 2
    assert "Traceback" not in (home / "fleet" / "keeper.log").read_text()


def test_a_key_under_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path, authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = authority.client_file("acme", "build-7")
    key = serialization.load_pem_private_key(pem.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "locked.key").write_bytes(locked)
    shown = (str(pem), str(tmp_path / "locked.key"))
    with pytest.raises(NoCredential, match="cannot be used"):
        Address("https://127.0.0.1:1", certificate=shown).connect()
    with pytest.raises(NoCredential, match="holds no authority"):
        Address("https://127.0.0.1:1", ca_file=str(tmp_path / "locked.key")).connect()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client-cert", "c.pem"], "go together"),
        (["--client-cert", "c.pem", "--client-key", "k.pem", "--token-file", "t"], "one of them"),
        (["--collector", "http://127.0.0.1:1", "--client-cert", "c.pem", "--client-key", "k.pem"], "over https alone"),
        (["--collector", "http://collector.example"], "by https"),
    ],
)
def test_a_mistake_is_said_when_a_machine_joins(tmp_path: Path, words: list[str], said: str) -> None:
    where = [] if "--collector" in words else ["--collector", "https://collector.example"]
    done = run_sub(tmp_path / "sub", *WORDS, "https://fleet.example", "--root", "r", *where, *words)
    assert done.returncode == 2 and said in done.stderr
