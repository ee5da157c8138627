"""Who it is comes from the credential: tokens, certificates, service-account tokens checked against their issuer."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from harness.certificates import Authority
from harness.collector import Machine, collector
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from subluminal.contracts.errors import ConfigError
from subluminal.fleet.collector.credentials import READ, SHIP, Caller, Credentials, NotAllowed
from subluminal.fleet.collector.service_accounts import ServiceAccounts
from subluminal.fleet.collector.tokens import Tokens, add_token

ISSUER, AUDIENCE = "https://cluster.example", "subluminal"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@pytest.fixture
def accounts(tmp_path: Path) -> ServiceAccounts:
    rsa_numbers, ec_numbers = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    keys = [
        {
            "kty": "RSA",
            "kid": "r1",
            "use": "sig",
            "alg": "RS256",
            "n": number(rsa_numbers.n),
            "e": number(rsa_numbers.e),
        },
        {"kty": "EC", "kid": "e1", "crv": "P-256", "x": number(ec_numbers.x, 32), "y": number(ec_numbers.y, 32)},
    ]
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return ServiceAccounts(ISSUER, AUDIENCE, str(path))


def token(
    key: Any = RSA, kid: str = "r1", alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any
) -> str:
    place = {"namespace": "acme", "pod": {"name": "worker-0", "uid": "u1"}, "serviceaccount": {"name": "agent"}}
    told = {"iss": ISSUER, "aud": [AUDIENCE], "exp": time.time() + 600, "kubernetes.io": place, **claims}
    head = {"alg": alg, "kid": kid, "typ": "JWT", **(header or {})}
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(told).encode())}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    else:
        signature = b""
    return f"{signed}.{b64(signature)}"


def test_a_service_account_token_names_its_namespace_and_pod(accounts: ServiceAccounts) -> None:
    expected = Caller("acme", "worker-0:u1", frozenset((SHIP,)))
    assert accounts(token()) == expected
    assert accounts(token(EC, "e1", "ES256")) == expected
    assert accounts(token(aud=AUDIENCE)) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        token(OTHER),
        token(kid="r2"),
        token(key=None, alg="none"),
        token(key=None),
        token(alg="HS256"),
        token(EC, "r1", "RS256"),
        token(RSA, "e1", "ES256"),
        token(header={"crit": ["b64"]}),
        token(iss="https://elsewhere.example"),
        token(aud=["another"]),
        token(aud=[]),
        token(aud=None),
        token(exp=time.time() - 120),
        token(exp="soon"),
        token(exp=None),
        token(nbf=time.time() + 600),
        token(**{"kubernetes.io": None}),
        token(**{"kubernetes.io": {"namespace": "acme"}}),
        token(**{"kubernetes.io": {"namespace": 3, "pod": {"name": "x"}}}),
        token()[:-8],
        token().replace(".", "!", 1),
        "a.b.c",
        "." * 10,
        "x" * 100_000,
    ],
)
def test_a_token_that_is_not_the_issuers_for_us_and_now_is_nobodys(accounts: ServiceAccounts, wrong: str) -> None:
    assert accounts(wrong) is None


def test_claims_that_were_changed_after_signing_are_nobodys(accounts: ServiceAccounts) -> None:
    head, _, signature = token().split(".")
    forged = token(**{"kubernetes.io": {"namespace": "other", "pod": {"name": "x"}}}).split(".")[1]
    assert accounts(f"{head}.{forged}.{signature}") is None


def test_tokens_are_known_by_their_hash_and_a_new_file_is_read_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(path)
    first = add_token(path, "acme", "m1", may_read=False)
    tokens = Tokens(path)
    assert tokens(first) == Caller("acme", "m1", frozenset((SHIP,)))
    second = add_token(path, "acme", "ann", may_read=True)
    assert tokens(second) == Caller("acme", "ann", frozenset((READ,)))
    assert first not in Path(path).read_text() and Path(path).stat().st_mode & 0o077 == 0
    Path(path).write_text("{")
    assert tokens(first) is not None  # a slip of an editor cuts nobody off
    assert tokens("guess") is None


def test_a_certificate_names_one_organisation_and_one_common_name() -> None:
    credentials = Credentials([])
    subject = ((("organizationName", "acme"),), (("commonName", "build-7"),))
    assert credentials.caller(None, {"subject": subject}) == Caller("acme", "build-7", frozenset((SHIP,)))
    for wrong in (subject[:1], subject[1:], (*subject, subject[0]), ((("organizationName", "a b"),), subject[1])):
        with pytest.raises(NotAllowed):
            credentials.caller(None, {"subject": wrong})
    for header in ("Basic abc", "Bearer", "Bearer ", "Bearer guess"):
        with pytest.raises(NotAllowed):
            credentials.caller(header, {"subject": subject})  # a bad token is not made good by a certificate
    with pytest.raises(NotAllowed):
        credentials.caller(None, None)


def test_a_machine_with_a_certificate_ships_over_tls_and_one_of_another_authority_does_not(
    one_store: str, tmp_path: Path
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    server, client = ours.server_file("127.0.0.1"), ours.client_file("acme", "build-7")
    options = ("--tls-cert", str(server), "--tls-key", str(server), "--client-ca", str(ours.file))
    with collector(tmp_path / "collector", one_store, *options) as fleet:
        fleet.url = fleet.url.replace("http:", "https:")
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        command = [*machine.command()[:5], "--once", "--url", fleet.url]
        for certificate, trusted, code in (
            (theirs.client_file("acme", "build-7"), ours.file, 1),
            (client, theirs.file, 1),
            (client, ours.file, 0),
        ):
            shown = ["--client-cert", str(certificate), "--client-key", str(certificate), "--ca", str(trusted)]
            done = subprocess.run([*command, *shown], env=sub_environment(machine.home), capture_output=True, text=True)
            assert done.returncode == code, done.stderr
        fleet.certificate_authority = str(ours.file)
        assert [row["call_id"] for row in fleet.rows("query")] == [f"{shim_id(1)}-2", f"{shim_id(1)}-1"]
        report = fleet.rows("verify", run_id(1))[0]
        assert report["ok"] and report["events"] == 8
